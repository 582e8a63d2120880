"""Checks of the project's texts: generated parts of pages, and a count of sentences that are hard to read."""

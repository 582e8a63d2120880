"""Proofs of what the supervision promises, as rows of a table."""

"""Quantities, durations and the base record."""

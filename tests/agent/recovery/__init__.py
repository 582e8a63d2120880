"""Whole agents and their pods through kills, faults and lost data."""

"""Volumes of every kind through a whole agent, with faults and limits."""

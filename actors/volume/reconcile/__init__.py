"""Reconciliation: the volume state of each pod, the loop that brings it to the desired state, and the removal."""

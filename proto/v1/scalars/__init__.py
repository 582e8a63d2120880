"""The base record of Kubernetes types, quantities and durations."""

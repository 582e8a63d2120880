"""Fields of a pod's spec, seen from inside the containers."""

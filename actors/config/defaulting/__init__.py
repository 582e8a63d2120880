"""Defaults that an API server would have written into a pod."""

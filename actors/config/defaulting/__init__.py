"""Sets the defaults that an API server sets in a pod."""

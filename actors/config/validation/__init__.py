"""Rules that an API server would have applied to a pod."""

"""The status actor: what people and, later, the API server see of our pods."""

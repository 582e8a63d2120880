"""Objects from a directory, for nodes without an API server."""

"""Pod statuses: kept for every reader on the node and written to the API server."""

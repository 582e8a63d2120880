"""Where pods come from: manifest files and the API server."""

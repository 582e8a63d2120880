"""The sources of pods: manifest files, a URL and the API server."""

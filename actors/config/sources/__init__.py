"""The sources of pods: manifest files and the API server."""

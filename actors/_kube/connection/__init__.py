"""One connection to the API server: kubeconfig, credentials, HTTP sessions and streams."""

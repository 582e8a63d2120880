"""The OCI runtime: our helper or runc, and the OCI spec of each container."""

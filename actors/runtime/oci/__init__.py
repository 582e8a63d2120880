"""The OCI runtime (runc, crun or our helper), and the OCI specification of each container."""

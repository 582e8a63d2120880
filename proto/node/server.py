"""The server actor receives no messages of its own. Its requests come over HTTPS."""

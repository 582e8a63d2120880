"""Messages of the certificates actor: none of its own. Certificates reach the other actors as files."""

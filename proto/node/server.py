"""Messages the server actor receives: none but those of every actor. What it is asked comes over HTTPS."""

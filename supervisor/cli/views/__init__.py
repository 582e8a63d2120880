"""Tables, colours and descriptions that commands print."""

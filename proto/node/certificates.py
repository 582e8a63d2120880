"""The certificates actor receives no messages of its own. Other actors read its certificates from files."""

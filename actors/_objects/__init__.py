"""What askers of the objects actor share."""

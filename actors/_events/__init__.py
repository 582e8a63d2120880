"""What actors record events with."""

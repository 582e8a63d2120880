"""Child processes: the forkserver, signals, exits, and death records."""

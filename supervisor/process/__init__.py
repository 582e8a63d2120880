"""The children as processes: the forkserver, links to actors, death records and saved state."""

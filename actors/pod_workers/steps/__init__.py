"""The steps of a sync: supplies, sandbox, containers, hooks and killing."""

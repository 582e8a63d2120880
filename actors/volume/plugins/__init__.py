"""Volume plugins: a module for each source of a volume; each turns a volume into a step for a helper."""

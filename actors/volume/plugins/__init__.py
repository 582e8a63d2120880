"""Volume plugins, a module for each source of a volume. A plugin makes the step that a helper carries out."""

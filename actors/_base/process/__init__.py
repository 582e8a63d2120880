"""An actor's process: its entry point, its threads, and the work that a short-lived process does for it."""

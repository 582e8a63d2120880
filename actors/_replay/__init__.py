"""Replays a recording of the flight recorder to the actor's own code, in a sandbox. See README.md."""

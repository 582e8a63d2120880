"""Networks of pods."""

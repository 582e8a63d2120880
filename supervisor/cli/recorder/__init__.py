"""Commands of the flight recorder: record and replay."""

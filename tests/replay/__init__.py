"""Replays of recordings: the matching of answers, the sandbox, and crashes that come again."""

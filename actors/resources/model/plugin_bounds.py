"""Bounds on plugins: the length of their errors, and their part of the mailbox thread's time. Pure."""

from __future__ import annotations

MOST_ERROR = 1024
"""Characters of a plugin's error. It goes into the log, into events and into the statuses of pods."""
MOST_TIME = 0.1
"""Part of the mailbox thread's time that reports of all plugins of one type may take."""


def error_text(text: str) -> str:
    """A plugin's error for a message. The reason is at its end as a rule, so that much of it is kept."""
    return text if len(text) <= MOST_ERROR else f"{text[: MOST_ERROR - 3]}..."


def rest_s(spent_s: float, plugins: int, least_s: float) -> float:
    """The shortest time until the next report of a plugin is taken, so that all together leave time to others.

    `spent_s`: CPU time of its last report. `plugins`: how many may report; each has an equal part of MOST_TIME.
    """
    return max(least_s, spent_s * max(1, plugins) / MOST_TIME)

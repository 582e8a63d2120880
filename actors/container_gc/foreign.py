"""Finds foreign pods, those without a mark of ours, and formats the log line about them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from actors.container_gc.policy import Pods

SAID_AT_ONCE = 5
"""Foreign pods that a log line names; it counts the others."""


def foreign_pods(seen: Mapping[str, Iterable[str]], pods: Pods) -> dict[str, tuple[str, ...]]:
    """Return UID to places of the foreign pods in Seen.uids.

    Empty until every source of pods has answered: a source may still name any pod.
    """
    found: dict[str, tuple[str, ...]] = {}
    if pods.sources_ready:
        for place, uids in seen.items():
            for uid in uids:
                if pods.is_foreign(uid):
                    found[uid] = (*found.get(uid, ()), place)
    return found


def foreign_line(new: Mapping[str, Iterable[str]]) -> str:
    """Return the log line about new foreign pods, given UID to places."""
    named = [f"{uid[:60]!r} ({', '.join(new[uid])})" for uid in sorted(new)[:SAID_AT_ONCE]]
    more = f" and {len(new) - len(named)} more" if len(new) > len(named) else ""
    return (
        f"pods without a mark of this agent are left alone: {', '.join(named)}{more}; "
        "another agent on this machine may own them; if none does, start with --take-over to end them"
    )

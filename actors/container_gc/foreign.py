"""Finds the pods on the node that are not known to be ours, and words the log line about them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from actors.container_gc.policy import Pods

SAID_AT_ONCE = 5
"""Foreign pods in one log line by UID; the others are counted."""


def foreign_pods(seen: Mapping[str, Iterable[str]], pods: Pods) -> dict[str, tuple[str, ...]]:
    """Return the foreign pods among those seen by place (Seen.uids): a UID's places.

    Empty until every source has been seen: a source may be about to name any pod.
    """
    found: dict[str, tuple[str, ...]] = {}
    if pods.sources_ready:
        for place, uids in seen.items():
            for uid in uids:
                if pods.is_foreign(uid):
                    found[uid] = (*found.get(uid, ()), place)
    return found


def foreign_line(new: Mapping[str, Iterable[str]]) -> str:
    """Return the log line about newly seen foreign pods, given their places by UID."""
    named = [f"{uid[:60]!r} ({', '.join(new[uid])})" for uid in sorted(new)[:SAID_AT_ONCE]]
    more = f" and {len(new) - len(named)} more" if len(new) > len(named) else ""
    return (
        f"pods that are not known to be this agent's are left alone: {', '.join(named)}{more}; "
        "another agent on this machine may own them; if none does, start with --take-over to have them ended"
    )

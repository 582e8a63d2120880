"""Decisions of the pleg: changed pods from two lists of the runtime, and reused PIDs from cgroup files. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Literal, NamedTuple

State = Literal["running", "ended", "other"]
"""A container is running, exited, or other (created, unknown). A ready sandbox is running, another one is ended."""


class Entry(NamedTuple):
    """One container or sandbox of a list."""

    pod_uid: str
    state: State


Snapshot = Mapping[str, Entry]
"""A list of the runtime, by CRI ID."""


class Changes(NamedTuple):
    """Unreported changes in a list."""

    pod_uids: frozenset[str]
    ended: frozenset[str]
    """IDs that ended or vanished; they are reported only once."""


def changes(before: Snapshot | None, now: Snapshot, watched: Mapping[str, str], told: Set[str]) -> Changes:
    """Compare a list with the one before (None for the first).

    `watched`: pod UID by CRI ID of running processes that pod_workers watched when the list was requested.
    `told`: IDs whose end has been reported.
    """
    pods: set[str] = set()
    ended: set[str] = set()
    for id_, entry in now.items():
        if id_ in told:
            continue  # a list that was made before the end still shows it as running
        old = before.get(id_) if before is not None else None
        if entry.state == "ended":
            # Containers that ended before the first list are reported only if they are watched.
            known_dead = before is None if old is None else old.state == "ended"
            if id_ in watched or not known_dead:
                pods.add(entry.pod_uid)
                ended.add(id_)
        elif entry.state == "running" and id_ not in watched and (old is None or old.state != "running"):
            pods.add(entry.pod_uid)
    expected = {id_: entry.pod_uid for id_, entry in (before or {}).items()} | dict(watched)
    for id_, pod_uid in expected.items():
        if id_ not in now and id_ not in told:
            pods.add(pod_uid)
            ended.add(id_)
    return Changes(frozenset(pods), frozenset(ended))


_OWNER = re.compile(r"[0-9a-f]{64}|[^/:\s]+\.(?:scope|service)")
"""Owners of a process in its cgroup path: container IDs and systemd units."""


def is_another(cgroup: str, id_: str, own_cgroup: str = "") -> bool:
    """True when /proc/PID/cgroup proves that a process does not belong to the container `id_`.

    Its PID was reused, or the runtime names the sandbox's process as that of each container (gVisor, Kata).
    A file without an owner proves nothing. Neither do owners in `own_cgroup`, the agent's own file: they are above
    every process of an agent in a container.
    """
    if id_ in cgroup:
        return False
    return bool(set(_OWNER.findall(cgroup)) - set(_OWNER.findall(own_cgroup)))

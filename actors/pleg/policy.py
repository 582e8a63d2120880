"""What two lists of the runtime, and the cgroup file of a process, say about pods.

Pure. Not here: telling it, and the exits that pidfds report by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Literal, NamedTuple

State = Literal["running", "ended", "other"]
"""Of a container: running, exited, or created and unknown. Of a sandbox: ready is running, not ready is ended."""


class Entry(NamedTuple):
    """One container or sandbox of a list."""

    pod_uid: str
    state: State


Snapshot = Mapping[str, Entry]
"""A list of the runtime, by CRI ID."""


class Changes(NamedTuple):
    """What a list shows that nobody was told of."""

    pod_uids: frozenset[str]
    ended: frozenset[str]
    """IDs among them that ended or vanished; told with this, so not again."""


def changes(before: Snapshot | None, now: Snapshot, watched: Mapping[str, str], told: Set[str]) -> Changes:
    """Compare a list with the one before (None for the first).

    `watched`: pod UID by CRI ID of what the pod workers know to run, as of the moment the list was asked for.
    `told`: IDs whose end has been told already.
    """
    pods: set[str] = set()
    ended: set[str] = set()
    for id_, entry in now.items():
        if id_ in told:
            continue  # a list made before its end and read after it says running
        old = before.get(id_) if before is not None else None
        if entry.state == "ended":
            # What was dead before the first list is old news, unless somebody thinks that it runs.
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
"""What names the owner of a process in its cgroup path: a container's ID, or systemd's unit."""


def is_another(cgroup: str, id_: str, own_cgroup: str = "") -> bool:
    """Whether a process, by its /proc/PID/cgroup, is certainly not of the container `id_`: its pid was given out anew.

    A file that names no owner at all proves nothing. `own_cgroup`, the agent's own file, tells the owners above
    everything on this node (an agent in a container), which prove nothing either.
    """
    if id_ in cgroup:
        return False
    return bool(set(_OWNER.findall(cgroup)) - set(_OWNER.findall(own_cgroup)))

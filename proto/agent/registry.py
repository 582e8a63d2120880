"""The actors of an agent: the list that child specs, message lookup, the server, tests and pages are made from.

`make new-actor NAME=x` adds an entry. Where a change of settings restarts which actor is another table,
`supervisor.config.reload.readers`, which a test derives from the sources.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One actor: `actors/NAME/actor.py`, and its messages in `proto/ROOM/NAME.py`."""

    name: str
    room: str
    """The package below `proto` with its message module: `pods`, `node`, `resources` or `agent`."""
    purpose: str
    """One line for people, with the kubelet's word for this manager where it has one."""
    after: tuple[str, ...] = ()
    """Actors that are ready before this one starts, as far as an agent has them."""
    needs: str = ""
    """The part of a configuration without which an agent does not have this actor; empty: each agent has it."""
    has_loop: bool = False
    """It answers a Ping only once a loop of its own, in a further thread, has run."""


ACTORS = (
    Entry("runtime", "node", "runs containers itself and serves CRI (embedded runtime)", needs="runtime"),
    Entry("tracing", "agent", "sends spans of traces to an OTLP collector", needs="tracing"),
    Entry("events", "pods", "records Events and sends them to the API server (event recorder)"),
    Entry("stats", "node", "measures CPU, memory and disk of the node and its pods (stats provider)"),
    Entry(
        "objects",
        "pods",
        "keeps ConfigMaps, Secrets, claims and tokens that pods refer to (object managers)",
        after=("runtime",),
        needs="objects",
    ),
    Entry("status", "pods", "holds pod statuses and writes them to the API server (status manager)", ("runtime",)),
    Entry("volume", "pods", "sets up, mounts and unmounts volumes (volume manager)", ("runtime",)),
    Entry("image_pull", "node", "pulls images, with credentials and back-off (image manager)", ("runtime",)),
    Entry("probe", "pods", "probes containers for liveness, readiness and start-up (probe manager)", ("runtime",)),
    Entry("pleg", "pods", "watches containers for changes of state (pod lifecycle event generator)", ("runtime",)),
    Entry(
        "resources",
        "resources",
        "assigns CPUs, memory, devices and claims to containers (CPU, memory, device, DRA and topology manager)",
        after=("runtime",),
    ),
    Entry(
        "pod_workers",
        "pods",
        "admits, starts, resizes and ends pods (pod workers, admission, runtime manager)",
        after=("objects", "status", "volume", "image_pull", "probe", "pleg"),
    ),
    Entry("container_gc", "node", "removes dead containers, old logs and orphaned pod directories (container GC)"),
    Entry("image_gc", "node", "removes unused images when the disk fills up (image GC)"),
    Entry("eviction", "node", "evicts pods when the node runs out of a resource (eviction manager)", ("stats",)),
    Entry("oom", "resources", "reports the kernel's OOM kills of pods and of the node (OOM watcher)"),
    Entry("config", "pods", "reads pods from manifests, a URL and the API server (pod config)", ("pod_workers",)),
    Entry(
        "node",
        "node",
        "reports the Node and its lease, delays the machine's shutdown for pods (node status, shutdown manager)",
        after=("pleg",),
        needs="node",
    ),
    Entry("certificates", "node", "requests and rotates the node's certificates", needs="certificates"),
    Entry("server", "node", "serves the kubelet API: logs, exec, metrics, pods", needs="server", has_loop=True),
    Entry(
        "remote_console",
        "agent",
        "serves consoles on other machines over TCP, with CURVE keys and roles",
        needs="remote_console",
        has_loop=True,
    ),
)
"""In start order."""

NAMES = frozenset(entry.name for entry in ACTORS)
WITH_LOOP = frozenset(entry.name for entry in ACTORS if entry.has_loop)
BASIC = tuple(entry.name for entry in ACTORS if not entry.needs)
"""The actors that each agent has, in start order."""


def rooms() -> dict[str, str]:
    """The package of each actor's message module, by the actor's name."""
    return {entry.name: f"proto.{entry.room}" for entry in ACTORS}

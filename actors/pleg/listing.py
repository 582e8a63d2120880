"""Snapshots of the runtime's lists: pod UID, ID and state of each sandbox and container."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from actors._metrics import kubelet as metrics
from actors.pleg.policy import Entry, Snapshot, State
from proto.cri import api_pb2 as pb
from proto.cri.labels import POD_UID

_CONTAINER: dict[int, State] = {pb.CONTAINER_RUNNING: "running", pb.CONTAINER_EXITED: "ended"}
_STATES = {
    pb.CONTAINER_CREATED: "created",
    pb.CONTAINER_RUNNING: "running",
    pb.CONTAINER_EXITED: "exited",
    pb.CONTAINER_UNKNOWN: "unknown",
}
_SANDBOX: dict[int, State] = {pb.SANDBOX_READY: "running", pb.SANDBOX_NOTREADY: "ended"}


def snapshot(sandboxes: Iterable[pb.PodSandbox], containers: Iterable[pb.Container]) -> Snapshot:
    """Sandboxes and containers with the kubelet's label of a pod's UID; others on the runtime are not ours."""
    found = {
        sandbox.id: Entry(sandbox.labels[POD_UID], _SANDBOX.get(sandbox.state, "other"))
        for sandbox in sandboxes
        if POD_UID in sandbox.labels
    }
    for container in containers:
        if POD_UID in container.labels:
            found[container.id] = Entry(container.labels[POD_UID], _CONTAINER.get(container.state, "other"))
    return found


def set_gauges(sandboxes: Sequence[pb.PodSandbox], containers: Sequence[pb.Container]) -> None:
    """Set the gauges of running pods and containers."""
    running = {one.labels[POD_UID] for one in sandboxes if one.state == pb.SANDBOX_READY and POD_UID in one.labels}
    states = Counter(_STATES.get(one.state, "unknown") for one in containers if POD_UID in one.labels)
    metrics.RUNNING_PODS.set(len(running))
    metrics.RUNNING_CONTAINERS.replace(((state,), count) for state, count in states.items())

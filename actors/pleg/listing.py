"""The runtime's lists, reduced to what is compared: pod, ID and state."""

from __future__ import annotations

from collections.abc import Iterable

from actors.pleg.policy import Entry, Snapshot, State
from proto.cri import api_pb2 as pb

_UID = "io.kubernetes.pod.uid"
_CONTAINER: dict[int, State] = {pb.CONTAINER_RUNNING: "running", pb.CONTAINER_EXITED: "ended"}
_SANDBOX: dict[int, State] = {pb.SANDBOX_READY: "running", pb.SANDBOX_NOTREADY: "ended"}


def snapshot(sandboxes: Iterable[pb.PodSandbox], containers: Iterable[pb.Container]) -> Snapshot:
    """Everything that carries the kubelet's label of a pod's UID; what others run over CRI is not ours."""
    found = {
        sandbox.id: Entry(sandbox.labels[_UID], _SANDBOX.get(sandbox.state, "other"))
        for sandbox in sandboxes
        if _UID in sandbox.labels
    }
    for container in containers:
        if _UID in container.labels:
            found[container.id] = Entry(container.labels[_UID], _CONTAINER.get(container.state, "other"))
    return found

"""Keeps the server's copy of the pods current, so that logs, exec and lists do not wait for this actor."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from actors._base.messaging.ref import RemoteRef
from proto.node.server import RemovePods, ServedPod, SetPod, SetPods
from proto.v1 import Pod, to_json

SERVER = "server"


class ServerFeed:
    """Tells the server each change, and every pod when it starts. Sends nothing while there is no server."""

    def __init__(self, server: RemoteRef, pods: Callable[[], Iterable[Pod]]) -> None:
        self._server, self._pods = server, pods
        self._incarnation = 0
        """The server's; 0 while none is in service."""

    def started(self, incarnation: int) -> None:
        """Send all pods to a server that has started."""
        self._incarnation = incarnation
        self._server.tell(SetPods(pods=tuple(map(served, self._pods()))))

    def exited(self, incarnation: int) -> None:
        """Send no more changes; the next server gets all pods."""
        if incarnation == self._incarnation:
            self._incarnation = 0

    def changed(self, pod: Pod) -> None:
        """Send a new or changed pod."""
        if self._incarnation:
            self._server.tell(SetPod(pod=served(pod)))

    def removed(self, uid: str) -> None:
        """Send the removal of a pod."""
        if self._incarnation:
            self._server.tell(RemovePods(uids=(uid,)))


def served(pod: Pod) -> ServedPod:
    """The pod as the server keeps it."""
    meta = pod.metadata
    return ServedPod(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        deleted=meta.deletion_timestamp is not None,
        document=to_json(pod),
    )

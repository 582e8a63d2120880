"""The server's own copy of the pods, which status feeds. It answers requests while status hangs or restarts."""

from __future__ import annotations

from collections.abc import Iterable

from actors.server.readiness import ReadinessHistory
from proto.node.server import ServedPod
from proto.v1 import Pod, from_json


class PodCopies:
    """Pods by UID. The mailbox's thread writes, the loop's thread reads: each change replaces the dict."""

    def __init__(self) -> None:
        self._pods: dict[str, ServedPod] | None = None
        self.readiness = ReadinessHistory()

    @property
    def complete(self) -> bool:
        """True once status has sent all pods to this incarnation of the server."""
        return self._pods is not None

    def replace(self, pods: Iterable[ServedPod]) -> None:
        """Take these as all pods."""
        before = self._pods or {}
        self._pods = {pod.uid: pod for pod in pods}
        for uid in before.keys() - self._pods.keys():
            self.readiness.remove(uid)
        for pod in self._pods.values():
            self.readiness.take(pod)

    def put(self, pod: ServedPod) -> None:
        """Take a changed pod. Before all pods have come it is dropped: they contain it."""
        if self._pods is not None:
            self._pods = {**self._pods, pod.uid: pod}
            self.readiness.take(pod)

    def remove(self, uids: Iterable[str]) -> None:
        """Drop these pods."""
        if self._pods is not None:
            gone = frozenset(uids)
            for uid in gone:
                self.readiness.remove(uid)
            self._pods = {uid: pod for uid, pod in self._pods.items() if uid not in gone}

    def find(self, namespace: str, name: str) -> list[Pod]:
        """The pods of this name; of two, the one being deleted comes last."""
        found = [pod for pod in (self._pods or {}).values() if (pod.namespace, pod.name) == (namespace, name)]
        return [from_json(Pod, pod.document) for pod in sorted(found, key=lambda pod: pod.deleted)]

    def documents(self) -> list[bytes]:
        """The JSON of each pod, ordered by namespace and name."""
        ordered = sorted((self._pods or {}).values(), key=lambda pod: (pod.namespace, pod.name))
        return [pod.document for pod in ordered]

    def names(self) -> list[str]:
        """NAMESPACE/NAME of each pod."""
        return [f"{pod.namespace}/{pod.name}" for pod in (self._pods or {}).values()]

    def __len__(self) -> int:
        return len(self._pods or {})

"""The pods that the pod resources API names, as pod_workers tells them. Pure."""

from __future__ import annotations

from proto.resources.resources import ListedPod, SetListedPods


class NotKnownError(Exception):
    """pod_workers has not told all pods since this process started."""


class KnownPods:
    """State: the pods by UID. A new process knows none until pod_workers sends all of them."""

    def __init__(self) -> None:
        self._pods: dict[str, ListedPod] = {}
        self.complete = False

    def __len__(self) -> int:
        return len(self._pods)

    def apply(self, message: SetListedPods) -> None:
        """Take a message in."""
        if message.full:
            self._pods.clear()
            self.complete = True
        self._pods.update((pod.uid, pod) for pod in message.pods)
        for uid in message.gone:
            self._pods.pop(uid, None)

    def every(self, *, active: bool) -> list[ListedPod]:
        """All pods, or only active ones: they have begun and have not ended. Raises NotKnownError."""
        self._check()
        return [pod for pod in self._pods.values() if pod.active or not active]

    def named(self, namespace: str, name: str) -> ListedPod | None:
        """The pod of this name; None without one. Raises NotKnownError.

        Where two sources have a pod of one name, an active pod counts first.
        """
        self._check()
        found = [pod for pod in self._pods.values() if (pod.namespace, pod.name) == (namespace, name)]
        return max(found, key=lambda pod: pod.active, default=None)

    def _check(self) -> None:
        if not self.complete:
            raise NotKnownError("not all pods of the node are known yet; try again")

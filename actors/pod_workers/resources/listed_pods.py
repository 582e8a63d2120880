"""Tells the resources actor the pods that its pod resources API names.

The kubelet reads them from its pod manager (pkg/kubelet/apis/podresources). Used in the actor's mailbox thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from actors._host.restart import is_sidecar
from actors.pod_workers.model.desired import API, Desired
from proto.resources.resources import ListedPod, SetListedPods
from proto.v1 import Pod


class Receiver(Protocol):
    """The resources actor."""

    def tell(self, message: SetListedPods, /) -> None:
        """Send without an answer."""


class ListedPods:
    """State: what the resources actor was told, by pod UID, and the pods that have changed since.

    Changes are told together: of many pods that start, and of a pod that is added and starts at once.
    """

    def __init__(self, peer: Receiver, desired: Desired, soon: Callable[[Callable[[], None]], None]) -> None:
        """`soon` calls a function after the messages that wait in the actor's mailbox."""
        self._peer = peer
        self._desired = desired
        self._soon = soon
        self._changed: dict[str, None] = {}
        self._active: set[str] = set()
        self._told: dict[str, ListedPod] = {}
        self._complete = False

    def changed(self, uids: Iterable[str]) -> None:
        """Tell soon which pods a source has added or removed."""
        before = bool(self._changed)
        self._changed |= dict.fromkeys(uids)
        if self._changed and not before:
            self._soon(self.tell)

    def tell(self) -> None:
        """Tell the changes now."""
        new, gone = [], []
        changed, self._changed = self._changed, {}
        for uid in changed:
            entry = self._entry(uid)
            if entry is None and self._told.pop(uid, None) is not None:
                gone.append(uid)
            elif entry is not None and self._told.get(uid) != entry:
                self._told[uid] = entry
                new.append(entry)
        if new or gone:
            self._peer.tell(SetListedPods(pods=tuple(new), gone=tuple(gone)))

    def started(self, uid: str) -> None:
        """A worker starts or continues the pod, or its admission asks for its resources."""
        self._active.add(uid)
        self.changed([uid])

    def ended(self, uid: str) -> None:
        """No process of the pod runs any more, or it is rejected."""
        if uid in self._active:
            self._active.discard(uid)
            self.changed([uid])

    def reconciled(self) -> None:
        """Every desired pod that runs has a worker. Tell all pods, once the sources have named them.

        The pods of an API server that does not answer are those of its checkpoint.
        """
        if not self._complete and self._desired.seen.issuperset(one for one in self._desired.sources if one != API):
            self._complete = True
            self.resend()

    def resend(self) -> None:
        """Tell all pods again. Does nothing before `reconciled`: a list with pods missing would be taken for whole."""
        if self._complete:
            entries = {uid: _listed(pod, active=uid in self._active) for uid, pod in self._desired.pods.items()}
            self._told, self._changed = entries, {}
            self._peer.tell(SetListedPods(pods=tuple(entries.values()), full=True))

    def _entry(self, uid: str) -> ListedPod | None:
        pod = self._desired.pods.get(uid)
        return None if pod is None else _listed(pod, active=uid in self._active)


def _listed(pod: Pod, *, active: bool) -> ListedPod:
    """As the kubelet, without init containers that end before the pod runs, and without ephemeral ones."""
    return ListedPod(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        containers=tuple(one.name for one in pod.spec.containers),
        sidecars=tuple(one.name for one in pod.spec.init_containers if is_sidecar(one)),
        active=active,
    )

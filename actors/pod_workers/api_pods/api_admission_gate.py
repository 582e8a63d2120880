"""Delays the admission of API pods until the server's view of this node is known, and checkpoints admitted ones.

A new pod waits until the server has sent this node's labels and taints. A checkpointed pod that does not run waits for
the server's list, at most 5 s, as the server may be down. Without an API server among the sources this module does
nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import replace

from actors._base import Actor
from actors.pod_workers.admission.admission_queue import AdmissionQueue
from actors.pod_workers.api_pods.api_pod_checkpoint import ApiPodCheckpoint
from actors.pod_workers.api_pods.own_node import KnownNode, OwnNode
from actors.pod_workers.model.desired import API, Desired
from proto.pods.pod_workers import ObjectsChanged

log = logging.getLogger(__name__)

ALONE_AFTER_S = 5.0
"""Checkpointed pods that do not run wait this long for a server that may have deleted them meanwhile."""
ASK_AGAIN_S, ASK_CAP_S = 5.0, 60.0
"""First and longest pause between two reads of our own Node until it is known. The objects actor asks for more."""


class ApiAdmissionGate:
    """Used in the actor's mailbox thread. Reads the desired pods, and tells the admission queue when to go on."""

    def __init__(self, actor: Actor, desired: Desired, admission_queue: AdmissionQueue) -> None:
        self._actor = actor
        self._desired = desired
        self._queue = admission_queue
        self._checkpoint = ApiPodCheckpoint(actor) if API in actor.settings.pod_sources else None
        self._node = OwnNode(actor, self._node_read) if actor.settings.kubeconfig else None
        self._node_known = self._node is None
        self._known: KnownNode | None = None
        self._machine = admission_queue.node.allocatable
        self._plugins: Collection[str] | None = None
        self._alone = False

    def recover(self) -> None:
        """Want the pods of the checkpoint, and use the labels and taints that were known last."""
        if self._checkpoint is not None:
            self._desired.restore(self._checkpoint.load())
        if self._node is not None:
            self._apply(self._node.load())

    def begin(self) -> None:
        """In service: read our own Node, and stop waiting for the server after `ALONE_AFTER_S`."""
        self._read_until_known(ASK_AGAIN_S)
        if self._desired.restored:
            self._actor.after(ALONE_AFTER_S, self._go_alone)

    # Admission

    def may_decide(self, uid: str) -> bool:
        """Return True when the facts that the pod's admission depends on are known."""
        if uid in self._desired.restored:
            return self._alone
        return self._node_known or not self._desired.from_api(uid)

    def refresh_node(self, uid: str) -> bool:
        """Read our Node anew for a pod that does not fit its labels. False: there is no server to ask.

        If True, `AdmissionQueue.node_refreshed` follows.
        """
        if self._node is None or not self._desired.from_api(uid):
            return False
        self._actor.spawn(self._refresh_node(self._node, uid), "refresh_node")
        return True

    async def _refresh_node(self, node: OwnNode, uid: str) -> None:
        await node.read(fresh=True)
        self._queue.node_refreshed(uid)

    def _read_until_known(self, again_s: float) -> None:
        if self._node is not None and not self._node_known:
            self._node.read_soon()
            self._actor.after(again_s, self._read_until_known, min(ASK_CAP_S, 2 * again_s))

    def _node_read(self, known: KnownNode | None) -> None:
        self._apply(known)
        if not self._node_known:
            self._node_known = True
            self._queue.advance()

    def _apply(self, known: KnownNode | None) -> None:
        self._known = known or self._known
        if known is not None:
            self._queue.node = replace(self._queue.node, labels=dict(known.labels), taints=known.taints)
            self._count_resources()

    def set_device_resources(self, names: Collection[str]) -> None:
        """Extended resources of device plugins, which the resources actor counts. Admission counts the others."""
        self._plugins = names
        self._count_resources()

    def _count_resources(self) -> None:
        if self._known is not None:
            counted = self._known.counted(self._plugins)
            self._queue.node = replace(self._queue.node, allocatable=counted | self._machine)

    def _go_alone(self) -> None:
        if self._desired.restored:
            log.warning("the API server does not answer: the pods accepted before run again")
        self._alone = True
        self._queue.advance()

    def objects_changed(self, change: ObjectsChanged) -> None:
        """From objects: read our Node anew if it is among the changed objects."""
        if self._node is not None and (change.full or self._node.ref in change.refs):
            self._node.read_soon()

    # The checkpoint

    def pod_admitted(self, uid: str) -> None:
        """Checkpoint an API pod that may run."""
        if self._checkpoint is not None and self._desired.from_api(uid):
            self._checkpoint.keep(self._desired.pods[uid])

    def pods_updated(self, uids: Iterable[str]) -> None:
        """Rewrite the checkpoints of pods whose objects have changed."""
        if self._checkpoint is not None:
            for uid in uids:
                self._checkpoint.changed(self._desired.pods[uid])

    def pod_gone(self, uid: str) -> None:
        """Drop the checkpoint of a pod that has terminated or that its source has removed."""
        if self._checkpoint is not None:
            self._checkpoint.forget(uid)

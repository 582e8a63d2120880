"""What is different for pods of an API server: which are kept over a reboot, and what their admission waits for.

A pod that is new waits until the server has said what labels and taints this node has. One of the checkpoint that does
not run waits for the server's own list; for a few seconds only, as there may be no server. Without an API server among
the sources nothing here does anything.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from actors.pod_workers.admission import NodeInfo
from actors.pod_workers.api_pods.api_pod_checkpoint import ApiPodCheckpoint
from actors.pod_workers.api_pods.own_node import KnownNode, OwnNode
from actors.pod_workers.model.desired import API
from proto.pods.pod_workers import ObjectsChanged

if TYPE_CHECKING:
    from actors.pod_workers.actor import PodWorkers

log = logging.getLogger(__name__)

ALONE_AFTER_S = 5.0
"""How long accepted pods that do not run wait for a server that may have let go of them meanwhile."""
ASK_AGAIN_S, ASK_CAP_S = 5.0, 60.0
"""Until our own Node is known: between two looks, besides those that the objects actor asks for."""


class ApiAdmissionGate:
    """Used in the actor's mailbox thread."""

    def __init__(self, actor: PodWorkers) -> None:
        self._actor = actor
        self._checkpoint = ApiPodCheckpoint(actor) if API in actor.settings.pod_sources else None
        self._node = OwnNode(actor, self._node_read) if actor.settings.kubeconfig else None
        self._node_known = self._node is None
        self._alone = False

    def recover(self, node: NodeInfo) -> NodeInfo:
        """Want the pods of the checkpoint; the node with what was known last of its labels and taints."""
        if self._checkpoint is not None:
            self._actor.desired.restore(self._checkpoint.load())
        known = self._node.load() if self._node is not None else None
        return node if known is None else _applied(known, node)

    def begin(self) -> None:
        """In service: read our own Node, and stop waiting for a server after a while."""
        if self._node is not None:
            self._look_until_known(ASK_AGAIN_S)
        if self._actor.desired.restored:
            self._actor.after(ALONE_AFTER_S, self._go_alone)

    # Admission

    def may_judge(self, uid: str) -> bool:
        """Whether all is known that the pod's admission goes by."""
        desired = self._actor.desired
        if uid in desired.restored:
            return self._alone
        return self._node_known or not desired.from_api(uid)

    def look_again(self, uid: str) -> bool:
        """A pod does not fit the node as it is known here: whether the server is asked once more. If so
        `Entrance.looked_again` follows."""
        if self._node is None or not self._actor.desired.from_api(uid):
            return False
        self._actor.spawn(self._look_again(uid), "look_again_at_node")
        return True

    async def _look_again(self, uid: str) -> None:
        assert self._node is not None
        await self._node.read(fresh=True)
        self._actor.admission_queue.looked_again(uid)

    def _look_until_known(self, again_s: float) -> None:
        if self._node is not None and not self._node_known:
            self._node.look()
            self._actor.after(again_s, self._look_until_known, min(ASK_CAP_S, 2 * again_s))

    def _node_read(self, known: KnownNode | None) -> None:
        admission_queue = self._actor.admission_queue
        if known is not None:
            admission_queue.node = _applied(known, admission_queue.node)
        if not self._node_known:
            self._node_known = True
            admission_queue.go_on()

    def _go_alone(self) -> None:
        if self._actor.desired.restored:
            log.warning("the API server does not answer: the pods accepted before run again")
        self._alone = True
        self._actor.admission_queue.go_on()

    def objects_changed(self, change: ObjectsChanged) -> None:
        """From objects."""
        if self._node is not None and (change.full or self._node.ref in change.refs):
            self._node.look()

    # The checkpoint

    def accepted(self, uid: str) -> None:
        """The pod may run."""
        desired = self._actor.desired
        if self._checkpoint is not None and desired.from_api(uid):
            self._checkpoint.keep(desired.pods[uid])

    def changed(self, uids: Iterable[str]) -> None:
        """Their objects have."""
        if self._checkpoint is not None:
            for uid in uids:
                self._checkpoint.changed(self._actor.desired.pods[uid])

    def over(self, uid: str) -> None:
        """Nothing of the pod is to run any more, or its source does not want it."""
        if self._checkpoint is not None:
            self._checkpoint.forget(uid)


def _applied(known: KnownNode, node: NodeInfo) -> NodeInfo:
    return replace(node, labels=dict(known.labels), taints=known.taints)

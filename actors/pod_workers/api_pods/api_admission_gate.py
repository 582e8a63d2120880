"""Delays the admission of API pods until the server's view of this node is known, and checkpoints admitted ones.

A new pod waits until the server has sent this node's labels and taints. A checkpointed pod that does not run waits for
the server's list, at most 5 s, as the server may be down. It waits without end when another node agent may have ended
it: its directory is gone, or that agent has served since our last start. After a start of the agent running pods with
probes wait, too: only the server may know that they are ready. Without an API server among the sources this module does
nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from actors._base import Actor
from actors.pod_workers.admission.admission_queue import AdmissionQueue
from actors.pod_workers.api_pods.api_pod_checkpoint import ApiPodCheckpoint, has_directory
from actors.pod_workers.api_pods.own_node import KnownNode, OwnNode
from actors.pod_workers.model.desired import API, Desired, full_name
from proto.pods.pod_workers import ObjectsChanged
from proto.v1 import Pod

log = logging.getLogger(__name__)

ALONE_AFTER_S = 5.0
"""Checkpointed pods that do not run wait this long for a server that may have deleted them meanwhile."""
SHOWN = 10
"""Most names in a log line."""
_HAS_ENDED = "have no directory, as if another node agent had ended them"
_MAY_HAVE_ENDED = "do not run, as if the node agent that served before this one had ended them"
ASK_AGAIN_S, ASK_CAP_S = 5.0, 60.0
"""First and longest pause between two reads of our own Node until it is known. The objects actor asks for more."""


class ApiAdmissionGate:
    """Used in the actor's mailbox thread. Reads the desired pods, and tells the admission queue when to go on."""

    def __init__(
        self,
        actor: Actor,
        desired: Desired,
        admission_queue: AdmissionQueue,
        on_alone: Callable[[], object] = lambda: None,
        runs: Callable[[str], bool] = lambda uid: False,  # noqa: ARG005 - the signature
        on_node_changed: Callable[[], object] = lambda: None,
    ) -> None:
        """`on_alone`: the server does not answer. Pods that run, and for which `awaits_server` held, need workers.

        `runs`: the pod of this UID has a worker or runs. `on_node_changed`: the Node has other labels, taints or
        extended resources.
        """
        self._actor = actor
        self._desired = desired
        self._admission_queue = admission_queue
        self._on_alone = on_alone
        self._runs = runs
        self._on_node_changed = on_node_changed
        self._checkpoint = ApiPodCheckpoint(actor) if API in actor.settings.pod_sources else None
        self._node = OwnNode(actor, self._node_read) if actor.settings.kubeconfig else None
        self._node_known = self._node is None
        self._known: KnownNode | None = None
        self._machine = admission_queue.node.allocatable
        self._plugins: Collection[str] | None = None
        self._alone = False
        self._may_be_outdated = False
        """The agent has started anew: the statuses that we published last may be old."""
        self._other_served = False
        self._unvouched: set[str] = set()
        """Pods of the checkpoint that another agent may have ended: only the server can still want them."""

    def recover(self, *, is_new_agent: bool = False, other_served: bool = False, ran: Collection[str] = ()) -> None:
        """Want the pods of the checkpoint, and use the labels and taints that were known last.

        `other_served`: another agent has served the pods since the server sent them. It leaves the directories of pods
        that have failed or were evicted. `ran`: UIDs of pods that we have run since.
        """
        self._may_be_outdated, self._other_served = is_new_agent, other_served
        if self._checkpoint is not None:
            self._desired.restore(self._checkpoint.load())
            root_dir, restored = self._actor.settings.root_dir, self._desired.restored
            self._unvouched = {
                uid for uid in restored if (other_served and uid not in ran) or not has_directory(root_dir, uid)
            }
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
            return self._alone and uid not in self._unvouched
        return self._node_known or not self._desired.from_api(uid)

    def awaits_server(self, uid: str, *, runs: bool) -> bool:
        """Return True for a pod of the checkpoint that must not get a worker yet, even if it has a sandbox.

        If it does not run, another node agent may have ended it, and only the server can still want it. If it runs, the
        server may know its readiness better.
        """
        if uid not in self._desired.restored:
            return False
        if not runs:
            return uid in self._unvouched
        pod = self._desired.pods[uid]
        ends = pod.metadata.deletion_timestamp is not None or self._admission_queue.stays_rejected(uid)
        return self._may_be_outdated and not self._alone and not ends and _is_probed(pod)

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
        self._admission_queue.node_refreshed(uid)

    def _read_until_known(self, again_s: float) -> None:
        if self._node is not None and not self._node_known:
            self._node.read_soon()
            self._actor.after(again_s, self._read_until_known, min(ASK_CAP_S, 2 * again_s))

    def _node_read(self, known: KnownNode | None) -> None:
        before = self._admission_queue.node
        self._apply(known)
        if not self._node_known:
            self._node_known = True
            self._admission_queue.advance()
        if self._admission_queue.node != before:
            self._on_node_changed()

    def _apply(self, known: KnownNode | None) -> None:
        self._known = known or self._known
        if known is not None:
            self._admission_queue.node = replace(
                self._admission_queue.node, labels=dict(known.labels), taints=known.taints
            )
            self._count_resources()

    def set_device_resources(self, names: Collection[str]) -> None:
        """Extended resources of device plugins, which the resources actor counts. Admission counts the others."""
        self._plugins = names
        self._count_resources()

    def _count_resources(self) -> None:
        if self._known is not None:
            counted = self._known.counted(self._plugins)
            self._admission_queue.node = replace(self._admission_queue.node, allocatable=counted | self._machine)

    def _go_alone(self) -> None:
        restored = self._desired.restored
        ended = [uid for uid in restored if uid in self._unvouched and not self._runs(uid)]
        if len(ended) < len(restored):
            log.warning("the API server does not answer: the pods accepted before run again")
        if ended:
            names = sorted(full_name(self._desired.pods[uid]) for uid in ended)
            why = _MAY_HAVE_ENDED if self._other_served else _HAS_ENDED
            log.warning(
                "%d pods accepted before %s, and wait for the API server: %s",
                len(names), why, ", ".join(names[:SHOWN]),
            )  # fmt: skip
        self._alone = True
        self._on_alone()
        self._admission_queue.advance()

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


def _is_probed(pod: Pod) -> bool:
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return any(one.readiness_probe is not None or one.startup_probe is not None for one in containers)

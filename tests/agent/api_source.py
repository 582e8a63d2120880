"""A stand-in for the API server as a source of pods of a running agent.

It tells pod_workers what a watch of the API would make of it, as config does for manifests: `PodUpdate(source="api")`
with pods that have a UID, a generation, a deletionTimestamp. Like config it is level-triggered: a pod_workers that
starts again gets everything. And like the API server it lets go of a deleted pod once the node has ended it.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import zmq
from msgspec.structs import replace

from actors.config.defaulting.defaults import default_pod
from actors.config.pods.static_pods import mark_seen
from proto.agent.supervisor import PeerStates, Started
from proto.pods.pod_workers import ListPodWorkers, PodUpdate
from proto.pods.status import ListPods
from proto.v1 import Pod, PodCondition, from_dict
from proto.wire import codec
from proto.wire.envelope import Kind
from proto.wire.errors import ActorError
from supervisor.sockets.client import CannotReach, Client
from tests.agent.agent import Agent
from tests.harness import wait_for

SOURCE = "api"
FINALIZE_S = 0.05

Op = Literal["SET", "ADD", "UPDATE", "DELETE", "REMOVE", "RECONCILE"]


class ApiSource:
    """The API's pods of one node, by name. The agent must have been made with `Agent(..., api=True)`."""

    def __init__(self, agent: Agent, pods: Mapping[str, Pod] | None = None) -> None:
        """`pods`: the pods of the start; pod_workers is told of all at once."""
        self.agent = agent
        self.pods: dict[str, Pod] = dict(pods or {})
        self.hold: set[str] = set()
        """Names of pods whose objects stay when they are deleted, as one with a finalizer does."""
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._context = zmq.Context()
        self._socket: Any = None
        self._client = Client(agent.run_dir)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._follow, self._finalize)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop. Running pods stay until `Agent.close`."""
        self._stop.set()
        for thread in self._threads:
            thread.join(5)
        with self._lock:
            self._context.destroy(linger=0)
        self._client.close()

    # Actions of a user of the API

    def add(self, pod: Pod | Mapping[str, Any], **meta: Any) -> Pod:
        """Create a pod bound to the node, with the API's defaults. `meta`: fields of its metadata in Python names."""
        given = pod if isinstance(pod, Pod) else from_dict(Pod, dict(pod))
        now = _now()
        stored = default_pod(given)
        metadata = replace(
            stored.metadata,
            **{
                "namespace": stored.metadata.namespace or "default",
                "uid": stored.metadata.uid or str(uuid.uuid4()),
                "creation_timestamp": now,
                "generation": 1,
                **meta,
            },
        )
        spec = replace(
            stored.spec,
            node_name=self.agent.node,
            priority=stored.spec.priority or 0,
            preemption_policy=stored.spec.preemption_policy or "PreemptLowerPriority",
        )
        status = replace(stored.status, phase="Pending")
        stored = mark_seen(replace(stored, metadata=metadata, spec=spec, status=status), SOURCE, now)
        self._store("ADD", stored)
        return stored

    def update(self, name: str, *, labels: Mapping[str, str] | None = None, **spec: Any) -> Pod:
        """Change fields of a pod's spec, in Python names (`active_deadline_seconds=5`), as records or as JSON has them;
        `labels` replaces its labels. The API's defaults are put in again; a changed spec is another generation."""
        pod = self.pods[name]
        types = {field.name: field.type for field in msgspec.structs.fields(pod.spec)}
        changed = replace(pod.spec, **{key: _converted(value, types[key]) for key, value in spec.items()})
        new = default_pod(replace(pod, spec=changed))
        generation = (pod.metadata.generation or 0) + (new.spec != pod.spec)
        new_labels = pod.metadata.labels if labels is None else dict(labels)
        new = replace(new, metadata=replace(new.metadata, labels=new_labels, generation=generation))
        self._store("UPDATE", new)
        return new

    def update_container(self, name: str, container: str, **fields: Any) -> Pod:
        """Change fields of one main, init or ephemeral container: `resources={"limits": {"cpu": "1"}}`, `image=...`."""
        spec = self.pods[name].spec
        found: dict[str, Any] = {}
        for kind in ("containers", "init_containers", "ephemeral_containers"):
            own = getattr(spec, kind)
            if any(one.name == container for one in own):
                types = {field.name: field.type for field in msgspec.structs.fields(own[0])}
                values = {key: _converted(value, types[key]) for key, value in fields.items()}
                found[kind] = tuple(replace(one, **values) if one.name == container else one for one in own)
        assert found, f"pod {name} has no container {container}"
        return self.update(name, **found)

    def set_conditions(self, name: str, **status: str) -> None:
        """Set conditions as another controller does (readiness gates): `set_conditions("web", gate="True")`."""
        pod = self.pods[name]
        conditions = {one.type: one for one in pod.status.conditions}
        conditions |= {kind: PodCondition(type=kind, status=value) for kind, value in status.items()}
        self._store("RECONCILE", replace(pod, status=replace(pod.status, conditions=tuple(conditions.values()))))

    def delete(self, name: str, grace_s: int | None = None) -> None:
        """Ask for the pod's end, as `kubectl delete` does: deletionTimestamp and deletionGracePeriodSeconds.

        A later one may shorten the grace period. The object goes once the node has ended the pod, unless held.
        """
        pod = self.pods[name]
        before = pod.metadata.deletion_grace_period_seconds
        own = pod.spec.termination_grace_period_seconds
        wanted = grace_s if grace_s is not None else (30 if own is None else own)
        wanted = wanted if before is None else min(before, wanted)
        metadata = replace(
            pod.metadata,
            deletion_timestamp=_now(wanted),
            deletion_grace_period_seconds=wanted,
            generation=(pod.metadata.generation or 0) + (before is None),
        )
        self._store("DELETE" if before is None else "UPDATE", replace(pod, metadata=metadata))

    def remove(self, name: str) -> None:
        """Take the object away at once, as `kubectl delete --force --grace-period=0` does."""
        with self._lock:
            pod = self.pods.pop(name)
            self.hold.discard(name)
            self._tell("REMOVE", pod)

    # Views

    def status(self, name: str) -> Pod | None:
        """The pod as the agent shows it now; None when it does not, or shows none at the moment."""
        with contextlib.suppress(ActorError):
            return self._shown().get(name)
        return None

    def _shown(self) -> dict[str, Pod]:
        with self._lock:
            return {pod.metadata.name: pod for pod in reversed(self._client.ask("status", ListPods(), 5.0).pods)}

    def _is_gone(self, name: str) -> bool:
        """Only the agent's word counts: that it says nothing does not mean that it knows nothing."""
        try:
            return name not in self.pods and name not in self._shown()
        except ActorError:
            return False

    def condition(self, name: str, kind: str) -> str:
        """A condition's status; empty when there is none."""
        pod = self.status(name)
        return next((one.status for one in pod.status.conditions if one.type == kind), "") if pod is not None else ""

    def wait_ready(self, *names: str, timeout_s: float = 30.0) -> None:
        """Wait until these are Ready."""
        for name in names:
            self._wait(lambda name=name: self.condition(name, "Ready") == "True", name, timeout_s, "Ready")

    def wait_phase(self, name: str, phase: str, timeout_s: float = 30.0) -> Pod:
        """Wait until the pod is in that phase; the pod."""
        found: Pod = self._wait(
            lambda: (now := self.status(name)) is not None and now.status.phase == phase and now, name, timeout_s, phase
        )
        return found

    def wait_gone(self, *names: str, timeout_s: float = 30.0) -> None:
        """Wait until the agent knows these no more."""
        for name in names:
            self._wait(lambda name=name: self._is_gone(name), name, timeout_s, "gone")

    def _wait(self, condition: Any, name: str, timeout_s: float, what: str) -> Any:
        try:
            return wait_for(condition, timeout_s)
        except AssertionError:
            shown = self.status(name)
            status = shown and shown.status
            raise AssertionError(f"{name} not {what} in {timeout_s:g} s: {status}; log: {self.agent.log}") from None

    # To pod_workers

    def _store(self, op: Op, pod: Pod) -> None:
        with self._lock:
            self.pods[pod.metadata.name] = pod
            self._tell(op, pod)

    def _tell(self, op: Op, *pods: Pod) -> None:
        """Send on one connection, to keep the order. Before it exists nothing is sent: the SET has it all."""
        if self._socket is not None:
            header = codec.encode_header(Kind.TELL, PodUpdate.__name__, SOURCE, 0)
            self._socket.send_multipart([header, codec.encode(PodUpdate(source=SOURCE, op=op, pods=pods))])

    def _follow(self) -> None:
        """Send everything to each incarnation of pod_workers."""
        client = Client(self.agent.run_dir)
        while not self._stop.is_set():
            try:
                for event in client.events():
                    if self._stop.is_set():
                        break
                    if _has_started(event):
                        self._send_all()
            except CannotReach:
                self._stop.wait(0.05)
        client.close()

    def _send_all(self) -> None:
        with self._lock:
            if self._socket is not None:
                self._socket.close(linger=0)  # what waited in it for the last incarnation is in the SET
            self._socket = self._context.socket(zmq.DEALER)
            self._socket.connect(f"ipc://{self.agent.run_dir}/pod_workers.sock")
            self._tell("SET", *self.pods.values())

    def _finalize(self) -> None:
        """Let go of the objects of deleted pods that have ended on the node."""
        client = Client(self.agent.run_dir)
        while not self._stop.wait(FINALIZE_S):
            deleted = {
                pod.metadata.uid: name
                for name, pod in list(self.pods.items())
                if pod.metadata.deletion_timestamp is not None and name not in self.hold
            }
            if not deleted:
                continue
            with contextlib.suppress(ActorError):
                rows = client.ask("pod_workers", ListPodWorkers(), 5.0).pods
                ended = {row.uid for row in rows if row.stage == "terminated"}
                for uid in ended & deleted.keys():
                    self.remove(deleted[uid])
        client.close()


def _has_started(event: Any) -> bool:
    match event:
        case PeerStates():
            return any(peer.name == "pod_workers" and peer.ready for peer in event.peers)
        case Started():
            return bool(event.name == "pod_workers")
    return False


def _converted(value: Any, kind: Any) -> Any:
    """A field's value from its JSON form; a record stays what it is."""
    return msgspec.convert(msgspec.to_builtins(value), kind)


def _now(plus_s: float = 0.0) -> str:
    moment = datetime.datetime.fromtimestamp(time.time() + plus_s, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

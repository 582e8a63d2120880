"""Runs the status actor at a real API server; the test plays config and pod_workers.

A watch sends the API server's pods, as config does. A faulty server between the two makes failures for tests.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import zmq
from msgspec.structs import replace

from actors._kube.connection.kubeconfig import load
from actors._kube.connection.session import Session
from actors._kube.errors import ApiError
from actors._kube.reflector import Listener
from actors.config.sources.api_policy import view_of
from proto.agent.actor import Describe, Description
from proto.pods.status import RemoveApiPods, RemovePod, SetApiPods, SetPod, SetPods, Stage
from proto.v1 import Container, ObjectMeta, Pod, PodCondition, PodSpec, PodStatus, from_dict
from proto.wire import codec
from proto.wire.envelope import Kind
from proto.wire.message import Message
from tests.controlplane import ControlPlane
from tests.harness import ActorProcess, wait_for
from tests.kube.caller import following
from tests.kube.faulty_server import FaultyServer

PODS = "/api/v1/namespaces/default/pods"
STATUSES = f"{PODS}/[^/]+/status"
HASH, MIRROR, SOURCE = "kubernetes.io/config.hash", "kubernetes.io/config.mirror", "kubernetes.io/config.source"


class Cluster(Listener):
    """A node and its status actor. `cp` is the administrator, `faulty` what the actor talks to, `status` the actor."""

    def __init__(self, control_plane: ControlPlane, node: str, directory: Path) -> None:
        self.cp, self.node = control_plane, node
        if control_plane.get(f"/api/v1/nodes/{node}") is None:
            control_plane.call("POST", "/api/v1/nodes", {"metadata": {"name": node}})
        self.faulty = FaultyServer(Session(load(str(control_plane.kubeconfig(node)))))
        self.status = ActorProcess(
            "status", node_name=node, kubeconfig=str(self.faulty.kubeconfig(directory / "kubeconfig"))
        )
        self.pods: dict[str, Pod] = {}
        """As the API server has them, by UID."""
        self.own: dict[str, tuple[Pod, Stage]] = {}
        """As pod_workers would have them, by UID."""
        self._lock = threading.RLock()
        self._listed = threading.Event()
        self._context = zmq.Context()
        self._socket: Any = None
        self._watch = following(
            Session(load(str(control_plane.admin))), "/api/v1/pods", self, {"fieldSelector": f"spec.nodeName={node}"}
        )

    def __enter__(self) -> Cluster:
        self.status.__enter__()
        self._connect()
        self._watch.__enter__()
        assert self._listed.wait(30)
        return self

    def __exit__(self, *exc: object) -> None:
        self._watch.__exit__(None, None, None)
        self.status.__exit__(*exc)
        self.faulty.close()
        self._context.destroy(linger=0)
        for pod in list(self.pods.values()):
            self.remove(pod.metadata.name)

    def reset(self) -> None:
        """Every pod goes, on both sides, and every fault."""
        self.faulty.heal()
        self.own.clear()
        self.set_pods()
        wait_for(self._removed, 20, "every pod goes")
        self.settled()
        self.faulty.calls.clear()

    def _removed(self) -> bool:
        for pod in list(self.pods.values()):
            self.remove(pod.metadata.name)
        return not self.pods

    # As config

    def replaced(self, items: list[dict[str, Any]]) -> None:
        with self._lock:
            self.pods = {pod.metadata.uid: pod for pod in map(_pod, items)}
            self._tell(SetApiPods(pods=tuple(self.pods.values()), full=True))
        self._listed.set()

    def changed(self, kind: str, item: dict[str, Any]) -> None:
        pod = _pod(item)
        with self._lock:
            if kind == "DELETED":
                self.pods.pop(pod.metadata.uid, None)
                self._tell(RemoveApiPods(uids=(pod.metadata.uid,)))
            else:
                self.pods[pod.metadata.uid] = pod
                self._tell(SetApiPods(pods=(pod,)))

    # As pod_workers

    def set_pod(self, pod: Pod, status: PodStatus | None = None, stage: Stage = "sync") -> Pod:
        """Tell the actor of a pod, as pod_workers does."""
        told = replace(pod, status=status) if status is not None else pod
        with self._lock:
            self.own[pod.metadata.uid] = (told, stage)
            self._tell(SetPod(pod=told, stage=stage))
        return told

    def remove_pod(self, pod: Pod) -> None:
        """Tell the actor that nothing of the pod is left on the node."""
        with self._lock:
            del self.own[pod.metadata.uid]
            self._tell(RemovePod(pod_uid=pod.metadata.uid))

    def set_pods(self) -> None:
        """Tell the actor of every pod."""
        with self._lock:
            pods = tuple(pod for pod, _ in self.own.values())
            stages = {uid: stage for uid, (_, stage) in self.own.items() if stage != "sync"}
            self._tell(SetPods(pods=pods, stages=stages))

    def restart(self, *, told: bool = True) -> None:
        """kill -9 of the actor; its peers tell the next one everything."""
        self.status.restart()
        with self._lock:
            self._connect()
            if told:
                self._tell(SetApiPods(pods=tuple(self.pods.values()), full=True))
                self.set_pods()

    def _connect(self) -> None:
        if self._socket is not None:
            self._socket.close(linger=0)
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.connect(f"ipc://{self.status.dir}/status.sock")

    def _tell(self, message: Message) -> None:
        """One connection for all, so that what is told stays in order."""
        self._socket.send_multipart(
            [codec.encode_header(Kind.TELL, type(message).__name__, "test", 0), codec.encode(message)]
        )

    # As a user

    def create(self, name: str, **meta: Any) -> Pod:
        """A pod bound to the node, once the watch has told of it."""
        body = {
            "metadata": {"name": name, **meta},
            "spec": {"nodeName": self.node, "containers": [{"name": "c", "image": "busybox"}]},
        }
        uid = self.cp.call("POST", PODS, body)["metadata"]["uid"]
        wait_for(lambda: uid in self.pods, 10)
        stored = self.cp.call("GET", f"{PODS}/{name}")
        return from_dict(Pod, {"metadata": without_managed(stored["metadata"]), "spec": stored["spec"]})

    def get(self, name: str) -> dict[str, Any]:
        """As stored; empty when there is none."""
        found: dict[str, Any] | None = self.cp.get(f"{PODS}/{name}")
        return found or {}

    def phase(self, name: str) -> str:
        return str(self.get(name).get("status", {}).get("phase", ""))

    def wait_phase(self, name: str, phase: str, timeout_s: float = 20) -> None:
        wait_for(lambda: self.phase(name) == phase, timeout_s, f"{name} {phase}, is {self.phase(name)}")

    def delete(self, name: str, grace_s: int = 30) -> None:
        self.cp.call("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": grace_s})

    def remove(self, name: str) -> None:
        """Away at once, if it is there, finalizers or not."""
        try:
            self.cp.call("PATCH", f"{PODS}/{name}", {"metadata": {"finalizers": None}}, "application/merge-patch+json")
            self.delete(name, 0)
        except ApiError:
            return

    def writes(self, name: str = "[^/]+") -> list[dict[str, Any]]:
        """The status patches that the actor has sent, oldest first."""
        return [one.body["status"] for one in self.faulty.of("PATCH", f"{PODS}/{name}/status")]

    def api_state(self) -> dict[str, Any]:
        """The actor's description of its API sync, after it has handled every earlier message."""
        with self._lock:
            head = codec.encode_header(Kind.ASK, Describe.__name__, "test", 0, 1)
            self._socket.send_multipart([head, codec.encode(Describe())])
            assert self._socket.poll(10_000)
            described: Description = codec.decode(self._socket.recv_multipart()[1], Description)
        found: dict[str, Any] = described.state["api"]
        return found

    def settled(self) -> None:
        """Wait until the actor has no pending write."""

        def quiet() -> bool:
            api = self.api_state()
            return api["pending"] == 0 and api["seen"] is not None

        wait_for(quiet, 20, "no pending write")


def _pod(item: dict[str, Any]) -> Pod:
    found = {"metadata": without_managed(item["metadata"]), "status": item["status"]}
    return view_of(from_dict(Pod, found))


def without_managed(meta: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in meta.items() if key != "managedFields"}


def running(ready: str = "True", phase: str = "Running", **more: Any) -> PodStatus:
    """A status with one own condition."""
    conditions = (PodCondition(type="Ready", status=ready, reason=None if ready == "True" else "NotYet"),)
    return PodStatus(phase=phase, conditions=conditions, **more)


def static(name: str, version: str = "h1", image: str = "busybox", node: str = "") -> Pod:
    """A static pod as config makes it of a manifest."""
    meta = ObjectMeta(
        namespace="default",
        name=name,
        uid=f"{name}-{version}",
        annotations={HASH: version, SOURCE: "file", "kubernetes.io/config.seen": "2026-01-01T00:00:00.000000001Z"},
    )
    spec = PodSpec(node_name=node, containers=(Container(name="c", image=image),), restart_policy="Always")
    return Pod(metadata=meta, spec=spec, status=running())

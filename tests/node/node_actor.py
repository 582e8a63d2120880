"""The node actor as a process, at a scripted API server with faults."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proto.agent.actor import Describe
from proto.agent.supervisor import AgentHealth, GetAgentHealth
from proto.cri import api_pb2 as cri
from proto.node.eviction import GetPressure, Pressure
from proto.pods.events import RecordEvent
from proto.pods.objects import CsiNodeState, GetCsiNodeState
from proto.pods.pleg import CallRuntime, GetRelistAge, RelistAge, RuntimeAnswer
from proto.wire.message import Message
from tests.harness import ActorProcess
from tests.kube.faulty_server import Call, FaultyServer, Reply, failure

NODES, NODE = "/api/v1/nodes", "/api/v1/nodes/n"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
GOOD = [cri.RuntimeCondition(type=kind, status=True) for kind in ("RuntimeReady", "NetworkReady")]
NODE_IP = "192.0.2.7"
SUPERVISOR = "import os; from actors._host import system; system.pid_of = lambda descriptor: os.getppid(); "
"""The harness is the supervisor, and its descriptor is no pidfd."""
ADDRESS = f"""
from actors._host.node import addresses
kernels = addresses._is_own
addresses._is_own = lambda address: str(address) == {NODE_IP!r} or kernels(address)
"""
"""An interface has the address, also on a machine without a network."""


class Server:
    """A server with the Nodes and Leases calls that a node makes."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}
        self.version: Callable[[dict[str, Any]], dict[str, Any]] = lambda status: status
        """Change a status as a server of another version does."""
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()

    def __call__(self, call: Call) -> Reply:
        with self._lock:
            return self._answer(call)

    def _answer(self, call: Call) -> Reply:
        path = call.path.removesuffix("/status")
        if call.method == "POST":
            path = f"{path}/{call.body['metadata']['name']}"
            if path in self.kept:
                return failure(409, "AlreadyExists")
            return self.put(path, call.body | {"metadata": call.body["metadata"] | {"uid": f"u{next(self._numbers)}"}})
        found = self.kept.get(path)
        if found is None:
            return failure(404, "NotFound")
        if (
            call.method == "PUT"
            and call.body["metadata"].get("resourceVersion") != found["metadata"]["resourceVersion"]
        ):
            return failure(409, "Conflict")
        if call.method == "GET":
            return Reply(200, found)
        return self.put(path, call.body if call.method == "PUT" else self.patched(found, call.body))

    def patched(self, found: Any, patch: Any) -> Any:
        """A strategic merge that suffices for our patches: lists are replaced."""
        if not isinstance(patch, dict) or not isinstance(found, dict):
            return [one for one in patch if one != {"$patch": "replace"}] if isinstance(patch, list) else patch
        merged = {key: self.patched(found.get(key), value) for key, value in patch.items() if value is not None}
        return {key: value for key, value in found.items() if key not in patch} | merged

    def put(self, path: str, obj: dict[str, Any]) -> Reply:
        """Change the Node under the lock, so that a patch under way sees it before or after."""
        with self._lock:
            meta = obj["metadata"] | {"resourceVersion": str(next(self._numbers))}
            status = {"status": self.version(obj["status"])} if "status" in obj else {}
            self.kept[path] = obj | {"metadata": meta} | status
            return Reply(200, self.kept[path])

    def forget(self, *paths: str) -> None:
        """Delete objects in one step. A write under way takes effect before, and does not bring them back."""
        with self._lock:
            for path in paths:
                del self.kept[path]


class Runtime:
    """Answers CRI calls for pleg."""

    def __init__(self) -> None:
        self.up = True
        self.cidrs: list[str] = []

    def __call__(self, call: CallRuntime) -> Message:
        if not self.up:
            raise ConnectionError("no runtime")
        answers: dict[str, Any] = {
            "Version": cri.VersionResponse(runtime_name="containerd", runtime_version="9.9"),
            "Status": cri.StatusResponse(
                status=cri.RuntimeStatus(
                    conditions=[
                        cri.RuntimeCondition(type=f"{kind}Ready", status=True) for kind in ("Runtime", "Network")
                    ]
                )
            ),
            "ListImages": cri.ListImagesResponse(images=[cri.Image(id="i", repo_tags=["a:1"], size=7)]),
            "RuntimeConfig": cri.RuntimeConfigResponse(linux=cri.LinuxRuntimeConfiguration(cgroup_driver=cri.CGROUPFS)),
            "UpdateRuntimeConfig": cri.UpdateRuntimeConfigResponse(),
        }
        if call.rpc == "UpdateRuntimeConfig":
            given = cri.UpdateRuntimeConfigRequest.FromString(call.request)
            self.cidrs.append(given.runtime_config.network_config.pod_cidr)
        return RuntimeAnswer(response=answers[call.rpc].SerializeToString())


class World:
    """The actor with its server and its peers."""

    def __init__(self, server: FaultyServer, process: ActorProcess, runtime: Runtime) -> None:
        self.faulty, self.process, self.runtime = server, process, runtime
        assert isinstance(server.behind, Server)
        self.server = server.behind

    @property
    def node(self) -> dict[str, Any]:
        return self.server.kept.get(NODE, {})

    @property
    def lease(self) -> dict[str, Any]:
        return self.server.kept.get(f"{LEASES}/n", {})

    def ready(self) -> bool:
        found = self.node.get("status", {}).get("conditions", ())
        return any((one["type"], one["status"]) == ("Ready", "True") for one in found)

    def reasons(self) -> list[str]:
        return [one.reason for one in self.process.peers["events"].of(RecordEvent)]

    def state(self) -> dict[str, Any]:
        return self.process.ask(Describe()).state

    def forget_run(self) -> None:
        """The next start is that of another agent, which registers the node."""
        Path(self.process.settings.run_dir, "node-registered.json").unlink(missing_ok=True)

    def renewed(self) -> str:
        return str(self.lease.get("spec", {}).get("renewTime", ""))


@contextmanager
def world(
    server: FaultyServer, tmp_path: Path, *, peers: dict[str, dict[Any, Any]] | None = None, prelude: str = "",
    **settings: Any,
) -> Iterator[World]:  # fmt: skip
    """Start the actor with its server. `peers`: further peers and their answers; `prelude`: code of its process."""
    fields: dict[str, Any] = {
        "kubeconfig": str(server.kubeconfig(tmp_path / "kubeconfig")),
        "node_name": "n",
        "node_ip": NODE_IP,
        "node_status_update_frequency_s": 0.5,
        "node_lease_duration_s": 2.0,
        "make_iptables_util_chains": False,
    }
    runtime = Runtime()
    names = ("pleg", "eviction", "events", "volume", "objects", "pod_workers", "certificates", *(peers or {}))
    process = ActorProcess("node", None, names, prelude=f"{SUPERVISOR}\n{ADDRESS}\n{prelude}\n", **(fields | settings))
    for name, answers in (peers or {}).items():
        process.peers[name].answers.update(answers)
    process.peers["pleg"].answers[CallRuntime] = runtime
    process.peers["eviction"].answers[GetPressure] = lambda _: Pressure(conditions=())
    process.peers["pleg"].answers[GetRelistAge] = lambda _: RelistAge(age_s=1.0)
    assert isinstance(server.behind, Server)
    kept = server.behind.kept
    process.peers["objects"].answers[GetCsiNodeState] = lambda _: CsiNodeState(written=NODE in kept)  # the Node owns it
    process.supervisor.answers[GetAgentHealth] = lambda _: AgentHealth(degraded=(), configuration="")
    with process:
        yield World(server, process, runtime)


OWN = ("KubeletConfigOk", "KubeletDegraded", "KubeletStorageError")
"""Conditions that the kubelet does not have."""

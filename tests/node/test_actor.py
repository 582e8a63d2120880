"""The node actor at a scripted API server with faults: its writes, and its recovery."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from actors.node.registration import CLUSTER_PATH
from proto.agent.actor import Describe
from proto.agent.settings import Taint
from proto.agent.supervisor import AgentHealth, GetAgentHealth, Started
from proto.agent.tracing import EndedSpan, RecordSpans
from proto.cri import api_pb2 as cri
from proto.node.certificates import SetNodeAddresses
from proto.node.eviction import GetPressure, Pressure
from proto.node.node import Bootstrapped, SetDevices, SetVolumesInUse
from proto.pods.events import RecordEvent
from proto.pods.objects import CsiNodeState, GetCsiNodeState
from proto.pods.pleg import CallRuntime, GetRelistAge, RelistAge, RuntimeAnswer
from proto.pods.pod_workers import SetHostIPs
from proto.pods.volume import VolumesInUseReported
from proto.wire.message import Message
from tests.harness import ActorProcess, Stalls, wait_for
from tests.kube.faulty_server import Call, FaultyServer, Half, Reply, Reset, Stall, failure

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
OTHER = {"machineID": "m-other", "systemUUID": "s-other", "bootID": "b-other"}


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


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer(Server()) as one:
        yield one


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


def test_new_node_is_registered_with_its_settings_and_an_event(server: FaultyServer, tmp_path: Path) -> None:
    taint = Taint(key="dedicated", effect="NoSchedule", value="ci")
    settings = {"node_labels": {"disk": "fast", "kubernetes.io/hostname": "other"}, "register_with_taints": (taint,)}
    with world(server, tmp_path, provider_id="cloud://7", **settings) as one:
        wait_for(one.ready, 20)
        labels = one.node["metadata"]["labels"]
        assert (labels["disk"], labels["kubernetes.io/hostname"]) == ("fast", "other")
        assert one.node["spec"] == {
            "taints": [{"key": "dedicated", "value": "ci", "effect": "NoSchedule"}], "providerID": "cloud://7",
        }  # fmt: skip
        assert one.node["status"]["images"] == [{"names": ["a:1"], "sizeBytes": 7}]
        wait_for(one.reasons, 10)
        assert one.reasons() == ["NodeReady"], "that it was not at first is none"
        before = one.renewed()
        wait_for(lambda: one.renewed() > before, 10, "the Lease is renewed")
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": one.node["metadata"]["uid"]}
        wait_for(lambda: one.lease["metadata"].get("ownerReferences") == [owner], 10)


def shape(value: Any, path: str = "") -> set[str]:
    """Every path to a plain value; the items of a list share one."""
    if isinstance(value, dict):
        return {found for key, inner in value.items() for found in shape(inner, f"{path}.{key}")}
    if isinstance(value, list):
        return {found for inner in value for found in shape(inner, f"{path}[]")}
    return {path}


BY_OTHERS = {
    f".metadata.{name}"
    for name in ("creationTimestamp", "resourceVersion", "uid", "annotations.node.alpha.kubernetes.io/ttl")
}
"""Written by the API server, or by a controller."""


OWN = ("KubeletConfigOk", "KubeletDegraded", "KubeletStorageError")
"""Conditions that the kubelet does not have."""


def test_node_and_lease_have_every_field_of_the_kubelets(server: FaultyServer, tmp_path: Path) -> None:
    golden = json.loads(Path(__file__).with_name("golden.json").read_text())
    with world(server, tmp_path) as one:
        wait_for(one.ready, 20)
        wait_for(lambda: one.lease.get("metadata", {}).get("ownerReferences"), 30, "the Lease's owner")
        ours, theirs = shape(one.node) - BY_OTHERS, shape(golden["node"]) - BY_OTHERS
        own_huge_pages = {path for path in ours | theirs if "hugepages" in path}
        assert (ours ^ theirs) - own_huge_pages == {".apiVersion", ".kind"} & (ours ^ theirs)
        assert shape(one.lease) - BY_OTHERS == shape(golden["lease"]) - BY_OTHERS
        texts = ("type", "status", "reason", "message")
        conditions = [
            [[each[name] for name in texts] for each in node["status"]["conditions"] if each["type"] not in OWN]
            for node in (one.node, golden["node"])
        ]
        assert conditions[0] == conditions[1]
        assert one.node["status"]["daemonEndpoints"] == golden["node"]["status"]["daemonEndpoints"]
        assert one.node["status"]["declaredFeatures"] == golden["node"]["status"]["declaredFeatures"]


def test_actor_restart_repeats_no_event(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path) as one:
        wait_for(lambda: one.state()["status_age_s"] is not None, 20)
        wait_for(lambda: "NodeReady" in one.reasons(), 20)
        runtime, uid = one.reasons(), one.node["metadata"]["uid"]
        for _ in range(2):
            one.process.restart()
            before = one.renewed()
            wait_for(lambda before=before: one.renewed() > before, 10)
            wait_for(lambda: one.state()["status_age_s"] is not None, 10)
        assert one.reasons() == runtime
        assert one.node["metadata"]["uid"] == uid


def test_restart_writes_no_status_in_which_nothing_changed(server: FaultyServer, tmp_path: Path) -> None:
    assert isinstance(server.behind, Server)
    # A server that drops a field and has devices and volumes, which their actors have not told the next incarnation.
    server.behind.version = lambda status: {key: value for key, value in status.items() if key != "declaredFeatures"}
    with world(server, tmp_path) as one:
        wait_for(one.ready, 20)
        one.process.tell(SetDevices(capacity={"vendor.test/gpu": 2}, allocatable={"vendor.test/gpu": 1}))
        one.process.tell(SetVolumesInUse(volumes=("kubernetes.io/csi/d^a",)))
        wait_for(lambda: "vendor.test/gpu" in one.node["status"]["capacity"], 20)
        wait_for(lambda: one.node["status"].get("volumesInUse"), 20)
        for _ in range(2):
            before = wait_for(lambda: settled(one), 10)
            one.process.restart()
            wait_for(lambda: one.state()["status_age_s"] is not None, 10)
            assert one.node == before


def settled(one: World) -> dict[str, Any]:
    """The Node once its last write is saved."""
    path = Path(one.process.settings.root_dir, "nodevisor", "node.json")
    before = one.node
    time.sleep(1.1)  # two periods of the status
    return before if one.node == before and path.exists() else {}


@pytest.mark.parametrize("ready", [True, False])
def test_restart_beside_a_silent_runtime_waits_to_report(server: FaultyServer, tmp_path: Path, ready: bool) -> None:
    with world(server, tmp_path, node_status_update_frequency_s=1.0) as one:
        wait_for(one.ready, 20)
        if not ready:
            one.runtime.up = False
            wait_for(lambda: not one.ready(), 20)
        one.process.kill()  # first: it reports a runtime that is down
        one.runtime.up = False
        before = one.ready()
        one.process.start()
        wait_for(lambda: one.state()["last_error"] or not before, 20)
        assert one.ready() is before is ready
        one.runtime.up = True
        wait_for(one.ready, 20)


def test_conditions_cordon_reboot_and_lost_runtime_are_events(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path) as one:
        wait_for(lambda: "NodeReady" in one.reasons(), 20)
        one.runtime.up = False
        wait_for(lambda: one.reasons()[-1] == "NodeNotReady", 20)
        wait_for(lambda: one.node["status"]["conditions"][-1]["message"] == "container runtime is down", 10)
        one.runtime.up = True
        wait_for(lambda: one.reasons()[-1] == "NodeReady", 20)
        one.server.put(NODE, one.node | {"spec": {"unschedulable": True}})
        wait_for(lambda: one.reasons()[-1] == "NodeNotSchedulable", 20)
        one.server.put(NODE, one.node | {"spec": {}})
        wait_for(lambda: one.reasons()[-1] == "NodeSchedulable", 20)
        info = one.node["status"]["nodeInfo"]
        one.process.kill()
        one.server.put(NODE, one.node | {"status": one.node["status"] | {"nodeInfo": info | {"bootID": "before"}}})
        one.process.start()
        wait_for(lambda: "Rebooted" in one.reasons(), 20)
        wait_for(lambda: one.node["status"]["nodeInfo"] == info, 10)


def test_return_of_a_lost_node_is_one_event(server: FaultyServer, tmp_path: Path) -> None:
    """The node controller sets the conditions to Unknown when heartbeats stay away."""
    with world(server, tmp_path) as one:
        wait_for(lambda: one.reasons() == ["NodeReady"], 20)
        for number in (2, 3):
            status = one.node["status"]
            lost = [each | {"status": "Unknown", "reason": "NodeStatusUnknown"} for each in status["conditions"]]
            one.server.put(NODE, one.node | {"status": status | {"conditions": lost}})
            wait_for(one.ready, 20)
            wait_for(lambda number=number: len(one.reasons()) >= number, 10, "the event")
        one.server.put(NODE, one.node | {"metadata": one.node["metadata"] | {"labels": {}}})
        wait_for(lambda: one.node["metadata"]["labels"], 20, "another write")
        one.server.put(NODE, one.node | {"spec": {"unschedulable": True}})
        wait_for(lambda: one.reasons()[-1] == "NodeNotSchedulable", 20)
        assert one.reasons() == [*["NodeReady"] * 3, "NodeNotSchedulable"]


def condition(one: World, kind: str) -> tuple[str, str, str]:
    """(status, reason, message)"""
    found = next(each for each in one.node["status"]["conditions"] if each["type"] == kind)
    return found["status"], found["reason"], found["message"]


def test_agents_own_problems_are_conditions(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path) as one:
        wait_for(one.ready, 20)
        assert [condition(one, kind)[:2] for kind in OWN] == [
            ("True", "ConfigurationInForce"), ("False", "ActorsServing"), ("False", "StateWritable"),
        ]  # fmt: skip
        own = Path(one.process.settings.root_dir, "nodevisor")
        probe = own / "write-probe"
        wait_for(lambda: not probe.exists() and make(probe), 10)
        answer = AgentHealth(degraded=("probe", "volume"), configuration="rolled back: probe died")
        one.process.supervisor.answers[GetAgentHealth] = lambda _: answer
        wait_for(lambda: condition(one, OWN[2])[0] == "True", 10)
        wait_for(lambda: condition(one, OWN[1])[0] == "True", 10)
        assert [condition(one, kind) for kind in OWN] == [
            ("False", "ConfigurationNotInForce", "rolled back: probe died"),
            ("True", "ActorsDegraded", "actors do not stay in service: probe, volume"),
            ("True", "StateNotWritable", f"cannot write {probe}: Is a directory"),
        ]
        assert one.ready(), "pods still run"
        probe.rmdir()
        wait_for(lambda: condition(one, OWN[2])[0] == "False", 10)


def make(directory: Path) -> bool:
    with contextlib.suppress(FileExistsError):
        directory.mkdir()
    return directory.is_dir()


def test_node_is_ready_once_its_csi_node_is_written(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path) as one:
        written = threading.Event()
        one.process.peers["objects"].answers[GetCsiNodeState] = lambda _: CsiNodeState(written=written.is_set())
        one.process.kill()
        one.server.kept.pop(NODE, None)
        one.forget_run()
        one.process.start()
        wait_for(lambda: one.node and condition(one, "Ready")[2] == "CSINode is not yet initialized", 10)
        written.set()
        wait_for(one.ready, 20)
        asked = len(one.process.peers["objects"].of(GetCsiNodeState))
        age_s = one.state()["status_age_s"]
        wait_for(lambda: one.state()["status_age_s"] != age_s, 10)
        assert len(one.process.peers["objects"].of(GetCsiNodeState)) == asked


def test_old_list_of_pods_makes_the_node_not_ready(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path) as one:
        wait_for(one.ready, 20)
        one.process.peers["pleg"].answers[GetRelistAge] = lambda _: RelistAge(age_s=181.5)
        wait_for(lambda: not one.ready(), 10)
        text = "PLEG is not healthy: pleg was last seen active 3m1s ago; threshold is 3m0s"
        assert condition(one, "Ready")[2] == text


def test_machine_labels_are_restored_while_it_runs(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path) as one:
        wait_for(one.ready, 20)
        given = one.node["metadata"]["labels"]
        others = {"kubernetes.io/hostname": "else", "team": "a"}
        changes = [{"kubernetes.io/os": "dummyOS"}, {"kubernetes.io/arch": "dummyArch"}]
        for change in changes:
            one.server.put(NODE, one.node | {"metadata": one.node["metadata"] | {"labels": given | others | change}})
            wait_for(lambda: one.node["metadata"]["labels"] == given | others, 20)
        one.server.put(NODE, one.node | {"metadata": one.node["metadata"] | {"labels": {}}})
        wait_for(lambda: one.node["metadata"]["labels"].keys() == {"kubernetes.io/os", "kubernetes.io/arch"}, 20)


def test_runtime_gets_pod_cidr_again_after_it_was_away(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path) as one:
        wait_for(one.ready, 20)
        one.server.put(NODE, one.node | {"spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24", "fd00::/64"]}})
        wait_for(lambda: one.runtime.cidrs == ["10.1.0.0/24,fd00::/64"], 10)
        one.runtime.up = False
        wait_for(lambda: one.reasons()[-1] == "NodeNotReady", 20)
        one.runtime.up = True
        wait_for(lambda: len(one.runtime.cidrs) == 2, 10)


def test_configured_pod_cidr_is_given_until_the_node_has_one(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path, pod_cidr="10.9.0.0/24") as one:
        wait_for(one.ready, 20)
        wait_for(lambda: one.runtime.cidrs == ["10.9.0.0/24"], 10)
        one.server.put(NODE, one.node | {"spec": {"podCIDRs": ["10.1.0.0/24"]}})
        wait_for(lambda: one.runtime.cidrs[1:] == ["10.1.0.0/24"], 10)


def test_standalone_runtime_gets_the_configured_pod_cidr(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path, kubeconfig="", pod_cidr="10.9.0.0/24,fd00::/64") as one:
        wait_for(lambda: one.state()["pod_cidr"] == "10.9.0.0/24,fd00::/64", 10)
        one.runtime.up = False
        wait_for(lambda: not one.state()["pod_cidr"], 10)
        one.runtime.up = True
        wait_for(lambda: len(one.runtime.cidrs) == 2, 10)


def test_deleted_node_stays_away_until_the_agent_restarts(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path) as one:
        wait_for(one.ready, 20)
        wait_for(one.renewed, 10)
        before = one.node["metadata"]["uid"]
        one.server.forget(NODE, f"{LEASES}/n")
        wait_for(lambda: "restart the agent to register it again" in one.state()["last_error"], 20)
        one.process.restart()
        wait_for(lambda: "restart the agent to register it again" in one.state()["last_error"], 20)
        looks = len(server.of("GET", NODE))
        wait_for(lambda: len(server.of("GET", NODE)) >= looks + 4, 20, "looks for the Node")
        assert not one.node
        assert not one.lease, "its owner is gone"
        assert not one.state()["registered"]
        one.server.put(NODE, {"metadata": {"name": "n", "uid": "made-by-hand"}, "spec": {}})
        wait_for(one.ready, 20)
        wait_for(one.renewed, 20)
        assert one.lease["metadata"]["ownerReferences"][0]["uid"] == "made-by-hand"
        one.process.kill()
        one.server.forget(NODE)
        one.forget_run()
        one.process.start()
        wait_for(one.ready, 20)
        assert one.node["metadata"]["uid"] not in (before, "made-by-hand")


def test_lease_without_its_node_is_not_made_again(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path, node_status_update_frequency_s=8.0, node_lease_duration_s=8.0) as one:
        wait_for(one.ready, 20)
        wait_for(one.renewed, 10)
        written = len(server.of("PATCH", f"{NODE}/status"))
        server.on("PATCH", f"{NODE}/status", Stall())
        one.process.tell(SetVolumesInUse(volumes=("v",), number=1))
        wait_for(lambda: len(server.of("PATCH", f"{NODE}/status")) > written, 10, "the status loop hangs")
        one.server.forget(NODE, f"{LEASES}/n")
        wait_for(lambda: one.lease or "NotFound" in one.state()["lease_error"], 20)
        assert not one.lease
        server.release()
        one.server.put(NODE, {"metadata": {"name": "n", "uid": "made-by-hand"}, "spec": {}})
        wait_for(one.renewed, 20)
        assert one.lease["metadata"]["ownerReferences"][0]["uid"] == "made-by-hand"


@pytest.mark.parametrize("killed", [False, True])
def test_node_joins_anew_when_the_server_has_lost_its_data(server: FaultyServer, tmp_path: Path, killed: bool) -> None:
    assert isinstance(server.behind, Server)
    # Before the actor: it asks for the cluster's identity in a few tries only.
    server.behind.put(CLUSTER_PATH, {"metadata": {"name": "kubernetes", "uid": "first"}, "spec": {}})
    with world(server, tmp_path) as one:
        wait_for(one.ready, 20)
        before = one.node["metadata"]["uid"]
        kept = Path(one.process.settings.run_dir, "node-registered.json")
        wait_for(lambda: kept.exists() and "first" in kept.read_text(), 10)
        if killed:
            one.process.restart()
            wait_for(one.ready, 20)
        one.server.forget(NODE)
        one.server.put(CLUSTER_PATH, {"metadata": {"name": "kubernetes", "uid": "second"}, "spec": {}})
        wait_for(one.ready, 20)
        assert one.node["metadata"]["uid"] != before
        wait_for(lambda: "second" in kept.read_text(), 10)


@pytest.mark.parametrize("killed", [False, True])
def test_deleted_node_is_registered_again_after_a_bootstrap(server: FaultyServer, tmp_path: Path, killed: bool) -> None:
    with world(server, tmp_path) as one:
        wait_for(one.ready, 20)
        before = one.node["metadata"]["uid"]
        wait_for(lambda: Path(one.process.settings.run_dir, "node-registered.json").exists(), 10)
        one.server.forget(NODE)
        wait_for(lambda: "restart the agent to register it again" in one.state()["last_error"], 20)
        one.process.tell(Bootstrapped())
        if killed:
            wait_for(one.ready, 20)
            one.process.restart()
        wait_for(one.ready, 20)
        assert one.node["metadata"]["uid"] != before


def test_volumes_in_use_are_confirmed_once_the_node_has_them(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path, node_status_update_frequency_s=60.0) as one:
        wait_for(one.ready, 20)
        names = ("kubernetes.io/csi/d^b", "kubernetes.io/csi/d^a")
        one.process.tell(SetVolumesInUse(volumes=names, number=7))
        (back,) = wait_for(lambda: one.process.peers["volume"].of(VolumesInUseReported), 10)
        assert one.node["status"]["volumesInUse"] == ["kubernetes.io/csi/d^a", "kubernetes.io/csi/d^b"]
        assert (back.volumes, back.number) == (tuple(sorted(names)), 7)
        one.process.tell(SetVolumesInUse(volumes=names, number=8))
        wait_for(lambda: one.process.peers["volume"].of(VolumesInUseReported)[-1].number == 8, 10, "each list is")
        one.process.tell(SetVolumesInUse(volumes=()))
        wait_for(lambda: not one.node["status"]["volumesInUse"], 10)


def test_devices_are_in_the_next_status_beside_the_machine(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path) as one:
        wait_for(one.ready, 20)
        one.process.tell(SetDevices(capacity={"vendor.test/gpu": 2000}, allocatable={"vendor.test/gpu": 0, "cpu": 7}))
        wait_for(lambda: one.node["status"]["capacity"].get("vendor.test/gpu") == "2000", 20)
        found = one.node["status"]["allocatable"]
        assert (found["vendor.test/gpu"], found["cpu"] != "7") == ("0", True)


GROWING = """
import dataclasses, itertools, sys
from actors._host import first_look
first_look.agent_id = lambda _: "agent"
read, looks = first_look.read_machine, itertools.count(int(sys.argv[2]))
first_look.read_machine = lambda root: dataclasses.replace(read(root), cpus=next(looks))
"""


def test_capacity_stays_while_the_agent_runs(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path, prelude=GROWING) as one:
        wait_for(one.ready, 20)
        registered = one.node["status"]["capacity"]["cpu"]
        one.process.tell(SetDevices(capacity={"vendor.test/gpu": 2}, allocatable={"vendor.test/gpu": 1}))
        wait_for(lambda: "vendor.test/gpu" in one.node["status"]["capacity"], 20)
        assert one.node["status"]["capacity"]["cpu"] == registered
        one.process.restart()
        one.process.tell(SetDevices(capacity={"vendor.test/gpu": 3}, allocatable={"vendor.test/gpu": 1}))
        wait_for(lambda: one.node["status"]["capacity"]["vendor.test/gpu"] == "3", 20)
        assert one.node["status"]["capacity"]["cpu"] == registered, "the other actors know this one"


def test_resource_of_an_administrator_becomes_allocatable(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path) as one:
        wait_for(one.ready, 20)
        one.process.tell(SetDevices(capacity={"vendor.test/gpu": 2}, allocatable={"vendor.test/gpu": 1}))
        wait_for(lambda: "vendor.test/gpu" in one.node["status"]["capacity"], 20)

        def give(**amounts: str) -> None:
            patch = {"status": {"capacity": {"admin.test/dongle": amounts.get("dongle")}}}
            one.server.put(NODE, one.server.patched(one.node, patch))

        def allocatable() -> dict[str, str]:
            found = one.node["status"]["allocatable"]
            return {name.partition("/")[2]: amount for name, amount in found.items() if "/" in name}

        for amount in ("4", "1"):
            give(dongle=amount)
            wait_for(lambda amount=amount: allocatable() == {"gpu": "1", "dongle": amount}, 20)
            assert one.node["status"]["capacity"]["admin.test/dongle"] == amount
        give()
        wait_for(lambda: allocatable() == {"gpu": "1"}, 20)


@pytest.mark.needs("machine ID")
@pytest.mark.parametrize(
    ("other_machine", "had_plugins", "left"), [(True, False, "0"), (True, True, "8"), (False, False, "8")]
)
def test_resources_of_a_replaced_machine_are_reset(
    server: FaultyServer, tmp_path: Path, other_machine: bool, had_plugins: bool, left: str
) -> None:
    with world(server, tmp_path) as one:
        wait_for(one.ready, 20)
        wait_for(lambda: one.state()["status_age_s"] is not None, 20)
        one.process.kill()
        gpus = {"vendor.test/gpu": "8"}
        info = one.node["status"]["nodeInfo"] | ({"systemUUID": "s-before"} if other_machine else {})
        one.server.put(
            NODE, one.server.patched(one.node, {"status": {"capacity": gpus, "allocatable": gpus, "nodeInfo": info}})
        )
        checkpoint = Path(one.process.settings.root_dir, "device-plugins", "kubelet_internal_checkpoint")
        checkpoint.parent.mkdir(parents=True)
        if had_plugins:
            checkpoint.write_text("{}")
        one.forget_run()
        one.process.start()
        wait_for(lambda: one.state()["status_age_s"] is not None, 20)
        found = one.node["status"]
        assert [found[name]["vendor.test/gpu"] for name in ("capacity", "allocatable")] == [left, left]


def test_external_cloud_sets_addresses_and_gets_the_provided_ip(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path, cloud_provider="external") as one:
        wait_for(one.ready, 20)
        assert one.node["spec"]["taints"][0]["key"] == "node.cloudprovider.kubernetes.io/uninitialized"
        note = "alpha.kubernetes.io/provided-node-ip"
        wait_for(lambda: one.node["metadata"]["annotations"].get(note) == "192.0.2.7", 10)
        assert {"type": "InternalIP", "address": "192.0.2.7"} in one.node["status"]["addresses"]
        cloud = [{"type": "ExternalIP", "address": "203.0.113.9"}]
        one.server.put(NODE, one.node | {"status": one.node["status"] | {"addresses": cloud}})
        before = one.renewed()
        wait_for(lambda: one.renewed() > before, 10)
        time.sleep(1.2)  # two looks
        assert one.node["status"]["addresses"] == cloud


@pytest.mark.parametrize(
    ("node_ip", "wanted"),
    [
        ("", [{"type": "Hostname", "address": "n"}]),
        (f" {NODE_IP} ", [{"type": "InternalIP", "address": NODE_IP}, {"type": "Hostname", "address": "n"}]),
    ],
)
def test_node_has_its_own_addresses_until_the_cloud_sets_them(
    server: FaultyServer, tmp_path: Path, node_ip: str, wanted: list[dict[str, str]]
) -> None:
    with world(server, tmp_path, cloud_provider="external", node_ip=node_ip) as one:
        wait_for(one.ready, 20)
        assert one.node["status"]["addresses"] == wanted


@pytest.mark.parametrize("cloud", ["", "external"])
def test_node_ip_of_another_machine_is_not_reported(server: FaultyServer, tmp_path: Path, cloud: str) -> None:
    with world(server, tmp_path, node_ip="127.0.0.1", cloud_provider=cloud) as one:
        wait_for(one.ready, 20)
        wait_for(lambda: one.state()["no_address"].startswith("cannot use --node-ip 127.0.0.1: "), 20)
        assert "addresses" not in one.node["status"]
        assert "alpha.kubernetes.io/provided-node-ip" not in one.node["metadata"]["annotations"]
        before = [{"type": "InternalIP", "address": "203.0.113.9"}]
        one.server.put(NODE, one.node | {"status": one.node["status"] | {"addresses": before}})
        written = len(server.of("PATCH", f"{NODE}/status"))
        one.process.tell(SetVolumesInUse(volumes=("kubernetes.io/csi/d^a",)))
        wait_for(lambda: len(server.of("PATCH", f"{NODE}/status")) > written, 20)
        wait_for(lambda: one.node["status"].get("volumesInUse"), 20)
        assert one.node["status"]["addresses"] == before


def test_peers_are_told_the_addresses_of_the_node(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path, cloud_provider="external", node_ip="") as one:
        pods, certificates = (one.process.peers[name] for name in ("pod_workers", "certificates"))
        wait_for(lambda: [each.ips for each in pods.of(SetHostIPs)] == [()], 20, "the cloud has not said yet")
        cloud = [("ExternalIP", "203.0.113.9"), ("InternalIP", "10.0.0.1"), ("InternalDNS", "n.cloud.test")]
        stored = [{"type": kind, "address": address} for kind, address in cloud]
        one.server.put(NODE, one.node | {"status": one.node["status"] | {"addresses": stored}})
        wait_for(lambda: pods.of(SetHostIPs)[-1].ips == ("10.0.0.1",), 20)
        said = wait_for(lambda: certificates.of(SetNodeAddresses)[1:], 20)
        assert [(each.type, each.address) for each in said[0].addresses] == cloud
        looks = len(server.of("GET", NODE))
        wait_for(lambda: len(server.of("GET", NODE)) >= looks + 3, 20, "looks at the Node")
        assert (len(pods.of(SetHostIPs)), len(certificates.of(SetNodeAddresses))) == (2, 2), "with changes only"
        one.process.publish(Started(name="pod_workers", incarnation=2))
        wait_for(lambda: len(pods.of(SetHostIPs)) == 3, 20, "a new peer is told")
        assert len(certificates.of(SetNodeAddresses)) == 2
        one.process.restart()
        wait_for(lambda: len(certificates.of(SetNodeAddresses)) == 3, 20, "by the next actor, too")
        assert pods.of(SetHostIPs)[-1].ips == ("10.0.0.1",)


def test_node_name_of_another_machine_is_reported(server: FaultyServer, tmp_path: Path) -> None:
    assert isinstance(server.behind, Server)
    with world(server, tmp_path) as one:
        wait_for(lambda: one.state()["status_age_s"] is not None, 20)
        assert one.state()["name_held_by"] == ""
        one.server.put(NODE, one.node | {"status": one.node["status"] | {"nodeInfo": OTHER}})
        wait_for(lambda: "NodeNameConflict" in one.reasons(), 10)
        wait_for(lambda: one.node["status"]["nodeInfo"]["machineID"] != "m-other", 10, "set right, as upstream does")


def test_without_registration_the_actor_waits_for_its_node(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path, register_node=False) as one:
        wait_for(lambda: "NotFound" in one.state()["last_error"], 20)
        assert one.node == {}
        one.server.put(NODE, {"metadata": {"name": "n", "uid": "made-by-hand"}, "spec": {}, "futureField": {"a": 1}})
        wait_for(one.ready, 20)
        assert one.node["futureField"] == {"a": 1}


def of_1_20(status: dict[str, Any]) -> dict[str, Any]:
    return {key: one for key, one in status.items() if key not in ("declaredFeatures", "runtimeHandlers", "features")}


def of_the_future(status: dict[str, Any]) -> dict[str, Any]:
    """Add fields to every object, and change the order and notation of existing ones."""
    conditions = [one | {"observedGeneration": 7} for one in reversed(status.get("conditions", ()))]
    return status | {"conditions": conditions, "nodeInfo": status.get("nodeInfo", {}) | {"moon": "full"}, "tides": [1]}


@pytest.mark.parametrize("version", [of_1_20, of_the_future])
def test_status_that_the_server_changes_is_written_once(
    server: FaultyServer, tmp_path: Path, version: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    assert isinstance(server.behind, Server)
    server.behind.version = version
    with world(server, tmp_path) as one:
        wait_for(one.ready, 20)
        wait_for(lambda: one.state()["status_age_s"] is not None, 20)
        looks = len(server.of("GET", NODE))
        wait_for(lambda: len(server.of("GET", NODE)) >= looks + 4, 20, "looks at the Node")
        assert len(server.of("PATCH", f"{NODE}/status")) <= 2, "the first status, and its first transition at most"


META = {"name": "n", "uid": "u"}
SHAPES = {
    "captive page": Reply(200, {"status": "ok"}),
    "empty": Reply(200, {}),
    "metadata": Reply(200, {"kind": "List", "metadata": "x", "items": [], "status": 5, "spec": "y"}),
    "no metadata": Reply(200, {"metadata": None, "status": {"conditions": "x"}, "spec": {}}),
    "lists": Reply(200, {"metadata": META, "status": [1], "spec": [2]}),
    "conditions": Reply(200, {"metadata": META, "status": {"conditions": [{"type": "Ready"}, 7], "addresses": [{}]}}),
}
"""Answers of something that is no API server."""


def test_every_fault_is_logged_and_leaves_no_lease_gap(server: FaultyServer, tmp_path: Path) -> None:
    faults = {
        "401": failure(401, "Unauthorized"), "403": failure(403, "Forbidden"), "409": failure(409, "Conflict"),
        "410": failure(410, "Gone"), "429": failure(429, "TooManyRequests", retry_after_s=1),
        "500": failure(500, "InternalError"), "reset": Reset(), "lost": Reset(after=True), "half": Half(),
        "html": Reply(200, b"<html>"), "list": Reply(200, b"[]"), "stall": Stall(3), **SHAPES,
    }  # fmt: skip
    with world(server, tmp_path) as one:
        wait_for(one.ready, 20)
        wait_for(one.renewed, 10)
        for name, fault in faults.items():
            server.always("*", "/", fault)
            time.sleep(0.7)
            server.heal()
            before, healed = one.renewed(), time.monotonic()
            with Stalls() as machine:
                wait_for(lambda before=before: one.renewed() > before, 10, f"the Lease after {name}")
            assert time.monotonic() - healed < 5 + machine.longest_s, name
        wait_for(lambda: one.state()["last_error"] == one.state()["lease_error"] == "", 10)
        assert one.process.incarnation == 1
        assert one.ready()


def test_requests_are_spans_only_where_tracing_is_configured(server: FaultyServer, tmp_path: Path) -> None:
    tracing = {"tracing_endpoint": "127.0.0.1:1", "tracing_sampling_rate_per_million": 1_000_000}
    with world(server, tmp_path, peers={"tracing": {}}, **tracing) as one:
        wait_for(one.ready, 20)

        def spans() -> dict[str, EndedSpan]:
            told = one.process.peers["tracing"].of(RecordSpans)
            return {span.context: span for record in told for span in record.spans}

        wait_for(lambda: {"HTTP GET", "HTTP POST", "HTTP PATCH"} <= {span.name for span in spans().values()}, 20)
        ended = spans()  # before the calls are looked at: others follow
        sent = {call.headers.get("traceparent", ""): call for call in list(server.calls)}
        for context, span in ended.items():
            call = sent[context]
            assert (span.name, span.kind, span.parent) == (f"HTTP {call.method}", "client", "")
            assert span.attributes == {"http.request.method": call.method, "url.path": call.path}
        assert any("404" in span.error or "found" in span.error for span in spans().values()), (
            "the Node is not there yet"
        )
    with world(server, tmp_path) as one:
        server.calls.clear()
        wait_for(lambda: server.calls, 20)
        assert not any("traceparent" in call.headers for call in list(server.calls))

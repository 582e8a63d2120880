"""The Node's status at a server with faults: conditions, events, capacity, writes after restarts."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proto.agent.supervisor import AgentHealth, GetAgentHealth
from proto.agent.tracing import EndedSpan, RecordSpans
from proto.node.node import SetDevices, SetVolumesInUse
from proto.pods.objects import CsiNodeState, GetCsiNodeState
from proto.pods.pleg import GetRelistAge, RelistAge
from proto.pods.volume import VolumesInUseReported
from tests.harness import Stalls, wait_for
from tests.kube.faulty_server import FaultyServer, Half, Reply, Reset, Stall, failure
from tests.node.node_actor import NODE, OWN, Server, World, world


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

"""Pods of the checkpoint run while the API server does not answer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from actors.pod_workers.api_pods import api_pod_checkpoint
from actors.pod_workers.api_pods.api_admission_gate import ApiAdmissionGate
from proto.pods.pod_workers import PodUpdate
from proto.v1 import Pod, Probe
from tests.pod_workers.admission.pods import pod
from tests.pod_workers.admission.test_admission_queue import QueueHarness


class Actor:
    """Has settings, and keeps the timers."""

    def __init__(self, root: Path) -> None:
        self.settings = SimpleNamespace(root_dir=str(root), pod_sources=("api",), kubeconfig="", node_name="n")
        self.timers: list[Any] = []

    def after(self, delay_s: float, function: Any) -> None:  # noqa: ARG002 - the actor's signature
        self.timers.append(function)


@pytest.fixture
def gate(tmp_path: Path) -> tuple[ApiAdmissionGate, QueueHarness, Actor]:
    """After a start with the accepted pods `kept` and `ended`; another node agent has ended the second."""
    api_pod_checkpoint.write(str(tmp_path), {"kept": pod("kept"), "ended": pod("ended")})
    (tmp_path / "pods" / "ended").rmdir()
    harness, actor = QueueHarness(), Actor(tmp_path)
    gate = ApiAdmissionGate(actor, harness.desired, harness.admission_queue)  # type: ignore[arg-type]
    gate.recover()
    return gate, harness, actor


def may_decide(gate: ApiAdmissionGate) -> list[str]:
    return [uid for uid in ("kept", "ended") if gate.may_decide(uid)]


def test_only_a_pod_with_its_directory_runs_alone(gate, caplog) -> None:
    one, _, actor = gate
    assert may_decide(one) == []
    one.begin()
    actor.timers.pop()()
    assert may_decide(one) == ["kept"]
    assert [one.awaits_server(uid, runs=False) for uid in ("kept", "ended")] == [False, True]
    assert "the pods accepted before run again" in caplog.text
    assert "1 pods accepted before have no directory" in caplog.text
    assert "ended_" in caplog.text


def test_the_server_may_want_an_ended_pod_after_all(gate) -> None:
    one, harness, _ = gate
    harness.desired.apply(PodUpdate(source="api", op="SET", pods=(pod("kept"), pod("ended"))))
    assert may_decide(one) == ["kept", "ended"]
    assert not one.awaits_server("ended", runs=False)


def test_a_restored_pod_that_was_not_begun_runs_alone(tmp_path: Path) -> None:
    """It has no volume and no sandbox yet. The directory came with its file."""
    api_pod_checkpoint.write(str(tmp_path), {"new": pod("new")})
    harness, actor = QueueHarness(), Actor(tmp_path)
    gate = ApiAdmissionGate(actor, harness.desired, harness.admission_queue)  # type: ignore[arg-type]
    gate.recover()
    gate.begin()
    actor.timers.pop()()
    assert gate.may_decide("new")


def probed(uid: str, **meta: Any) -> Pod:
    found = pod(uid)
    containers = tuple(replace(one, readiness_probe=Probe()) for one in found.spec.containers)
    spec, metadata = replace(found.spec, containers=containers), replace(found.metadata, **meta)
    return replace(found, spec=spec, metadata=metadata)


@pytest.mark.parametrize("is_new_agent", [True, False])
def test_readiness_of_a_start_comes_from_the_server(tmp_path: Path, is_new_agent: bool) -> None:
    """A kubelet may have found the pods ready or unready meanwhile, but not if only the actor was down."""
    pods = (probed("probed"), pod("plain"), probed("ends", deletion_timestamp="now"), probed("evicted"))
    api_pod_checkpoint.write(str(tmp_path), {one.metadata.uid: one for one in pods})
    harness, actor, called = QueueHarness(), Actor(tmp_path), []
    queue = harness.admission_queue
    queue.rejected["evicted"] = ("Evicted", "m")
    gate = ApiAdmissionGate(actor, harness.desired, queue, lambda: called.append(waiting()))  # type: ignore[arg-type]

    def waiting() -> list[str]:
        return [one.metadata.uid for one in pods if gate.awaits_server(one.metadata.uid, runs=True)]

    gate.recover(is_new_agent=is_new_agent)
    assert waiting() == (["probed"] if is_new_agent else [])
    gate.begin()
    actor.timers.pop()()
    assert called == [[]], "not for ever"


def test_a_pod_that_waits_for_its_worker_holds_its_share() -> None:
    harness = QueueHarness()
    harness.desired.apply(PodUpdate(source="api", op="SET", pods=(pod("runs", requests={"cpu": "2"}),)))
    harness.admission_queue.count(["runs"])
    harness.want(pod("new", requests={"cpu": "1"}))
    assert harness.said()[-1] == "reject new: OutOfcpu"
    harness.admission_queue.add(["runs"], lambda _: True, lambda _: False)
    assert harness.said() == ["run runs"]
    harness.drop("runs")
    assert harness.admission_queue.shares() == []


def test_after_another_agent_only_running_pods_go_on(tmp_path: Path, caplog) -> None:
    """It leaves the directories of pods that it has evicted."""
    api_pod_checkpoint.write(str(tmp_path), {"runs": pod("runs"), "evicted": pod("evicted")})
    harness, actor, runs = QueueHarness(), Actor(tmp_path), {"runs"}
    gate = ApiAdmissionGate(actor, harness.desired, harness.admission_queue, runs=runs.__contains__)  # type: ignore[arg-type]
    gate.recover(other_served=True)
    gate.begin()
    actor.timers.pop()()
    assert [gate.awaits_server(uid, runs=uid in runs) for uid in ("runs", "evicted")] == [False, True]
    assert not gate.may_decide("evicted")
    assert "1 pods accepted before do not run" in caplog.text
    assert "evicted_" in caplog.text
    assert "runs_" not in caplog.text
    harness.desired.apply(PodUpdate(source="api", op="SET", pods=(pod("runs"), pod("evicted"))))
    assert gate.may_decide("evicted")


def test_pods_that_ran_since_another_agent_go_on(tmp_path: Path) -> None:
    """The server is still away, and a reboot has ended them."""
    api_pod_checkpoint.write(str(tmp_path), {"ran": pod("ran"), "evicted": pod("evicted")})
    harness, actor = QueueHarness(), Actor(tmp_path)
    gate = ApiAdmissionGate(actor, harness.desired, harness.admission_queue)  # type: ignore[arg-type]
    gate.recover(other_served=True, ran={"ran"})
    gate.begin()
    actor.timers.pop()()
    assert [gate.awaits_server(uid, runs=False) for uid in ("ran", "evicted")] == [False, True]
    assert gate.may_decide("ran")


def test_probed_pod_that_another_agent_ran_waits_for_the_server(tmp_path: Path) -> None:
    """Our eviction of it is old: it does not end."""
    api_pod_checkpoint.write(str(tmp_path), {"old": probed("old"), "ours": probed("ours")})
    harness, actor = QueueHarness(), Actor(tmp_path)
    harness.admission_queue.rejected.update(dict.fromkeys(("old", "ours"), ("Evicted", "m")))
    harness.admission_queue.served_by_other_agent.add("old")
    gate = ApiAdmissionGate(actor, harness.desired, harness.admission_queue)  # type: ignore[arg-type]
    gate.recover(is_new_agent=True, other_served=True)
    assert [gate.awaits_server(uid, runs=True) for uid in ("old", "ours")] == [True, False]

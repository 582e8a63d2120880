"""Admission takes labels, taints and extended resources from our own Node."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.objects.api.resources import api_object
from actors.pod_workers.admission.admission_queue import AdmissionQueue
from actors.pod_workers.api_pods.api_admission_gate import ApiAdmissionGate
from actors.pod_workers.api_pods.own_node import KnownNode
from tests.pod_workers.admission.pods import pod
from tests.pod_workers.admission.test_admission_queue import QueueHarness

GPU, DONGLE = "vendor.test/gpu", "admin.test/dongle"
NODE = {
    "metadata": {"name": "n", "labels": {"a": "b"}},
    "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
    "status": {"allocatable": {"cpu": "4", GPU: "1", DONGLE: "2", "kubernetes.io/x": "1"}, "images": []},
}


def test_node_is_the_same_after_its_checkpoint() -> None:
    known = KnownNode.of(api_object("Node", NODE).document)
    assert known.extended == {GPU: "1", DONGLE: "2"}
    assert KnownNode.of(known.plain()) == known
    assert KnownNode.of({"metadata": {}}).extended == {}, "a checkpoint of an earlier version"


@pytest.mark.parametrize(
    ("change", "tells"),
    [
        ({"status": {"allocatable": {GPU: "2", DONGLE: "2"}, "conditions": [{"type": "Ready"}]}}, False),
        ({"metadata": {"name": "n", "labels": {"a": "c"}}}, True),
        ({"spec": {"taints": []}}, True),
        ({"status": {"allocatable": {GPU: "1", DONGLE: "3"}}}, True),
    ],
)
def test_resizes_are_decided_on_with_a_changed_node(tmp_path: Path, change: dict[str, Any], tells: bool) -> None:
    harness, seen = QueueHarness(), []
    queue = harness.admission_queue
    gate = ApiAdmissionGate(Actor(tmp_path), harness.desired, queue, on_node_changed=lambda: seen.append(queue.node))  # type: ignore[arg-type]
    gate.set_device_resources((GPU,))
    gate._node_read(KnownNode.of(NODE))
    gate._node_read(KnownNode.of(NODE | change))
    gate._node_read(None)
    assert len(seen) == 1 + tells
    assert seen[-1] == queue.node


@pytest.mark.parametrize(
    ("plugins", "counted"), [(None, {}), ((GPU,), {DONGLE: 2}), ((), {DONGLE: 2, GPU: 1}), ((GPU, DONGLE), {})]
)
def test_resources_of_plugins_are_not_counted_twice(plugins: tuple[str, ...] | None, counted: dict[str, int]) -> None:
    assert KnownNode.of(NODE).counted(plugins) == counted
    odd = {"status": {"allocatable": {DONGLE: "many"}}}
    assert KnownNode.of(odd).counted(()) == {}


class Actor:
    """Has settings, and drops what is spawned."""

    def __init__(self, root: Path) -> None:
        self.settings = SimpleNamespace(root_dir=str(root), pod_sources=(), kubeconfig="k", node_name="n")

    def blocking(self, *args: Any) -> Any:
        raise AssertionError(args)


def test_admission_counts_what_an_administrator_set(tmp_path: Path) -> None:
    harness = QueueHarness()
    queue: AdmissionQueue = harness.admission_queue
    gate = ApiAdmissionGate(Actor(tmp_path), harness.desired, queue)  # type: ignore[arg-type]
    gate._apply(KnownNode.of(NODE))
    harness.want(pod("early", requests={DONGLE: "9"}))
    assert harness.said()[0] == "run early", "nobody has told whose it is"
    harness.drop("early")
    harness.said()
    gate.set_device_resources((GPU,))
    harness.want(pod("one", requests={DONGLE: "2", GPU: "5"}), pod("two", requests={DONGLE: "1"}))
    said = [line for line in harness.said() if line.startswith(("run", "reject"))]
    assert said == ["run one", f"reject two: OutOf{DONGLE}"]
    assert queue.node.allocatable["cpu"] == 2000, "the machine's are its own"

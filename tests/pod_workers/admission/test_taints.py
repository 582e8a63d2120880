"""A pod is refused on a node with a taint or a pressure condition that it does not tolerate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.pod_workers.admission import NodeInfo, node_info
from proto.agent.settings import Settings, Taint
from tests.pod_workers.admission.pods import LABELS, MACHINE, NODE, OK, judged, pod

MAINTENANCE = Taint(key="maintenance", value="disk", effect="NoExecute")


@pytest.mark.parametrize(
    ("toleration", "borne"),
    [
        (None, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, False),
        ({"key": "maintenance", "operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "maintenance", "value": "disk"}, True),
        ({"key": "maintenance", "operator": "Equal", "value": "disk", "effect": "NoExecute"}, True),
        ({"key": "maintenance", "operator": "Equal", "value": "cpu"}, False),
        ({"key": "maintenance"}, False),
        ({"operator": "Equal", "value": "disk"}, False),
        ({"key": "maintenance", "operator": "Lt", "value": "disk"}, False),
        ({"key": "maintenance", "operator": "Exists", "tolerationSeconds": 5}, True),
    ],
)
def test_taints(toleration, borne):
    node = NodeInfo("vm", LABELS, NODE.allocatable, (Taint(key="x", effect="NoSchedule"), MAINTENANCE))
    refused = (
        "TaintToleration",
        "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
    )
    one = pod(tolerations=[toleration] if toleration else [])
    assert judged(one, node=node) == (OK if borne else refused)
    assert judged(pod(static=True), node=node) == OK


@pytest.mark.parametrize(
    ("operator", "bound", "value", "borne"),
    [
        ("Gt", "950", "951", True),
        ("Gt", "950", "950", False),
        ("Lt", "950", "949", True),
        ("Lt", "950", "950", False),
        ("Lt", "1000", "0950", True),
        ("Gt", "-5", "-4", True),
        ("Gt", str(2**63 - 2), str(2**63 - 1), True),
        ("Gt", "0", str(2**63), False),
        ("Lt", "0", "-" + "9" * 5000, False),
        ("Lt", "950", "", False),
        ("Lt", "950", "94.5", False),
        ("Gt", "slow", "951", False),
        ("Gt", None, "951", False),
        ("Lt", "950", "\u0669", False),
    ],
)
def test_comparing_tolerations_need_their_gate(operator, bound, value, borne):
    node = NodeInfo("vm", LABELS, NODE.allocatable, (Taint(key="sla", value=value, effect="NoExecute"),))
    one = pod(tolerations=[{"key": "sla", "operator": operator, "value": bound, "effect": "NoExecute"}])
    assert judged(one, node=node)[0] == "TaintToleration"
    assert (judged(one, node=replace(node, compare_taint_values=True)) == OK) is borne


def test_comparing_toleration_names_its_taint():
    node = NodeInfo("vm", LABELS, NODE.allocatable, (MAINTENANCE,), compare_taint_values=True)
    assert judged(pod(tolerations=[{"key": "sla", "operator": "Gt", "value": "1"}]), node=node)[0] == "TaintToleration"


def test_gate_of_comparing_tolerations_reaches_admission():
    assert not node_info(Settings(), MACHINE).compare_taint_values
    assert node_info(Settings(compare_taint_values=True), MACHINE).compare_taint_values


BEARS_IT = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}


@pytest.mark.parametrize(
    ("fields", "conditions", "let_in"),
    [
        ({}, (), True),
        ({}, ("MemoryPressure",), False),
        ({"requests": {"cpu": "1m"}}, ("MemoryPressure",), True),
        ({"requests": {"cpu": "1m"}}, ("MemoryPressure", "DiskPressure"), False),
        ({"requests": {"cpu": "1m"}}, ("DiskPressure",), False),
        ({"requests": {"cpu": "1m"}}, ("PIDPressure",), False),
        ({"static": True}, ("DiskPressure", "MemoryPressure"), True),
        ({"priority": 2_000_000_000}, ("DiskPressure",), True),
        ({"priority": 1_999_999_999}, ("DiskPressure",), False),
        ({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}, ("DiskPressure",), True),
        ({"tolerations": [BEARS_IT]}, ("MemoryPressure",), True),
        ({"tolerations": [BEARS_IT]}, ("DiskPressure",), False),
    ],
)  # fmt: skip
def test_pressure(fields, conditions, let_in):
    text = f"The node had condition: [{' '.join(sorted(conditions))}]. "
    assert judged(pod(**fields), pressure=conditions) == (OK if let_in else ("Evicted", text))

"""A pod is refused on a node that its node selector, node affinity or node name does not match."""

from __future__ import annotations

from typing import Any

import pytest

from actors.pod_workers.admission import affinity
from tests.pod_workers.admission.pods import LABELS, OK, REFUSED, judged, pod


def expressions(*rules: tuple[str, str, list[str]]) -> dict[str, Any]:
    return {
        "matchExpressions": [{"key": key, "operator": operator, "values": values} for key, operator, values in rules]
    }


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    inner = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": inner}}


def by_name(operator: str, *names: str, key: str = "metadata.name") -> dict[str, Any]:
    return {"matchFields": [{"key": key, "operator": operator, "values": list(names)}]}


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        ({}, True),
        ({"nodeSelector": {"disk": "ssd"}}, True),
        ({"nodeSelector": {"disk": "ssd", "zone": "b"}}, False),
        ({"nodeSelector": {"gpu": "yes"}}, False),
        ({"nodeSelector": {"kubernetes.io/hostname": "vm", "kubernetes.io/os": "linux"}}, True),
        ({"affinity": {}}, True),
        ({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": expressions(("disk", "In", ["hdd"]))}]}}}, True),
        (required(), False),
        (required({}), False),
        (required(expressions(("disk", "In", ["hdd", "ssd"]))), True),
        (required(expressions(("disk", "In", ["hdd"]))), False),
        (required(expressions(("gpu", "In", ["ssd"]))), False),
        (required(expressions(("disk", "In", []))), False),
        (required(expressions(("disk", "NotIn", ["hdd"]))), True),
        (required(expressions(("disk", "NotIn", ["ssd"]))), False),
        (required(expressions(("gpu", "NotIn", ["x"]))), True),
        (required(expressions(("gpu", "NotIn", []))), False),
        (required(expressions(("disk", "Exists", []))), True),
        (required(expressions(("disk", "Exists", ["ssd"]))), False),
        (required(expressions(("gpu", "Exists", []))), False),
        (required(expressions(("gpu", "DoesNotExist", []))), True),
        (required(expressions(("disk", "DoesNotExist", []))), False),
        (required(expressions(("rack", "Gt", ["6"]))), True),
        (required(expressions(("rack", "Gt", ["7"]))), False),
        (required(expressions(("rack", "Lt", ["8"]))), True),
        (required(expressions(("rack", "Lt", ["7"]))), False),
        (required(expressions(("rack", "Gt", ["six"]))), False),
        (required(expressions(("rack", "Gt", ["1" * 5000]))), False),
        (required(expressions(("none", "Lt", ["-" + "0" * 30 + "9" * 20]))), False),
        (required(expressions(("rack", "Gt", ["0" * 30 + "6"]))), True),
        (required(expressions(("rack", "Gt", ["1", "2"]))), False),
        (required(expressions(("disk", "Gt", ["1"]))), False),
        (required(expressions(("gpu", "Lt", ["1"]))), False),
        (required(expressions(("disk", "Near", ["ssd"]))), False),
        (required(expressions(("disk", "In", ["hdd"])), expressions(("zone", "In", ["a"]))), True),
        (required(expressions(("disk", "In", ["ssd"]), ("zone", "In", ["b"]))), False),
        (required(by_name("In", "vm")), True),
        (required(by_name("In", "other")), False),
        (required(by_name("NotIn", "other")), True),
        (required(by_name("NotIn", "vm")), False),
        (required(by_name("In", "vm", "other")), False),
        (required(by_name("Exists")), False),
        (required(by_name("In", "vm", key="metadata.uid")), False),
        (required(by_name("In", "vm") | expressions(("disk", "In", ["hdd"]))), False),
        (required(by_name("In", "vm") | expressions(("disk", "In", ["ssd"]))), True),
        ({"nodeSelector": {"disk": "hdd"}} | required(by_name("In", "vm")), False),
    ],
)  # fmt: skip
def test_node_affinity(spec, chosen):
    assert affinity.matches(pod(**spec), LABELS, "vm") is chosen


@pytest.mark.parametrize("static", [True, False])
def test_the_words_for_another_node(static):
    assert judged(pod(static=static, nodeSelector={"disk": "hdd"})) == REFUSED
    expected = ("NodeName", "Predicate NodeName failed: node(s) didn't match the requested node name")
    assert judged(pod(static=static, nodeName="other")) == expected
    assert judged(pod(static=static, nodeName="vm")) == OK

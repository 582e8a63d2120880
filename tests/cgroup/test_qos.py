"""QoS classes of pods, against the rules of the Kubernetes documentation."""

from typing import Any

import msgspec
import pytest

from actors._cgroup.quantities.qos import compute_qos_class, qos_class
from actors._host.node.critical import is_critical, is_node_critical
from proto.v1 import Pod

BOTH = {"cpu": "1", "memory": "1Gi"}


def container(requests: dict[str, Any] | None = None, limits: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}}


def pod(*containers: dict[str, Any], **spec: Any) -> Pod:
    return msgspec.convert({"spec": {"containers": list(containers), **spec}}, Pod)


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (pod(container()), "BestEffort"),
        (pod(container({"cpu": "0"})), "BestEffort"),
        (pod(container({"example.com/gpu": 1}, {"example.com/gpu": 1})), "BestEffort"),
        (pod(container({"cpu": "1m"})), "Burstable"),
        (pod(container(limits={"memory": "1Gi"})), "Burstable"),
        (pod(container(BOTH, BOTH)), "Guaranteed"),
        (pod(container(BOTH, {"cpu": "1000m", "memory": "1024Mi"})), "Guaranteed"),
        (pod(container(BOTH, {"cpu": "2", "memory": "1Gi"})), "Burstable"),
        (pod(container(BOTH, BOTH), container()), "Burstable"),
        (pod(container(BOTH, BOTH), container(BOTH, BOTH)), "Guaranteed"),
        (pod(container(BOTH, BOTH), initContainers=[container()]), "Burstable"),
        (pod(container(BOTH, BOTH), initContainers=[container(BOTH, BOTH)]), "Guaranteed"),
        # what one container lacks another cannot make up for
        (pod(container({"cpu": "1"}, {"cpu": "1"}), container({"memory": "1"}, {"memory": "1"})), "Burstable"),
        (pod(container(), resources={"requests": BOTH, "limits": BOTH}), "Guaranteed"),
        (pod(container(BOTH, BOTH), resources={"requests": {"cpu": "1"}}), "Burstable"),
        (pod(container(), resources={"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}), "Burstable"),
    ],
)
def test_class_of_a_spec(subject: Pod, expected: str) -> None:
    assert compute_qos_class(subject) == expected


def test_the_class_in_the_status_stands() -> None:
    subject = msgspec.structs.replace(
        pod(container()), status=msgspec.convert({"qosClass": "Guaranteed"}, type(Pod().status))
    )
    assert qos_class(subject) == "Guaranteed"


@pytest.mark.parametrize(
    ("annotations", "priority", "name", "critical", "node_critical"),
    [
        ({}, None, None, False, False),
        ({"kubernetes.io/config.source": "file"}, None, None, True, False),
        ({"kubernetes.io/config.source": "api"}, 1000, None, False, False),
        ({"kubernetes.io/config.mirror": "x"}, None, None, True, False),
        ({}, 2_000_000_000, "system-cluster-critical", True, False),
        ({}, 2_000_001_000, "system-node-critical", True, True),
    ],
)
def test_critical_pods(
    annotations: dict[str, str], priority: int | None, name: str | None, critical: bool, node_critical: bool
) -> None:
    spec = {"priority": priority, "priorityClassName": name}
    subject = msgspec.convert({"metadata": {"annotations": annotations}, "spec": spec}, Pod)
    assert (is_critical(subject), is_node_critical(subject)) == (critical, node_critical)

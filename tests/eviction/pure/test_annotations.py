"""Annotations of Evicted events, as evictionMessage of pkg/kubelet/eviction/helpers.go sets them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from actors.eviction.message import eviction_message
from actors.eviction.policy import Observation
from actors.eviction.thresholds import Threshold
from proto.node.stats import ContainerUsage, PodUsage
from proto.v1 import Pod

MIB = 1 << 20


def pod(requests: dict[str, Any], own: dict[str, Any] | None = None) -> Pod:
    """A pod with containers `a` and `b` and an init container `i` of these requests."""
    containers = [{"name": name, "resources": {"requests": requests}} for name in "abi"]
    spec = {"containers": containers[:2], "initContainers": containers[2:]}
    spec |= {"resources": {"requests": own}} if own else {}  # type: ignore[dict-item]
    return msgspec.convert({"metadata": {"uid": "u", "name": "p"}, "spec": spec}, Pod)


def annotations(signal: str, subject: Pod, *containers: ContainerUsage, memory: int = 0) -> dict[str, str]:
    use = PodUsage(pod_uid="u", memory_working_set_bytes=memory, disk_bytes=0, containers=containers)
    return eviction_message(Threshold(signal, amount=1), "1", Observation(0, 1), subject, use)[1]


def test_containers_above_their_memory_request_are_named() -> None:
    used = [("i", 30), ("b", 9), ("gone", 90), ("a", 1536)]
    containers = (ContainerUsage(name=name, memory_working_set_bytes=mib * MIB) for name, mib in used)
    assert annotations("memory.available", pod({"memory": "10Mi"}), *containers) == {
        "offending_containers": "i,a",
        "offending_containers_usage": "30Mi,1536Mi",
        "starved_resource": "memory",
    }


def test_allocatable_memory_is_starved_memory() -> None:
    found = annotations("allocatableMemory.available", pod({}), ContainerUsage(name="a", memory_working_set_bytes=1))
    assert found == {"offending_containers": "a", "offending_containers_usage": "1", "starved_resource": "memory"}


def test_disk_usage_is_the_writable_layer_and_the_log() -> None:
    container = ContainerUsage(name="b", writable_layer_bytes=3 * MIB, log_bytes=MIB, memory_working_set_bytes=9)
    assert annotations("nodefs.available", pod({"ephemeral-storage": "1Mi"}), container) == {
        "offending_containers": "b",
        "offending_containers_usage": "4Mi",
        "starved_resource": "ephemeral-storage",
    }


@pytest.mark.parametrize(("signal", "resource"), [("imagefs.inodesFree", "inodes"), ("pid.available", "pids")])
def test_counted_resources_blame_no_container(signal: str, resource: str) -> None:
    found = annotations(signal, pod({}), ContainerUsage(name="a", memory_working_set_bytes=MIB, log_bytes=MIB))
    assert found == {"offending_containers": "", "offending_containers_usage": "", "starved_resource": resource}


def test_pod_with_its_own_memory_request_is_named() -> None:
    """The kubelet names it whether or not it is above its request."""
    container = ContainerUsage(name="a", memory_working_set_bytes=2 * MIB)
    found = annotations("memory.available", pod({}, {"memory": "1Gi"}), container, memory=3 * MIB)
    assert found == {
        "offending_pod": "p",
        "offending_pod_usage": "3Mi",
        "offending_containers": "a",
        "offending_containers_usage": "2Mi",
        "starved_resource": "memory",
    }
    assert "offending_pod" not in annotations("nodefs.available", pod({}, {"memory": "1Gi"}), memory=3 * MIB)


def test_pod_without_usage_has_no_annotations() -> None:
    text, found = eviction_message(Threshold("memory.available", amount=1), "1", Observation(0, 1), pod({}), None)
    assert text == "The node was low on resource: memory. Threshold quantity: 1, available: 0. "
    assert found == {}

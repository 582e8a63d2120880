"""Chooses the pods that the resources actor is asked for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from actors.pod_workers.shared.managed_resources import ManagedResources
from proto.agent.settings import Settings
from proto.pods.pod_workers import ResourcesState
from proto.resources.grants import Grant
from proto.v1 import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from proto.v1.status import ContainerExtendedResourceRequest, PodExtendedResourceClaimStatus

GPU = "vendor.com/gpu"


def pod(**limits: str) -> Pod:
    names = {name.replace("gpu", GPU): amount for name, amount in limits.items()}
    container = Container(name="c", resources=ResourceRequirements(limits=names, requests=names))
    return Pod(spec=PodSpec(containers=(container,)))


GUARANTEED = pod(cpu="1", memory="1Mi")


@pytest.mark.parametrize(
    ("settings", "wanted", "concerned"),
    [
        (Settings(), GUARANTEED, False),
        (Settings(cpu_manager_policy="static"), GUARANTEED, True),
        (Settings(memory_manager_policy="Static"), GUARANTEED, True),
        (Settings(cpu_manager_policy="static"), pod(cpu="1"), False),
        (Settings(cpu_manager_policy="static"), pod(), False),
        (Settings(), pod(gpu="1"), True),
    ],
)
def test_only_pods_that_can_get_something_are_asked_for(settings: Settings, wanted: Pod, concerned: bool) -> None:
    assert ManagedResources(settings).concerns(wanted) == concerned


def test_extended_resource_without_a_plugin_needs_no_ask() -> None:
    managed = ManagedResources(Settings())
    managed.state = ResourcesState()
    assert not managed.concerns(pod(gpu="1"))
    managed.state = ResourcesState(device_resources=(GPU,))
    assert managed.concerns(pod(gpu="1"))


def test_resource_of_a_claim_is_no_plugins() -> None:
    mapping = ContainerExtendedResourceRequest(container_name="c", resource_name=GPU, request_name="r")
    status = PodStatus(extended_resource_claim_status=PodExtendedResourceClaimStatus(request_mappings=(mapping,)))
    managed = ManagedResources(Settings())
    managed.state = ResourcesState(device_resources=(GPU,))
    assert not managed.concerns(replace(pod(gpu="1"), status=status))


def test_shared_cpus_need_no_ask() -> None:
    managed = ManagedResources(Settings(cpu_manager_policy="static"))
    assert managed.shared() == Grant()
    managed.state = ResourcesState(shared_cpus="0-1")
    assert managed.shared() == Grant(cpus="0-1")
    assert managed.tracks(pod())
    assert not ManagedResources(Settings()).tracks(GUARANTEED)

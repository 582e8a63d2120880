"""Decisions of the resources actor."""

from __future__ import annotations

from actors.resources.policy import find_container, merged
from proto.resources.grants import Grant, GrantedDevice
from proto.v1 import Container, EphemeralContainer, Pod, PodSpec

DEVICE = GrantedDevice(host_path="/dev/a", container_path="/dev/a", permissions="rw")


def test_merged_grant_has_the_parts_of_all_providers() -> None:
    cpus = Grant(cpus="2-3", exclusive_cpus=True)
    first = Grant(devices=(DEVICE,), environment={"A": "1"}, cdi_devices=("v/c=1",))
    second = Grant(devices=(DEVICE,), environment={"B": "2"}, cdi_devices=("v/c=2",), memory_nodes="0")
    assert merged([first, cpus, second]) == Grant(
        cpus="2-3",
        exclusive_cpus=True,
        memory_nodes="0",
        devices=(DEVICE,),
        environment={"A": "1", "B": "2"},
        cdi_devices=("v/c=1", "v/c=2"),
    )
    assert merged([]) == Grant()


def test_containers_of_each_kind_are_found() -> None:
    pod = Pod(
        spec=PodSpec(
            containers=(Container(name="a"),),
            init_containers=(Container(name="b"),),
            ephemeral_containers=(EphemeralContainer(name="c"),),
        )
    )
    found = [find_container(pod, name) for name in "abcd"]
    assert [one.name if one else None for one in found] == ["a", "b", "c", None]

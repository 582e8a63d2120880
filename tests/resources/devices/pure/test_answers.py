from typing import Any

import pytest

from actors.resources.devices import answers
from actors.resources.devices.answers import BadAnswerError
from actors.resources.devices.inventory import Device
from proto.plugins import deviceplugin_pb2 as pb
from proto.resources.grants import Grant, GrantedDevice, GrantedMount


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        ("vendor.test/gpu", True),
        ("vendor.test/GPU_1.x", True),
        ("gpu", False),
        ("", False),
        ("/gpu", False),
        ("vendor.test/", False),
        ("kubernetes.io/gpu", False),
        ("x.kubernetes.io/gpu", False),
        ("requests.test/gpu", False),
        ("a/b/c", False),
        ("Vendor.test/gpu", False),
        ("vendor.test/" + 64 * "g", False),
        ("v" * 250 + "/g", False),
        ("vendor.test/../gpu", False),
        ("vendor.test/gpu\n", False),
    ],
)
def test_only_extended_resource_names_register(name: str, accepted: bool) -> None:
    assert answers.is_extended_resource(name) is accepted


def test_other_versions_are_refused_in_the_kubelets_words() -> None:
    problem = answers.registration_problem("v1", "vendor.test/gpu")
    assert problem == 'requested API version "v1" is not supported by kubelet. Supported version is "v1beta1"'


@pytest.mark.parametrize("endpoint", ["", ".", "..", "../x.sock", "/x.sock", ".x", "a\0b", 300 * "x"])
def test_an_endpoint_outside_the_directory_is_refused(endpoint: str) -> None:
    assert answers.endpoint_problem(endpoint)


def test_health_and_numa_nodes_of_devices_are_read() -> None:
    listed = pb.ListAndWatchResponse(
        devices=[
            pb.Device(
                ID="a", health="Healthy", topology=pb.TopologyInfo(nodes=[pb.NUMANode(ID=1), pb.NUMANode(ID=-5)])
            ),
            pb.Device(ID="b", health="anything"),
        ]
    )
    assert answers.read_devices(listed) == [Device("a", True, frozenset({1})), Device("b", False)]


@pytest.mark.parametrize("bad", ["", "a\nb", 300 * "x", "\x1b[2J"])
def test_a_list_with_an_unusable_device_id_is_refused(bad: str) -> None:
    with pytest.raises(BadAnswerError):
        answers.read_devices(pb.ListAndWatchResponse(devices=[pb.Device(ID=bad)]))


def test_a_list_with_too_many_devices_is_refused() -> None:
    many = [pb.Device(ID=str(number)) for number in range(answers.MOST_DEVICES + 1)]
    with pytest.raises(BadAnswerError):
        answers.read_devices(pb.ListAndWatchResponse(devices=many))


def test_a_list_with_too_many_numa_nodes_is_refused() -> None:
    nodes = [pb.NUMANode(ID=0)] * (answers.MOST_PLACEMENTS // 2 + 1)
    near = pb.TopologyInfo(nodes=nodes)
    assert answers.read_devices(pb.ListAndWatchResponse(devices=[pb.Device(ID="a", topology=near)]))
    two = [pb.Device(ID=one, topology=near) for one in "ab"]
    with pytest.raises(BadAnswerError, match="it lists 65538 NUMA nodes of devices, more than 65536"):
        answers.read_devices(pb.ListAndWatchResponse(devices=two))


def test_an_answer_to_allocate_becomes_a_grant() -> None:
    answer = pb.ContainerAllocateResponse(
        envs={"A": "1"},
        mounts=[pb.Mount(container_path="/c", host_path="/h", read_only=True)],
        devices=[pb.DeviceSpec(container_path="/dev/c", host_path="/dev/h", permissions="rw")],
        annotations={"k": "v"},
        cdi_devices=[pb.CDIDevice(name="vendor.test/gpu=0")],
    )
    assert answers.read_grant(answer) == Grant(
        environment={"A": "1"},
        devices=(GrantedDevice(host_path="/dev/h", container_path="/dev/c", permissions="rw"),),
        mounts=(GrantedMount(host_path="/h", container_path="/c", read_only=True),),
        annotations={"k": "v"},
        cdi_devices=("vendor.test/gpu=0",),
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"devices": [pb.DeviceSpec(container_path="c", host_path="/h", permissions="r")]},
        {"devices": [pb.DeviceSpec(container_path="/c", host_path="/h/../../etc", permissions="r")]},
        {"devices": [pb.DeviceSpec(container_path="/c", host_path="/h", permissions="rx")]},
        {"mounts": [pb.Mount(container_path="/c", host_path="")]},
        {"mounts": [pb.Mount(container_path="/c\0", host_path="/h")]},
        {"envs": {"A=B": "1"}},
        {"envs": {"": "1"}},
        {"envs": {"A": "x" * (answers.MOST_TEXT + 1)}},
        {"envs": {f"A{number}": "" for number in range(answers.MOST_ITEMS + 1)}},
        {"annotations": {"k": "v\0"}},
        {"cdi_devices": [pb.CDIDevice(name="gpu0")]},
        {"cdi_devices": [pb.CDIDevice(name="v/c=a b")]},
    ],
)
def test_an_answer_that_no_plugin_means_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadAnswerError):
        answers.read_grant(pb.ContainerAllocateResponse(**fields))

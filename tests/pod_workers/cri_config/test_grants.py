"""A container's grants in its CRI config."""

from __future__ import annotations

import pytest

from actors.pod_workers.cri_config.grants import add_grant
from proto.cri import api_pb2 as pb
from proto.resources.grants import Grant, GrantedDevice, GrantedMount


def config() -> pb.ContainerConfig:
    resources = pb.LinuxContainerResources(cpu_quota=100_000, cpu_period=100_000, cpu_shares=1024)
    return pb.ContainerConfig(
        envs=[pb.KeyValue(key="A", value=b"own")],
        mounts=[pb.Mount(container_path="/own")],
        devices=[pb.Device(container_path="/dev/own")],
        annotations={"own": "1"},
        linux=pb.LinuxContainerConfig(resources=resources),
    )


def test_empty_grant_changes_nothing() -> None:
    changed = config()
    add_grant(changed, Grant(), quota=False)
    assert changed == config()


def test_plugins_parts_come_first_and_own_variables_win() -> None:
    changed = config()
    grant = Grant(
        environment={"A": "plugin", "B": "plugin"},
        devices=(GrantedDevice(host_path="/dev/h", container_path="/dev/c", permissions="rw"),),
        mounts=(GrantedMount(host_path="/h", container_path="/c", read_only=True),),
        annotations={"own": "2", "plugin": "2"},
        cdi_devices=("v/c=1",),
    )
    add_grant(changed, grant, quota=False)
    assert [(one.key, one.value) for one in changed.envs] == [("B", b"plugin"), ("A", b"own")]
    assert changed.mounts[0] == pb.Mount(container_path="/c", host_path="/h", readonly=True)
    assert changed.devices[0] == pb.Device(container_path="/dev/c", host_path="/dev/h", permissions="rw")
    assert [len(changed.mounts), len(changed.devices)] == [2, 2]
    assert dict(changed.annotations) == {"own": "1", "plugin": "2"}
    assert [one.name for one in changed.CDI_devices] == ["v/c=1"]


def test_plugins_mounts_have_the_ids_of_the_pods_user_namespace() -> None:
    uids, gids = pb.IDMapping(host_id=65536, length=65536), pb.IDMapping(host_id=131072, length=65536)
    changed = config()
    options = changed.linux.security_context.namespace_options
    options.userns_options.CopyFrom(pb.UserNamespace(mode=pb.POD, uids=[uids], gids=[gids]))
    add_grant(changed, Grant(mounts=(GrantedMount(host_path="/h", container_path="/c", read_only=True),)), quota=False)
    assert (list(changed.mounts[0].uidMappings), list(changed.mounts[0].gidMappings)) == ([uids], [gids])


@pytest.mark.parametrize(
    ("exclusive", "quota", "expected"), [(True, False, -1), (True, True, 100_000), (False, False, 100_000)]
)
def test_exclusive_cpus_have_no_quota(exclusive: bool, quota: bool, expected: int) -> None:
    changed = config()
    add_grant(changed, Grant(cpus="1", memory_nodes="0", exclusive_cpus=exclusive), quota=quota)
    resources = changed.linux.resources
    assert (resources.cpuset_cpus, resources.cpuset_mems, resources.cpu_quota) == ("1", "0", expected)

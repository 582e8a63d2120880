"""Expansion of CDI devices into the CRI config of a container."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from actors.runtime.oci.cdi import MOST_BYTES, CdiError, expand
from proto.cri import api_pb2 as pb

LIB = {"hostPath": "/lib", "containerPath": "/lib", "options": ["ro"]}
NOEXEC = {"hostPath": "/a", "containerPath": "/a", "options": ["noexec"]}
NULL = {"path": "/dev/null", "permissions": "r"}
SPEC: dict[str, Any] = {
    "cdiVersion": "0.6.0",
    "kind": "vendor.test/gpu",
    "containerEdits": {
        "env": ["DRIVER=1"],
        "mounts": [{"hostPath": "/lib", "containerPath": "/lib", "options": ["ro"]}],
    },
    "devices": [
        {"name": "zero", "containerEdits": {"deviceNodes": [{"path": "/dev/gpu0", "hostPath": "/dev/zero"}]}},
        {
            "name": "null",
            "containerEdits": {"env": ["A=new"], "deviceNodes": [NULL]},
        },
        {"name": "hook", "containerEdits": {"hooks": [{"hookName": "createContainer", "path": "/bin/x"}]}},
        {"name": "net", "containerEdits": {"netDevices": [{"hostInterfaceName": "eth0", "name": "eth0"}]}},
        {"name": "fifo", "containerEdits": {"deviceNodes": [{"path": "/dev/f", "type": "p"}]}},
        {
            "name": "option",
            "containerEdits": {"mounts": [NOEXEC]},
        },
        {"name": "missing", "containerEdits": {"deviceNodes": [{"path": "/dev/none-of-these"}]}},
        {"name": "file", "containerEdits": {"deviceNodes": [{"path": "/etc/passwd"}]}},
        {"name": "number", "containerEdits": {"deviceNodes": [{"path": "/dev/null", "major": 7}]}},
        {"name": "owner", "containerEdits": {"deviceNodes": [{"path": "/dev/null", "uid": 7, "fileMode": 384}]}},
        {"name": "gone", "containerEdits": {"mounts": [{"hostPath": "/none-of-these", "containerPath": "/a"}]}},
        {"name": "variable", "containerEdits": {"env": ["B=1"]}},
        {"name": "replaces", "containerEdits": {"deviceNodes": [{"path": "/dev/gpu0", "hostPath": "/dev/null"}]}},
        {"name": "huge", "containerEdits": {"additionalGids": [(1 << 63)]}},
        {"name": "gids", "containerEdits": {"additionalGids": [0, 44]}},
    ],
}


def write(directory: Path, name: str, spec: Any) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(spec if isinstance(spec, str) else json.dumps(spec))


def expanded(*devices: str, directories: tuple[Path, ...], privileged: bool = True) -> pb.ContainerConfig:
    config = pb.ContainerConfig(
        envs=[pb.KeyValue(key="A", value=b"old")],
        CDI_devices=[pb.CDIDevice(name=f"vendor.test/gpu={one}") for one in devices],
    )
    expand(config, [str(one) for one in directories], privileged=privileged)
    return config


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write(tmp_path / "etc", "vendor.json", SPEC)
    return tmp_path / "etc"


def test_devices_variables_and_mounts_are_added(directory: Path) -> None:
    config = expanded("zero", "null", "zero", directories=(directory,))
    assert [(one.host_path, one.container_path, one.permissions) for one in config.devices] == [
        ("/dev/zero", "/dev/gpu0", "rwm"),
        ("/dev/null", "/dev/null", "r"),
    ]
    assert {one.key: one.value for one in config.envs} == {"DRIVER": b"1", "A": b"new"}
    assert [(one.host_path, one.container_path, one.readonly) for one in config.mounts] == [("/lib", "/lib", True)]


def test_groups_are_added(directory: Path) -> None:
    config = expanded("gids", directories=(directory,))
    assert list(config.linux.security_context.supplemental_groups) == [44]


def test_a_config_without_cdi_devices_stays(directory: Path) -> None:
    assert expanded(directories=(directory,)).devices == []


@pytest.mark.parametrize(
    ("device", "problem"),
    [
        ("none", "unresolvable CDI devices vendor.test/gpu=none"),
        ("hook", "needs hooks, Intel RDT or network devices, which this runtime does not support"),
        ("net", "needs hooks, Intel RDT or network devices"),
        ("fifo", "has a device node of type 'p', which is not supported"),
        ("missing", "has a device node that cannot be used: .*No such file"),
        ("file", "has a device node that is no device here: /etc/passwd"),
        ("number", "gives /dev/null another major number than this machine"),
        ("owner", "gives /dev/null another mode, owner than this machine"),
        ("gone", "has a mount of '/none-of-these', which is not on this machine"),
        ("huge", "has an invalid value"),
        ("option", "has a mount with noexec, which is not supported"),
    ],
)
def test_what_cannot_be_done_is_refused(directory: Path, device: str, problem: str) -> None:
    with pytest.raises(CdiError, match=problem):
        expanded(device, directories=(directory,))


def test_the_later_directory_goes_first(directory: Path, tmp_path: Path) -> None:
    other = {**SPEC, "devices": [{"name": "zero", "containerEdits": {"env": ["FROM=run"]}}]}
    write(tmp_path / "run", "vendor.yaml", json.dumps(other))
    config = expanded("zero", directories=(directory, tmp_path / "run"))
    assert {one.key: one.value for one in config.envs}["FROM"] == b"run"
    assert not config.devices


def test_a_later_node_replaces_one_at_its_path(directory: Path) -> None:
    config = expanded("zero", "replaces", directories=(directory,))
    assert [(one.host_path, one.container_path) for one in config.devices] == [("/dev/null", "/dev/gpu0")]


@pytest.mark.parametrize("device", ["zero", "gids"])
def test_level_3_refuses_device_nodes_and_groups(directory: Path, device: str) -> None:
    with pytest.raises(
        CdiError,
        match=f"gpu={device} needs device nodes, groups or mounts in /dev, and the runtime has isolation level 3",
    ):
        expanded(device, directories=(directory,), privileged=False)


def test_level_3_adds_variables_and_mounts(directory: Path) -> None:
    config = expanded("variable", directories=(directory,), privileged=False)
    assert {one.key for one in config.envs} == {"A", "B", "DRIVER"}
    assert [one.container_path for one in config.mounts] == ["/lib"]


def test_a_device_of_two_specifications_is_refused(directory: Path) -> None:
    write(directory, "another.json", SPEC)
    with pytest.raises(CdiError, match="two CDI specifications of one directory have the device"):
        expanded("zero", directories=(directory,))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("unknown.json", json.dumps({"kind": "a.test/b", "devices": [{"name": "d"}], "future": 1})),
        ("alias.yaml", "kind: a.test/b\ndevices: [{name: d, containerEdits: {env: &a [B=1], hooks: *a}}]"),
        ("large.json", json.dumps({"kind": "a.test/b", "devices": [{"name": "d"}]}) + " " * MOST_BYTES),
    ],
)
def test_an_unusable_specification_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, content: str
) -> None:
    write(tmp_path / "etc", name, content)
    config = pb.ContainerConfig(CDI_devices=[pb.CDIDevice(name="a.test/b=d")])
    with pytest.raises(CdiError, match="unresolvable CDI devices"):
        expand(config, [str(tmp_path / "etc")])
    assert f"cannot use the CDI specification {tmp_path}/etc/{name}: " in caplog.text


def test_a_link_to_a_specification_is_not_followed(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "link.json").symlink_to(directory / "vendor.json")
    with pytest.raises(CdiError, match="unresolvable"):
        expanded("zero", directories=(tmp_path / "run",))


@pytest.mark.parametrize("content", ["{", "[1]", '{"kind": 1}', "a: [", '{"kind": "vendor.test/gpu", "devices": [{}]}'])
@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_broken_specification_is_left_out(directory: Path, content: str, suffix: str) -> None:
    write(directory, f"broken.{suffix}", content)
    (directory / "link.json").symlink_to("/etc/shadow")
    assert len(expanded("zero", directories=(directory, directory / "none")).devices) == 1

"""Mounts of containers, and the files that the agent makes for them."""

import os

import pytest

from actors.pod_workers.cri_config.host_files import (
    HostFiles,
    gets_hosts_file,
    host_network_hosts_content,
    hosts_content,
    prepare,
)
from actors.pod_workers.cri_config.mounts import MountInputs, image_volumes, sub_paths, to_bind
from actors.pod_workers.environment.variables import ConfigError
from actors.pod_workers.model.view import SandboxView
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb
from proto.pods.volume import SubPath
from proto.v1 import Container, HostAlias
from proto.v1.codec import from_dict
from tests.pod_workers.cri_config.config_parts import config_of, pod


def test_mounts_take_the_volumes_paths_and_switches():
    mounts = [
        {"name": "data", "mountPath": "/data", "readOnly": True, "mountPropagation": "HostToContainer"},
        {"name": "cm", "mountPath": "/cm"},
    ]
    subject = pod(
        {"volumeMounts": mounts}, volumes=[{"name": "data", "emptyDir": {}}, {"name": "cm", "configMap": {"name": "m"}}]
    )
    data, configuration = config_of(subject, mounts=MountInputs({"data": "/v/data", "cm": "/v/cm"})).mounts
    assert (data.host_path, data.container_path, data.readonly) == ("/v/data", "/data", True)
    assert data.propagation == pb.PROPAGATION_HOST_TO_CONTAINER
    assert configuration.readonly


@pytest.mark.parametrize("selinux", [False, True])
def test_runtime_labels_own_files_and_the_named_volumes(selinux: bool) -> None:
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("data", "host")]
    volumes = [{"name": "data", "emptyDir": {}}, {"name": "host", "hostPath": {"path": "/h"}}]
    facts = MountInputs(
        {"data": "/v/data", "host": "/h"}, relabel=frozenset({"data"} if selinux else ()), selinux=selinux
    )
    files = HostFiles(etc_hosts="/r/etc-hosts", termination_log="/r/words")
    made = config_of(pod({"volumeMounts": mounts}, volumes=volumes), mounts=facts, files=files).mounts
    assert [one.selinux_relabel for one in made] == [selinux, False, selinux, selinux]


@pytest.mark.parametrize(
    ("mount", "message"),
    [
        ({"readOnly": True, "recursiveReadOnly": "Enabled"}, "mode, but it is not supported by the runtime"),
        ({"recursiveReadOnly": "IfPossible"}, 'volume "data" requested recursive read-only mode, but it is not read'),
        (
            {"readOnly": True, "recursiveReadOnly": "Enabled", "mountPropagation": "HostToContainer"},
            'not compatible with propagation "HostToContainer"',
        ),
        ({"name": "other"}, 'cannot find volume "other" to mount into container "c"'),
    ],
)
def test_a_mount_that_cannot_be_is_a_config_error(mount, message):
    subject = pod(
        {"volumeMounts": [{"name": "data", "mountPath": "/d"} | mount]}, volumes=[{"name": "data", "emptyDir": {}}]
    )
    with pytest.raises(ConfigError, match=message):
        config_of(subject, mounts=MountInputs({"data": "/v/data"}))


@pytest.mark.parametrize(
    ("mode", "can", "done"),
    [(None, True, False), ("Disabled", True, False), ("IfPossible", False, False), ("IfPossible", True, True),
     ("Enabled", True, True)],
)  # fmt: skip
def test_read_only_goes_as_deep_as_wanted_where_the_runtime_can(mode, can, done):
    mount = {"name": "data", "mountPath": "/d", "readOnly": True, "recursiveReadOnly": mode}
    subject = pod({"volumeMounts": [mount]}, volumes=[{"name": "data", "emptyDir": {}}])
    (got,) = config_of(subject, mounts=MountInputs({"data": "/v/data"}, recursive_read_only=can)).mounts
    assert got.recursive_read_only == done


def test_parts_of_volumes_are_mounted_from_where_they_are_bound():
    mounts = [
        {"name": "data", "mountPath": "/whole"},
        {"name": "data", "mountPath": "/part", "subPath": "a/b"},
        {"name": "data", "mountPath": "/own", "subPathExpr": "logs/$(POD)-$$"},
    ]
    subject = pod({"volumeMounts": mounts}, volumes=[{"name": "data", "emptyDir": {}}])
    main = subject.spec.containers[0]
    parts = sub_paths(main, lambda: {"POD": "p"})
    assert to_bind(main, parts, {"data": "/v"}, {}) == (
        SubPath(index=1, volume="data", volume_path="/v", sub_path="a/b"),
        SubPath(index=2, volume="data", volume_path="/v", sub_path="logs/p-$"),
    )
    whole, part, own = config_of(subject, mounts=MountInputs({"data": "/v"}, {1: "/s/1", 2: "/s/2"})).mounts
    assert (whole.host_path, part.host_path, own.host_path) == ("/v", "/s/1", "/s/2")


@pytest.mark.parametrize(
    ("mount", "message"),
    [
        ({"subPath": "/a"}, "error SubPath `/a` must not be an absolute path"),
        ({"subPath": "a/../../b"}, "unable to provision SubPath `a/../../b`: must not contain '..'"),
        ({"subPathExpr": "$(UP)/b"}, "unable to provision SubPath `../b`: must not contain '..'"),
        ({"subPathExpr": "$(NONE)/$(EMPTY)"}, "missing value for EMPTY, NONE"),
        ({"name": "other", "subPath": "a"}, 'cannot find volume "other" to mount into container "c"'),
    ],
)
def test_a_sub_path_that_cannot_be_is_a_config_error(mount, message):
    subject = pod({"volumeMounts": [{"name": "data", "mountPath": "/d"} | mount]})
    main = subject.spec.containers[0]
    with pytest.raises(ConfigError) as caught:
        to_bind(main, sub_paths(main, lambda: {"UP": "..", "EMPTY": ""}), {"data": "/v"}, {})
    assert str(caught.value) == message


def test_a_raw_volume_is_a_device_of_the_container():
    devices = [{"name": "disk", "devicePath": "/dev/xvda"}, {"name": "old", "devicePath": "/dev/old"}]
    claims = [
        {"name": "disk", "persistentVolumeClaim": {"claimName": "a"}},
        {"name": "old", "persistentVolumeClaim": {"claimName": "b", "readOnly": True}},
    ]
    subject = pod({"volumeDevices": devices}, volumes=claims)
    got = config_of(subject, mounts=MountInputs({"disk": "/p/disk", "old": "/p/old"}))
    assert list(got.devices) == [
        pb.Device(container_path="/dev/xvda", host_path="/p/disk", permissions="mrw"),
        pb.Device(container_path="/dev/old", host_path="/p/old", permissions="r"),
    ]
    assert not got.mounts


@pytest.mark.parametrize("read_only", [True, False])
def test_mount_of_a_migrated_volume_is_as_read_only_as_the_volume(read_only):
    disk = {"name": "disk", "awsElasticBlockStore": {"volumeID": "vol-1", "readOnly": read_only}}
    subject = pod({"volumeMounts": [{"name": "disk", "mountPath": "/d"}]}, volumes=[disk])
    (got,) = config_of(subject, mounts=MountInputs({"disk": "/p/disk"})).mounts
    assert got.readonly is read_only


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("dev/a", "error DevicePath `dev/a` must be an absolute path"),
        ("/dev/a", 'cannot find volume "disk" to pass into container "c"'),
    ],
)
def test_a_device_that_cannot_be_is_a_config_error(path, message):
    subject = pod({"volumeDevices": [{"name": "disk", "devicePath": path}]})
    with pytest.raises(ConfigError) as caught:
        config_of(subject)
    assert str(caught.value) == message


def test_an_image_is_mounted_by_the_runtime_itself_and_read_only():
    mounts = [
        {"name": "tools", "mountPath": "/tools"},
        {"name": "tools", "mountPath": "/bin/tool", "subPathExpr": "$(POD)/tool", "readOnly": True},
    ]
    source = {"reference": "registry.example/tools:1", "pullPolicy": "Always"}
    subject = pod({"volumeMounts": mounts}, volumes=[{"name": "tools", "image": source}, {"name": "x", "image": {}}])
    main = subject.spec.containers[0]
    assert {name: one.pull_policy for name, one in image_volumes(subject, main).items()} == {"tools": "Always"}
    image = pb.ImageSpec(image="sha256:1", user_specified_image="registry.example/tools:1")
    parts = sub_paths(main, lambda: {"POD": "p"})
    assert to_bind(main, parts, {}, {"tools": image}) == ()
    facts = MountInputs(images={"tools": image}, image_sub_paths=parts)
    whole, part = config_of(subject, mounts=facts).mounts
    assert whole == pb.Mount(container_path="/tools", image=image, readonly=True)
    assert part == pb.Mount(container_path="/bin/tool", image=image, image_sub_path="p/tool", readonly=True)


def test_a_path_in_an_image_leads_nowhere_else():
    mount = {"name": "tools", "mountPath": "/t", "subPath": "a/../../etc"}
    subject = pod({"volumeMounts": [mount]}, volumes=[{"name": "tools", "image": {"reference": "r"}}])
    with pytest.raises(ConfigError, match=r"must not contain '\.\.'"):
        sub_paths(subject.spec.containers[0], dict)


def test_the_hosts_file_of_a_pod_is_the_kubelets():
    text = hosts_content(
        ("10.0.0.1", "fd00::1"), "h", "s.ns.svc.c.l", (HostAlias(ip="192.0.2.7", hostnames=("x", "y")),)
    )
    lines = text.splitlines()
    assert lines[:2] == ["# Kubernetes-managed hosts file.", "127.0.0.1\tlocalhost"]
    assert lines[7:] == [
        "10.0.0.1\th.s.ns.svc.c.l\th",
        "fd00::1\th.s.ns.svc.c.l\th",
        "",
        "# Entries added by HostAliases.",
        "192.0.2.7\tx\ty",
    ]
    own = host_network_hosts_content("127.0.0.1 localhost\n", ())
    assert own == "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n"


def test_container_mounting_its_own_hosts_file_gets_no_other():
    own = from_dict(Container, {"name": "c", "volumeMounts": [{"name": "h", "mountPath": "/etc/hosts/"}]})
    assert not gets_hosts_file(pod(), own, ("10.0.0.1",))
    assert not gets_hosts_file(pod(), Container(name="c"), ())
    assert gets_hosts_file(pod(hostNetwork=True), Container(name="c"), ())


def test_files_are_made_for_each_life(tmp_path):
    settings = Settings(root_dir=str(tmp_path), cluster_domain="c.l")
    subject = pod({"terminationMessagePath": "/dev/termination-log"})
    sandbox = SandboxView(id="s", ips=("10.0.0.1",))
    first = prepare(subject, subject.spec.containers[0], sandbox, settings)
    inode = os.stat(first.etc_hosts).st_ino
    second = prepare(subject, subject.spec.containers[0], SandboxView(id="s", ips=("10.0.0.2",)), settings)
    assert first.etc_hosts == second.etc_hosts == f"{tmp_path}/pods/u/etc-hosts"
    assert os.stat(second.etc_hosts).st_ino == inode  # what runs already has this very file mounted
    assert "10.0.0.2\tp\n" in (tmp_path / "pods/u/etc-hosts").read_text()
    assert first.termination_log != second.termination_log
    for path in (first.termination_log, second.termination_log):
        assert os.path.dirname(path) == f"{tmp_path}/pods/u/containers/c"
        assert os.stat(path).st_mode & 0o777 == 0o666

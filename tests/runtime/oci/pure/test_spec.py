"""Tables from CRI configurations to OCI specifications, without a container."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from actors.runtime.images.manifest import Execution
from actors.runtime.model.user_mapping import UserMapping
from actors.runtime.oci.spec.build import (
    BadContainer,
    Machine,
    Place,
    arguments,
    environment,
    exec_process,
    resources,
    specification,
)
from actors.runtime.oci.spec.mounts import (
    MOST_DECLARED,
    BadMount,
    SandboxFiles,
    declared_volumes,
    require_propagation,
)
from actors.runtime.oci.spec.security import CAPABILITIES, bounding_set, capabilities
from actors.runtime.oci.spec.users import NoSuchUser, User, choose
from actors.runtime.sandboxes import pause
from actors.runtime.selinux.labels import Labels
from proto.common.machine.mountinfo import Mount
from proto.cri import api_pb2 as pb

PASSWD = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1001:App:/home/app:/bin/sh\nbroken\nbad:x:minus:0:::\n"
GROUP = "root:x:0:\napp:x:1001:\nextra:x:2000:app,root\nmore:x:2001:app\nbroken\n"
MACHINE = Machine(unified=False, capabilities=tuple(f"CAP_{name}" for name in CAPABILITIES))
NAMESPACES = {"mount": "", "network": "/ns/net", "ipc": "/ns/ipc", "uts": "/ns/uts", "pid": ""}


def place(**changes: Any) -> Place:
    values: dict[str, Any] = {
        "container_id": "c1",
        "rootfs": "/run/rootfs/c1",
        "cgroup_parent": "/kubepods/podx",
        "hostname": "web",
        "namespaces": NAMESPACES,
        "files": SandboxFiles("/s/hosts", "/s/hostname", "/s/resolv.conf", "/s/shm"),
    }
    return Place(**(values | changes))


def spec(config: pb.ContainerConfig, machine: Machine = MACHINE, **changes: Any) -> dict[str, Any]:
    if not config.command:
        config.command.append("sh")
    return specification(config, Execution(), User(0, 0, (0,)), place(**changes), machine)


def container(**context: Any) -> pb.ContainerConfig:
    return pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name="main"),
        linux=pb.LinuxContainerConfig(security_context=pb.LinuxContainerSecurityContext(**context)),
    )


@pytest.mark.parametrize(
    ("command", "args", "entrypoint", "cmd", "expected"),
    [
        ([], [], ["/entry"], ["a"], ["/entry", "a"]),
        ([], ["b"], ["/entry"], ["a"], ["/entry", "b"]),
        (["/mine"], [], ["/entry"], ["a"], ["/mine"]),
        (["/mine"], ["b"], ["/entry"], ["a"], ["/mine", "b"]),
        ([], [], None, ["a"], ["a"]),
    ],
)
def test_command_and_arguments(
    command: list[str], args: list[str], entrypoint: list[str] | None, cmd: list[str], expected: list[str]
) -> None:
    config = pb.ContainerConfig(command=command, args=args)
    assert arguments(config, Execution(entrypoint=entrypoint, cmd=cmd)) == expected


def test_missing_command_is_an_error() -> None:
    with pytest.raises(BadContainer, match="no command specified"):
        arguments(pb.ContainerConfig(), Execution())


def test_later_variables_replace_earlier_ones() -> None:
    config = pb.ContainerConfig(envs=[pb.KeyValue(key="A", value=b"pod"), pb.KeyValue(key="HOSTNAME", value=b"other")])
    found = environment(config, Execution(env=["A=image", "PATH=/bin", "B=x=y"]), "web", User(5, 5, (), "/home/x"))
    assert found == ["PATH=/bin", "HOSTNAME=other", "A=pod", "B=x=y", "HOME=/home/x"]


def int64(value: int) -> pb.Int64Value:
    return pb.Int64Value(value=value)


USERS: dict[str, tuple[dict[str, Any], str, tuple[int, int, tuple[int, ...]]]] = {
    "nothing said": ({}, "", (0, 0, (0, 2000))),
    "image user by name": ({}, "app", (1000, 1001, (1001, 2000, 2001))),
    "image user and group": ({}, "app:extra", (1000, 2000, (2000, 2001))),
    "image user by number": ({}, "1000:7", (1000, 7, (7, 2000, 2001))),
    "unknown number": ({}, "4242", (4242, 0, (0,))),
    "asked for by number": ({"run_as_user": int64(1000)}, "root", (1000, 1001, (1001, 2000, 2001))),
    "asked for with group": ({"run_as_user": int64(7), "run_as_group": int64(8)}, "", (7, 8, (8,))),
    "asked for by name": ({"run_as_username": "app"}, "", (1000, 1001, (1001, 2000, 2001))),
    "supplemental": ({"run_as_user": int64(9), "supplemental_groups": [30, 20]}, "", (9, 0, (0, 20, 30))),
    "strict": (
        {"run_as_user": int64(1000), "supplemental_groups": [30], "supplemental_groups_policy": pb.Strict},
        "",
        (1000, 1001, (30, 1001)),
    ),
}


@pytest.mark.parametrize("name", USERS)
def test_user_of_the_process(name: str) -> None:
    context, image, expected = USERS[name]
    user = choose(pb.LinuxContainerSecurityContext(**context), image, PASSWD, GROUP)
    assert (user.uid, user.gid, user.groups) == expected


@pytest.mark.parametrize(
    ("context", "image"), [({}, "nobody-here"), ({}, "app:nogroup"), ({"run_as_username": "x"}, "")]
)
def test_missing_user_is_an_error(context: Mapping[str, Any], image: str) -> None:
    with pytest.raises(NoSuchUser, match="in the image's /etc/"):
        choose(pb.LinuxContainerSecurityContext(**context), image, PASSWD, GROUP)


def test_a_group_without_a_user_is_refused() -> None:
    with pytest.raises(NoSuchUser, match="run_as_group is set without"):
        choose(pb.LinuxContainerSecurityContext(run_as_group=int64(8)), "app", PASSWD, GROUP)


def caps(add: list[str] = [], drop: list[str] = [], **context: Any) -> set[str]:  # noqa: B006 - read only
    changes = pb.Capability(add_capabilities=add, drop_capabilities=drop)
    found = capabilities(pb.LinuxContainerSecurityContext(capabilities=changes, **context), MACHINE.capabilities)
    assert found["bounding"] == found["effective"] == found["permitted"]
    return set(found["bounding"])


def test_capabilities() -> None:
    assert "CAP_NET_ADMIN" not in caps()
    assert "CAP_CHOWN" in caps()
    assert "CAP_NET_ADMIN" in caps(["NET_ADMIN"])
    assert "CAP_CHOWN" not in caps(drop=["CHOWN"])
    assert caps(drop=["ALL"]) == set()
    assert caps(["NET_BIND_SERVICE"], ["ALL"]) == {"CAP_NET_BIND_SERVICE"}
    assert caps(["ALL"]) == set(MACHINE.capabilities)
    assert caps(["ALL"], ["SYS_ADMIN"]) == set(MACHINE.capabilities) - {"CAP_SYS_ADMIN"}
    assert caps(privileged=True) == set(MACHINE.capabilities)


def test_bounding_set_is_read_by_capability_number() -> None:
    assert bounding_set(0b101) == ["CAP_CHOWN", "CAP_DAC_READ_SEARCH"]
    assert bounding_set(0) == []


def test_privileged_has_no_filter_no_masks_and_every_device() -> None:
    config = container(privileged=True, masked_paths=["/proc/kcore"], readonly_paths=["/proc/sys"])
    config.linux.security_context.seccomp.profile_type = pb.SecurityProfile.RuntimeDefault
    linux = spec(config)["linux"]
    assert "seccomp" not in linux
    assert "maskedPaths" not in linux
    assert linux["resources"]["devices"] == [{"allow": True, "access": "rwm"}]
    assert "/dev/null" in {device["path"] for device in linux["devices"]}


def test_privileged_has_a_given_device_at_its_path() -> None:
    config = container(privileged=True)
    config.devices.add(host_path="/dev/zero", container_path="/dev/null")
    config.devices.add(host_path="/dev/zero", container_path="/dev/gpu0")
    devices = spec(config)["linux"]["devices"]
    found = [(one["path"], one["minor"]) for one in devices if one["path"] in ("/dev/null", "/dev/gpu0")]
    assert found == [("/dev/null", 5), ("/dev/gpu0", 5)]


def test_paths_are_masked_and_devices_denied_by_default() -> None:
    linux = spec(container(masked_paths=["/proc/kcore"], readonly_paths=["/proc/sys"]), masked=("/var/lib/kubelet",))[
        "linux"
    ]
    assert linux["maskedPaths"] == ["/proc/kcore", "/var/lib/kubelet"]
    assert linux["readonlyPaths"] == ["/proc/sys"]
    assert linux["resources"]["devices"][0] == {"allow": False, "access": "rwm"}


def test_namespaces_are_joined_by_path() -> None:
    found = {one["type"]: one.get("path") for one in spec(container())["linux"]["namespaces"]}
    assert found == {"mount": None, "network": "/ns/net", "ipc": "/ns/ipc", "uts": "/ns/uts", "pid": None}


def test_container_always_has_its_own_mount_namespace() -> None:
    with pytest.raises(BadContainer, match="mount namespace"):
        spec(container(), namespaces={"pid": ""})


def test_requested_mounts_replace_ours_outer_ones_first() -> None:
    config = container()
    config.mounts.extend(
        [
            pb.Mount(container_path="/data/inner", host_path="/h/2"),
            pb.Mount(container_path="/data", host_path="/h/1", readonly=True),
            pb.Mount(container_path="/etc/hosts", host_path="/h/hosts"),
            pb.Mount(container_path="/shared", host_path="/h/3", propagation=pb.PROPAGATION_BIDIRECTIONAL),
        ]
    )
    found = spec(config)
    by_destination = {one["destination"]: one for one in found["mounts"]}
    assert len(by_destination) == len(found["mounts"])
    assert by_destination["/etc/hosts"]["source"] == "/h/hosts"
    order = [one["destination"] for one in found["mounts"]]
    assert order.index("/data") < order.index("/data/inner")
    assert by_destination["/data"]["options"] == ["rbind", "rprivate", "ro"]
    assert by_destination["/shared"]["options"] == ["rbind", "rshared", "rw"]
    assert found["linux"]["rootfsPropagation"] == "rshared"


def test_image_mounts_are_always_read_only() -> None:
    config = container()
    config.mounts.append(pb.Mount(container_path="/data", host_path="/h/1"))
    config.mounts.append(pb.Mount(container_path="/data/image/", image=pb.ImageSpec(image="x"), readonly=False))
    (mount,) = [one for one in spec(config, images={1: "/run/1/part"})["mounts"] if one["source"] == "/run/1/part"]
    assert mount["destination"] == "/data/image"
    assert mount["options"] == ["bind", "rprivate", "ro", "nosuid", "nodev"]


@pytest.mark.parametrize(
    "mount",
    [
        pb.Mount(container_path="relative", host_path="/h"),
        pb.Mount(container_path="/d", host_path="/h", recursive_read_only=True),
        pb.Mount(container_path="/d", host_path="/h", mount_options=["noexec", "suid"]),
        pb.Mount(container_path="/d", image=pb.ImageSpec(image="x")),
    ],
)
def test_impossible_mounts_are_refused(mount: pb.Mount) -> None:
    config = container()
    config.mounts.append(mount)
    with pytest.raises(BadMount):
        spec(config)


def test_declared_volumes_are_writable_outer_mounts_first() -> None:
    config = container(readonly_rootfs=True)
    config.mounts.append(pb.Mount(container_path="/data/in", host_path="/h/1"))
    found = spec(config, declared={"/data/in/deep": "/c/0", "/data": "/c/1", "/dev/shm": "/c/2"})["mounts"]
    bound = {one["source"]: one for one in found}
    assert [one["source"] for one in found if one["source"].startswith(("/c/", "/h/"))] == [
        "/c/1",
        "/h/1",
        "/c/2",
        "/c/0",
    ]
    assert (bound["/c/1"]["destination"], bound["/c/1"]["options"]) == ("/data", ["rbind", "rprivate", "rw"])
    assert "/s/shm" not in bound, "the image's own goes before the sandbox's"


def test_mounts_of_a_parent_hide_no_file_of_the_pod() -> None:
    config = container()
    config.mounts.append(pb.Mount(container_path="/dev", host_path="/h/dev"))
    order = [one["destination"] for one in spec(config, declared={"/etc": "/c/0"})["mounts"]]
    for outer, inner in (("/etc", "/etc/resolv.conf"), ("/etc", "/etc/hostname"), ("/dev", "/dev/shm")):
        assert order.index(outer) < order.index(inner)
    assert order.count("/dev") == 2, "the kernel's goes first"


def test_declared_volumes_stay_in_the_root() -> None:
    config = pb.ContainerConfig(mounts=[pb.Mount(container_path="/cri/", host_path="/h")])
    told = ["/data", "/data/", "//data", "data", "/../../etc/x", "a/../b", "/cri", "/cri/in", "/proc/uptime"]
    found = declared_volumes(told, config)
    assert found == ("/data", "/etc/x", "/b", "/cri/in", "/proc/uptime")
    assert len(declared_volumes((f"/v{number}" for number in range(MOST_DECLARED)), config)) == MOST_DECLARED


@pytest.mark.parametrize(
    "told",
    [
        *(["/"], [""], [".."], ["/a/.."], ["/a\0b"], [f"/{'long/' * 1000}"]),
        *(["/proc"], ["/proc/sys"], ["/x/../proc/self"]),
        [f"/v{number}" for number in range(MOST_DECLARED + 1)],
    ],
)
def test_hostile_declared_volumes_are_refused(told: list[str]) -> None:
    with pytest.raises(BadMount, match="cannot make the image's VOLUME"):
        declared_volumes(told, pb.ContainerConfig())


PRIVATE, SLAVE, BOTH_WAYS = pb.PROPAGATION_PRIVATE, pb.PROPAGATION_HOST_TO_CONTAINER, pb.PROPAGATION_BIDIRECTIONAL


@pytest.mark.parametrize(
    ("spread", "shared", "slave", "why"),
    [
        (PRIVATE, False, False, ""),
        (SLAVE, False, False, "not a shared or slave mount"),
        (SLAVE, True, False, ""),
        (SLAVE, False, True, ""),
        (BOTH_WAYS, False, False, "not a shared mount"),
        (BOTH_WAYS, False, True, "not a shared mount"),
        (BOTH_WAYS, True, True, ""),
    ],
)
def test_propagation_needs_a_mount_that_propagates(spread: Any, shared: bool, slave: bool, why: str) -> None:
    on = Mount(1, "8:1", "/", shared, "ext4", "rw", slave)
    if not why:
        require_propagation("/var/lib", spread, on)
        return
    with pytest.raises(BadMount, match=f'path "/var/lib" is mounted on "/" but it is {why}'):
        require_propagation("/var/lib", spread, on)


def test_unset_resources_are_left_out() -> None:
    assert resources(pb.LinuxContainerResources(), hugetlb=True) == {}
    told = pb.LinuxContainerResources(cpu_shares=512, memory_limit_in_bytes=1 << 20, unified={"memory.high": "1"})
    assert resources(told, hugetlb=True) == {
        "cpu": {"shares": 512},
        "memory": {"limit": 1 << 20},
        "unified": {"memory.high": "1"},
    }


def test_huge_page_limits_need_kernel_support() -> None:
    told = pb.LinuxContainerResources(hugepage_limits=[pb.HugepageLimit(page_size="2MB", limit=0)])
    assert resources(told, hugetlb=True) == {"hugepageLimits": [{"pageSize": "2MB", "limit": 0}]}
    assert resources(told, hugetlb=False) == {}


def test_cgroup_path_has_the_drivers_syntax() -> None:
    assert spec(container())["linux"]["cgroupsPath"] == "/kubepods/podx/c1"
    systemd = Machine(unified=True, capabilities=(), systemd_cgroups=True)
    found = spec(container(), systemd, cgroup_parent="/kubepods.slice/kubepods-podx.slice")
    assert found["linux"]["cgroupsPath"] == "kubepods-podx.slice:nodevisor:c1"


def test_selinux_labels_are_those_of_process_and_mounts() -> None:
    labels = Labels("u:r:p:s0:c1,c2", "u:r:f:s0:c1,c2")
    found = spec(container(), labels=labels)
    assert (found["process"]["selinuxLabel"], found["linux"]["mountLabel"]) == labels
    assert exec_process(found["process"], ["true"], tty=False)["selinuxLabel"] == labels.process


def test_privileged_container_has_a_mount_label_only() -> None:
    found = spec(container(privileged=True), labels=Labels("u:r:p:s0", "u:r:f:s0"))
    assert "selinuxLabel" not in found["process"]
    assert found["linux"]["mountLabel"] == "u:r:f:s0"


def test_no_label_is_in_the_specification_without_selinux() -> None:
    found = spec(container(selinux_options=pb.SELinuxOption(level="s0")))
    assert "selinuxLabel" not in found["process"]
    assert "mountLabel" not in found["linux"]


def test_oom_score_is_raised_to_the_lowest_allowed() -> None:
    config = container()
    config.linux.resources.oom_score_adj = -998
    limited = Machine(unified=False, capabilities=(), lowest_oom_score_adj=-10)
    assert spec(config, limited)["process"]["oomScoreAdj"] == -10
    assert spec(config)["process"]["oomScoreAdj"] == -998


def test_pause_processes_share_a_root_but_no_dev(tmp_path: Path) -> None:
    """runc makes links in /dev, and fails when another runc has made them."""
    mounts = pause.specification(tmp_path, tmp_path / "fifo", "/pods/c1", 0, {})["mounts"]
    assert [one["type"] for one in mounts if one["destination"] == "/dev"] == ["tmpfs"]


POD_USERS = UserMapping(65_536, 65_536)
IDS = [pb.IDMapping(host_id=65_536, container_id=0, length=65_536)]


def test_users_of_the_pod_are_in_the_specification() -> None:
    config = container()
    config.mounts.append(pb.Mount(host_path="/v", container_path="/v", uidMappings=IDS, gidMappings=IDS))
    config.mounts.append(pb.Mount(host_path="/plain", container_path="/plain"))
    made = spec(
        config, namespaces=NAMESPACES | {"user": "/ns/user"}, users=POD_USERS, declared={"/data": "/c/volumes/0"}
    )
    assert {"type": "user", "path": "/ns/user"} in made["linux"]["namespaces"]
    assert made["linux"]["uidMappings"] == made["linux"]["gidMappings"] == POD_USERS.to_oci()
    mapped = {one["destination"] for one in made["mounts"] if one.get("uidMappings") == POD_USERS.to_oci()}
    assert mapped == {"/v", "/data", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}
    plain = spec(container())
    assert "uidMappings" not in plain["linux"]
    assert not any("uidMappings" in one for one in plain["mounts"])


@pytest.mark.parametrize(
    ("changes", "users", "message"),
    [
        ({"uidMappings": IDS, "gidMappings": IDS}, None, r"mounts\[0\].uidMappings: the pod has no user namespace"),
        ({"gidMappings": IDS}, POD_USERS, r"mounts\[0\].gidMappings: they are not the pod's"),
        ({"uidMappings": IDS * 2, "gidMappings": IDS}, POD_USERS, r"mounts\[0\].uidMappings: they are not the pod's"),
        ({"propagation": pb.PROPAGATION_BIDIRECTIONAL}, POD_USERS, r"mounts\[0\].propagation Bidirectional"),
    ],
)
def test_mount_with_other_users_is_refused(changes: Any, users: UserMapping | None, message: str) -> None:
    config = container()
    config.mounts.append(pb.Mount(host_path="/v", container_path="/v", **changes))
    with pytest.raises(BadMount, match=message):
        spec(config, users=users)


def test_device_of_another_path_is_mounted_in_a_user_namespace() -> None:
    config = container()
    config.devices.append(pb.Device(host_path="/dev/zero", container_path="/dev/mine", permissions="r"))
    config.devices.append(pb.Device(host_path="/dev/full", container_path="/dev/full", permissions="r"))
    made = spec(config, users=POD_USERS)
    assert [one["path"] for one in made["linux"]["devices"]] == ["/dev/full"]
    (bound,) = [one for one in made["mounts"] if one["destination"] == "/dev/mine"]
    assert (bound["type"], bound["source"]) == ("bind", "/dev/zero")
    rules = made["linux"]["resources"]["devices"]
    assert {"allow": True, "type": "c", "major": 1, "minor": 5, "access": "r"} in rules
    assert len(spec(config)["linux"]["devices"]) == 2

"""critest's expectations of namespaces, users, privileges and mounts that no other test covers."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from actors._cgroup.hierarchy import hierarchy
from actors._host.files import mounts
from actors.runtime.oci.spec.security import apparmor
from proto.cri import api_pb2 as pb
from tests.containerd.images import BUSYBOX, PYTHON, Image, python
from tests.runtime.critest.critest import CALL_S, Critest, Pod, refused
from tests.runtime.inside import BRIDGE, LISTENING, RAW_SOCKET, listens
from tests.runtime.instance import EmbeddedInstance, wait_for
from tests.suite.needs import NEEDS

GROUPS = Image(
    "registry.test/groups:1",
    files={
        "/etc/passwd": b"default-user:x:1000:1000::/:/bin/sh\n",
        "/etc/group": b"in-image:x:50000:default-user\n",
    },
)
REFUSING = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"action": "SCMP_ACT_ERRNO"}]}
"""critest's profiles, which have no architectures and no errno."""


@pytest.fixture(scope="module")
def critest(embedded: EmbeddedInstance) -> Iterator[Critest]:
    embedded.import_images([GROUPS, python()])
    client = Critest(embedded.endpoint)
    yield client
    client.close()
    embedded.remove_pods()


@pytest.fixture(scope="module")
def pod(critest: Critest) -> Pod:
    """A sandbox for most tests."""
    own_namespaces = NEEDS["mounts"].is_met()  # without them the runtime refuses sysctls
    return critest.pod(
        sysctls={"kernel.shm_rmid_forced": "1", "fs.mqueue.msg_max": "100"} if own_namespaces else {},
        hostname="test-hostname",
        dns_config=pb.DNSConfig(servers=["10.10.10.10"], searches=["google.com"], options=["ndots:8"]),
    )


@pytest.mark.needs("mounts")
def test_host_name_and_sysctls_of_a_pod(critest: Critest, pod: Pod) -> None:
    container = critest.run(pod)
    assert critest.exec(container, "hostname") == ("test-hostname\n", "", 0)
    resolver = critest.exec(container, "cat", "/etc/resolv.conf").out
    assert resolver.splitlines() == ["search google.com", "nameserver 10.10.10.10", "options ndots:8"]
    settings = "/proc/sys/kernel/shm_rmid_forced", "/proc/sys/fs/mqueue/msg_max"
    assert critest.exec(container, "cat", *settings).out == "1\n100\n"
    made = critest.exec(container, "mkdir", f"/sys/fs/cgroup/{'' if hierarchy().unified else 'memory/'}critest")
    assert made.code != 0
    assert "Read-only file system" in made.err


# Namespaces


def options(**modes: Any) -> pb.NamespaceOption:
    return pb.NamespaceOption(**modes)


@contextlib.contextmanager
def shared_memory() -> Iterator[str]:
    """The ID of a shared memory segment of the machine."""
    libc = ctypes.CDLL(None, use_errno=True)
    id_ = libc.shmget(0, 4096, 0o1600)  # IPC_PRIVATE, IPC_CREAT
    assert id_ >= 0
    try:
        yield str(id_)
    finally:
        libc.shmctl(id_, 0, None)  # IPC_RMID


def test_host_namespaces_if_requested(critest: Critest) -> None:
    wanted = options(pid=pb.NODE, ipc=pb.NODE, network=pb.NODE)
    pod = critest.pod(context={"namespace_options": wanted})
    container = critest.run(pod, context={"namespace_options": wanted})
    with shared_memory() as id_, contextlib.closing(socket.create_server(("", 0))) as listener:
        segments = critest.exec(container, "awk", "{print $2}", "/proc/sysvipc/shm").out.split()
        assert id_ in segments
        assert listens(critest.exec(container, *LISTENING).out, listener.getsockname()[1])
    own = int(critest.exec(container, "sh", "-c", "echo $$").out)
    assert own > 100
    assert f" {os.getpid()} " in f" {critest.exec(container, 'sh', '-c', 'cd /proc; echo *').out} "
    critest.remove(pod)


@pytest.mark.needs("mounts")
def test_pod_namespaces_by_default(critest: Critest, pod: Pod) -> None:
    container = critest.run(pod)
    with shared_memory() as id_, contextlib.closing(socket.create_server(("", 0))) as listener:
        assert id_ not in critest.exec(container, "awk", "{print $2}", "/proc/sysvipc/shm").out.split()
        assert not listens(critest.exec(container, *LISTENING).out, listener.getsockname()[1])
    assert "tail" not in critest.exec(container, "cat", "/proc/1/cmdline").out


def test_container_with_its_own_pid_namespace_has_pid_1(critest: Critest) -> None:
    alone = options(pid=pb.CONTAINER)
    pod = critest.pod(context={"namespace_options": alone})
    container = critest.run(pod, context={"namespace_options": alone})
    # The OCI runtime reports the start when its init may execute the command, which happens a moment later.
    wait_for(lambda: critest.exec(container, "cat", "/proc/1/cmdline").out.endswith("/dev/null\0"))
    critest.remove(pod)


def test_target_is_a_container_of_the_same_pod(critest: Critest, pod: Pod) -> None:
    other = critest.pod()
    target = critest.run(other)
    shares = options(pid=pb.TARGET, target_id=target)
    with pytest.raises(grpc.RpcError, match="does not belong to sandbox"):
        critest.create(pod, context={"namespace_options": shares})
    assert critest.create(other, context={"namespace_options": shares})
    critest.remove(other)


@pytest.mark.parametrize("mode", [pb.POD, pb.CONTAINER, pb.TARGET])
def test_user_namespace_only_where_status_offers_it(critest: Critest, pod: Pod, mode: Any) -> None:
    mapped = [pb.IDMapping(host_id=100000, container_id=0, length=65536)]
    wanted = {"namespace_options": options(userns_options=pb.UserNamespace(mode=mode, uids=mapped, gids=mapped))}
    offered = critest.runtime.Status(pb.StatusRequest(), timeout=CALL_S).runtime_handlers[0].features.user_namespaces
    if mode == pb.POD and offered:
        own = critest.pod(context=wanted)
        container = critest.run(own, context=wanted)
        assert critest.exec(container, "cat", "/proc/self/uid_map").out.split() == ["0", "100000", "65536"]
    else:
        with pytest.raises(grpc.RpcError, match=r"user namespaces are not supported|userns_options.mode is"):
            critest.pod(context=wanted)
    with pytest.raises(grpc.RpcError, match=r"user namespaces are not|of the container differs|userns_options.mode is"):
        critest.create(pod, context=wanted)
    assert critest.create(pod, context={"namespace_options": options(userns_options=pb.UserNamespace(mode=pb.NODE))})


def test_privileged_container_needs_a_privileged_pod(critest: Critest, pod: Pod) -> None:
    config = pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name="mighty"), image=pb.ImageSpec(image=BUSYBOX), command=["true"]
    )
    config.linux.security_context.privileged = True
    request = pb.CreateContainerRequest(pod_sandbox_id=pod.id, config=config, sandbox_config=pod.config)
    assert refused(critest.runtime.CreateContainer, request) == "INVALID_ARGUMENT"
    request.ClearField("sandbox_config")
    assert refused(critest.runtime.CreateContainer, request) == "INVALID_ARGUMENT", "the sandbox's own counts then"
    request.sandbox_config.linux.security_context.privileged = True
    assert critest.runtime.CreateContainer(request, timeout=CALL_S).container_id


# Users


@pytest.mark.parametrize(("policy", "groups"), [(pb.Merge, [1000, 1234, 50000]), (pb.Strict, [1000, 1234])])
@pytest.mark.needs("mounts")
def test_groups_of_processes_follow_the_policy(critest: Critest, pod: Pod, policy: Any, groups: list[int]) -> None:
    context = {
        "run_as_user": pb.Int64Value(value=1000),
        "supplemental_groups": [1234],
        "supplemental_groups_policy": policy,
    }
    container = critest.run(
        pod, ["sh", "-c", "id -G > /tmp/first; tail -f /dev/null"], image=GROUPS.name, context=context
    )
    told = critest.status(container).user.linux
    assert (told.uid, told.gid, list(told.supplemental_groups)) == (1000, 1000, groups)
    said = " ".join(map(str, groups)) + "\n"
    assert critest.exec(container, "id", "-G") == (said, "", 0)
    wait_for(lambda: critest.exec(container, "cat", "/tmp/first").out)
    assert critest.exec(container, "cat", "/tmp/first").out == said


def test_user_by_name_and_user_with_group(critest: Critest, pod: Pod) -> None:
    assert critest.exec(critest.run(pod, context={"run_as_username": "nobody"}), "id", "-nu").out == "nobody\n"
    numbers = {"run_as_user": pb.Int64Value(value=1001), "run_as_group": pb.Int64Value(value=1002)}
    container = critest.run(pod, context=numbers)
    assert critest.exec(container, "sh", "-c", "echo $(id -u):$(id -g)").out == "1001:1002\n"


def test_a_group_without_a_user_is_refused(critest: Critest, pod: Pod) -> None:
    config = pb.ContainerConfig(metadata=pb.ContainerMetadata(name="g"), image=pb.ImageSpec(image=GROUPS.name))
    config.linux.security_context.run_as_group.value = 1002
    request = pb.CreateContainerRequest(pod_sandbox_id=pod.id, config=config, sandbox_config=pod.config)
    assert refused(critest.runtime.CreateContainer, request) == "INVALID_ARGUMENT"


# Privileges


@pytest.mark.needs("mounts")
def test_capabilities_are_added_and_dropped(critest: Critest, pod: Pod) -> None:
    plain, admin, privileged, raw = (
        critest.run(pod, image=PYTHON, context=context)
        for context in (
            {},
            {"capabilities": pb.Capability(add_capabilities=["NET_ADMIN"])},
            {"privileged": True},
            {"capabilities": pb.Capability(drop_capabilities=["NET_RAW"])},
        )
    )
    assert critest.exec(plain, *BRIDGE).code != 0
    assert critest.exec(admin, *BRIDGE) == ("", "", 0)
    assert critest.exec(privileged, *BRIDGE) == ("", "", 0)
    assert critest.exec(plain, *RAW_SOCKET) == ("", "", 0)
    pinged = critest.exec(raw, *RAW_SOCKET)
    assert pinged.code != 0
    assert "Operation not permitted" in pinged.err
    for add, drop, none in ((["ALL"], [], False), ([], ["ALL"], True)):
        changes = pb.Capability(add_capabilities=add, drop_capabilities=drop)
        container = critest.run(pod, context={"capabilities": changes})
        bounding = critest.exec(container, "grep", "CapBnd", "/proc/self/status").out.split()[1]
        assert (bounding == "0" * 16) == none


def test_paths_are_read_only_and_masked(critest: Critest, pod: Pod) -> None:
    container = critest.run(pod, context={"readonly_paths": ["/tmp"], "masked_paths": ["/etc/group"]})
    touched = critest.exec(container, "touch", "/tmp/test")
    assert (touched.out, touched.code) == ("", 1)
    assert "Read-only file system" in touched.err
    assert critest.exec(container, "cat", "/etc/group") == ("", "", 0)


@pytest.mark.parametrize("privileges", [False, True])
def test_no_new_privileges(critest: Critest, pod: Pod, privileges: bool) -> None:
    container = critest.run(pod, context={"no_new_privs": not privileges})
    assert critest.exec(container, "grep", "NoNewPrivs", "/proc/self/status").out.split()[1] == str(int(not privileges))
    (root,) = [line for line in critest.exec(container, "cat", "/proc/mounts").out.splitlines() if " / " in line]
    assert "nosuid" not in root


def profile(directory: Path, *calls: str) -> pb.SecurityProfile:
    told = json.loads(json.dumps(REFUSING))
    told["syscalls"][0]["names"] = calls
    path = directory / f"{calls[0]}.json"
    path.write_text(json.dumps(told))
    return pb.SecurityProfile(profile_type=pb.SecurityProfile.Localhost, localhost_ref=str(path))


@pytest.mark.needs("mounts")
def test_seccomp_profiles(critest: Critest, pod: Pod, tmp_path: Path) -> None:
    unconfined = pb.SecurityProfile(profile_type=pb.SecurityProfile.Unconfined)
    for seccomp, kind in ((None, "0"), (unconfined, "0"), (pb.SecurityProfile(), "2")):
        container = critest.run(pod, context={"seccomp": seccomp})
        assert critest.exec(container, "grep", "Seccomp:", "/proc/self/status").out.split() == ["Seccomp:", kind]
    container = critest.run(pod, context={"seccomp": profile(tmp_path, "chmod", "fchmodat")})
    denied = critest.exec(container, "chmod", "400", "/")
    assert denied.code != 0
    assert "Operation not permitted" in denied.err
    admin = pb.Capability(add_capabilities=["SYS_ADMIN"])
    blocked = profile(tmp_path, "sethostname")
    for context, code in (
        ({"seccomp": unconfined, "capabilities": admin}, 0),
        ({"seccomp": blocked, "capabilities": admin}, 1),
        ({"seccomp": blocked, "privileged": True}, 0),
    ):
        container = critest.run(pod, context=context)
        assert critest.exec(container, "hostname", "test-hostname").code == code


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({}, ""),
        ({"apparmor": pb.SecurityProfile()}, ""),
        ({"apparmor_profile": "runtime/default"}, ""),
        ({"apparmor_profile": "localhost/there"}, "there"),
        ({"apparmor_profile": "localhost/not"}, ValueError),
        (
            {
                "apparmor_profile": "localhost/not",
                "apparmor": pb.SecurityProfile(profile_type=2, localhost_ref="localhost/there"),
            },
            "there",
        ),
        ({"apparmor": pb.SecurityProfile(profile_type=2, localhost_ref="not")}, ValueError),
    ],
)
def test_apparmor_profile_has_to_be_loaded(context: dict[str, Any], expected: Any) -> None:
    asked = pb.LinuxContainerSecurityContext(**context)
    if expected is ValueError:
        with pytest.raises(ValueError, match="apparmor profile not found: 'not' is not loaded"):
            apparmor(asked, usable=True, loaded=lambda: ["there"])
        return
    assert apparmor(asked, usable=True, loaded=lambda: ["there"]) == expected
    if expected:
        with pytest.raises(ValueError, match="apparmor profile 'there': not supported"):
            apparmor(asked, usable=False, loaded=list)


@pytest.mark.needs("mounts", "cgroups")
def test_container_over_memory_and_swap_is_oom_killed(critest: Critest, pod: Pod) -> None:
    limits = pb.LinuxContainerResources(memory_limit_in_bytes=15 << 20, memory_swap_limit_in_bytes=15 << 20)
    container = critest.run(pod, ["sh", "-c", "dd if=/dev/zero of=/dev/null bs=20M"], resources=limits)
    ended = critest.wait_exited(container)
    assert (ended.exit_code, ended.reason) == (137, "OOMKilled")


# Mounts


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A shared mount, with a directory `in` to mount on."""
    path = tmp_path / "mnt"
    (path / "in").mkdir(parents=True)
    mounts.bind(str(path), str(path))
    mounts.mount("", str(path), "", "", 1 << 20)  # MS_SHARED
    yield path
    subprocess.run(["umount", "-R", "-l", str(path)], check=True)


@pytest.mark.parametrize(
    ("spread", "inwards", "outwards"),
    [
        (pb.PROPAGATION_PRIVATE, False, False),
        (pb.PROPAGATION_HOST_TO_CONTAINER, True, False),
        (pb.PROPAGATION_BIDIRECTIONAL, True, True),
    ],
)
@pytest.mark.needs("mounts")
def test_mount_propagation(
    critest: Critest, pod: Pod, shared: Path, spread: Any, inwards: bool, outwards: bool
) -> None:
    mount = pb.Mount(host_path=str(shared), container_path=str(shared), propagation=spread)
    container = critest.run(pod, mounts=[mount], context={"privileged": True})
    assert list(critest.status(container).mounts) == [mount]
    mounts.bind("/etc", str(shared / "in"))
    assert bool(critest.exec(container, "ls", "-A", str(shared / "in")).out) == inwards
    out = shared / "out"
    assert critest.exec(container, "sh", "-c", f"mkdir {out}; mount --bind /etc {out}") == ("", "", 0)
    assert bool(list(out.iterdir())) == outwards
    critest.runtime.RemoveContainer(pb.RemoveContainerRequest(container_id=container), timeout=CALL_S)


@pytest.mark.parametrize(
    ("mode", "inwards", "outwards"),
    [(1 << 18, False, False), (1 << 19, True, False), (1 << 20, True, True)],  # MS_PRIVATE, MS_SLAVE, MS_SHARED
)
@pytest.mark.needs("mounts")
def test_propagation_from_a_mount_that_has_none_is_refused(
    critest: Critest, pod: Pod, shared: Path, mode: int, inwards: bool, outwards: bool
) -> None:
    (shared / "in").rmdir()
    (shared / "in").symlink_to(shared / "real")
    (shared / "real").mkdir()
    mounts.mount("none", str(shared / "real"), "tmpfs", "", 0)
    mounts.bind(str(shared / "real"), str(shared / "real"))  # a peer, which a slave needs
    mounts.mount("", str(shared / "real"), "", "", mode)
    for spread, fits in ((pb.PROPAGATION_HOST_TO_CONTAINER, inwards), (pb.PROPAGATION_BIDIRECTIONAL, outwards)):
        mount = pb.Mount(host_path=str(shared / "in"), container_path="/mnt", propagation=spread)
        if fits:
            critest.create(pod, mounts=[mount])
            continue
        with pytest.raises(grpc.RpcError, match=f'path "{shared}/real" is mounted on "{shared}/real" but it is not a'):
            critest.create(pod, mounts=[mount])


@pytest.mark.parametrize("recursive", [False, True])
@pytest.mark.needs("mounts")
def test_read_only_and_recursively_read_only_mounts(critest: Critest, pod: Pod, shared: Path, recursive: bool) -> None:
    mounts.mount("none", str(shared / "in"), "tmpfs", "", 0)
    mount = pb.Mount(host_path=str(shared), container_path="/mnt", readonly=True, recursive_read_only=recursive)
    container = critest.run(pod, mounts=[mount])
    said = critest.exec(container, "touch", "/mnt/in/file", "/mnt/file").err
    assert said.count("Read-only file system") == 1 + recursive
    critest.runtime.RemoveContainer(pb.RemoveContainerRequest(container_id=container), timeout=CALL_S)


@pytest.mark.needs("mounts")
def test_mount_options(critest: Critest, pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "program").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "program").chmod(0o755)
    given = pb.Mount(host_path=str(tmp_path), container_path="/plain")
    limited = pb.Mount(host_path=str(tmp_path), container_path="/limited", mount_options=["noexec", "nodev", "nosuid"])
    container = critest.run(pod, mounts=[given, limited])
    assert critest.exec(container, "/plain/program").out == "ran\n"
    assert "ermission denied" in critest.exec(container, "sh", "-c", "/limited/program").err
    assert critest.runtime.Status(pb.StatusRequest(), timeout=CALL_S).features.mount_options


def test_mount_source_may_be_a_link_or_missing(critest: Critest, pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/testVolume.file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    paths = [str(tmp_path / name) for name in ("link", "missing/deep")]
    container = critest.run(pod, mounts=[pb.Mount(host_path=path, container_path=path) for path in paths])
    assert critest.exec(container, "ls", "-A", *paths).out.split() == [
        f"{paths[0]}:", "testVolume.file", f"{paths[1]}:"
    ]  # fmt: skip
    assert critest.exec(container, "touch", f"{paths[1]}/made").code == 0
    assert (tmp_path / "missing/deep/made").exists()

"""Pods with users of their own (`hostUsers: false`) at isolation level 1: owners of files, rights, kills, removal."""

import contextlib
import fcntl
import os
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors._cri.client import Cri
from actors._cri.errors import CriError
from actors._host.files import mounts
from actors.runtime.assembly import data_dir
from actors.runtime.filesystems import shown_mounts
from proto.cri import api_pb2 as pb
from supervisor.cli.streams.transport.remote import exit_code_of
from tests.containerd.images import PYTHON, Image, python
from tests.containerd.pods import container_config, sandbox_config
from tests.runtime.containers.test_containers import pid_of, status, wait_exited
from tests.runtime.inside import BRIDGE
from tests.runtime.instance import EmbeddedInstance, wait_for
from tests.runtime.streaming.clients import SpdySession
from tests.runtime.streaming.test_streaming import V4, exec_url

FIRST, LENGTH = 1 << 20, 65_536
IDS = [pb.IDMapping(host_id=FIRST, container_id=0, length=LENGTH)]
USERS = pb.UserNamespace(mode=pb.POD, uids=IDS, gids=IDS)
OWNED = Image("registry.test/owned:1", files={"/data/seed": b"seed", "/file": b"in the image"}, volumes=["/data"])
_NS_GET_USERNS = 0xB701
_NOSUID, _NODEV, _NOEXEC, _SHARED = 2, 4, 8, 1 << 20

pytestmark = pytest.mark.needs("users of pods")


@pytest.fixture(scope="module")
def instance() -> Iterator[EmbeddedInstance]:
    with EmbeddedInstance(Path(tempfile.mkdtemp(prefix="nvun-")), [OWNED, python()], isolation=1) as made:
        yield made


@pytest.fixture
def cri(instance: EmbeddedInstance) -> Iterator[Cri]:
    yield instance.cri
    instance.remove_pods()
    assert_nothing_left(instance)


def assert_nothing_left(instance: EmbeddedInstance) -> None:
    assert not shown(), "a mount for the users of a pod"
    for name in ("ns", "rootfs", "shm", "volumes"):
        directory = Path(instance.settings.run_dir, "runtime", name)
        assert not directory.exists() or not list(directory.iterdir()), f"in {directory}"


def shown() -> list[str]:
    """Mounts for the users of pods among the machine's."""
    return [one.mount_point for one in mounts.mounts_under(str(shown_mounts.DIRECTORY))]


def pod(cri: Cri, name: str, pid: Any = pb.CONTAINER, **linux: Any) -> tuple[str, pb.PodSandboxConfig]:
    config = sandbox_config(name)
    options = config.linux.security_context.namespace_options
    options.pid = pid
    options.userns_options.CopyFrom(USERS)
    config.linux.MergeFrom(pb.LinuxPodSandboxConfig(**linux))
    return cri.run_pod_sandbox(config).result(), config


def created(cri: Cri, within: tuple[str, pb.PodSandboxConfig], config: pb.ContainerConfig, **context: Any) -> str:
    config.linux.security_context.MergeFrom(pb.LinuxContainerSecurityContext(**context))
    config.linux.security_context.namespace_options.CopyFrom(within[1].linux.security_context.namespace_options)
    return cri.create_container(within[0], config, within[1]).result()


def run(cri: Cri, within: tuple[str, pb.PodSandboxConfig], config: pb.ContainerConfig, **context: Any) -> str:
    container = created(cri, within, config, **context)
    cri.start_container(container).result()
    return container


def said(cri: Cri, container: str, script: str) -> str:
    answer = cri.exec_sync(container, ["sh", "-c", script], 20).result()
    return bytes(answer.stdout + answer.stderr).decode()


def mapped(source: Path | str, target: str, **changes: Any) -> pb.Mount:
    return pb.Mount(host_path=str(source), container_path=target, uidMappings=IDS, gidMappings=IDS, **changes)


def upper_of(instance: EmbeddedInstance, container: str) -> Path:
    return data_dir(instance.settings) / "containers" / container / "upper"


def owner(path: Path | str) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_uid, status.st_gid


def test_status_offers_it(cri: Cri) -> None:
    answer = cri.status().result()
    assert answer.runtime_handlers[0].name == ""
    assert answer.runtime_handlers[0].features.user_namespaces
    assert not answer.features.user_namespaces_host_network


def test_root_in_the_pod_is_another_user_of_the_machine(cri: Cri, instance: EmbeddedInstance) -> None:
    container = run(cri, pod(cri, "ids"), container_config(["sleep", "1000"], image=OWNED.name))
    out = said(cri, container, "cat /proc/self/uid_map /proc/self/gid_map; id -u; stat -c %u:%g / /file /dev/shm")
    numbers = ["0", str(FIRST), str(LENGTH)]
    assert out.split() == [*numbers, *numbers, "0", "0:0", "0:0", "0:0"]
    lines = Path(f"/proc/{pid_of(cri, container)}/status").read_text().splitlines()
    assert [line.split()[1:] for line in lines if line.startswith(("Uid:", "Gid:"))] == [[str(FIRST)] * 4] * 2
    assert said(cri, container, "touch /made /dev/shm/made; chown 7:8 /made; stat -c %u:%g /made").strip() == "7:8"
    assert owner(upper_of(instance, container) / "made") == (FIRST + 7, FIRST + 8)


def test_ordinary_user_and_its_groups_are_mapped(cri: Cri, instance: EmbeddedInstance) -> None:
    user = {"run_as_user": pb.Int64Value(value=1000), "supplemental_groups": [2000]}
    container = run(cri, pod(cri, "user"), container_config(["sleep", "1000"]), **user)
    assert said(cri, container, "id -u; id -G; touch /tmp/made").split()[0] == "1000"
    assert owner(upper_of(instance, container) / "tmp/made")[0] == FIRST + 1000
    groups = next(
        line for line in Path(f"/proc/{pid_of(cri, container)}/status").read_text().splitlines() if "Groups:" in line
    )
    assert str(FIRST + 2000) in groups.split()


def test_files_of_volumes_belong_to_the_same_user_on_both_sides(cri: Cri, tmp_path: Path) -> None:
    volume, secret, unmapped = (tmp_path / name for name in ("volume", "secret", "unmapped"))
    for directory in (volume, secret, unmapped):
        directory.mkdir()
    mounts.mount("tmpfs", str(secret), "tmpfs", "mode=755")
    try:
        (volume / "of-1000").touch()
        os.chown(volume / "of-1000", 1000, 1000)
        (secret / "token").touch(mode=0o600)
        (tmp_path / "last-words").touch(mode=0o644)
        config = container_config(["sleep", "1000"])
        config.mounts.extend([mapped(volume, "/v"), mapped(secret, "/secret", readonly=True)])
        config.mounts.extend([mapped(tmp_path / "last-words", "/dev/termination-log")])
        config.mounts.append(pb.Mount(host_path=str(unmapped), container_path="/unmapped"))
        container = run(cri, pod(cri, "volumes"), config)
        files = "/v /v/of-1000 /secret/token /etc/hosts /etc/hostname /etc/resolv.conf /unmapped"
        told = said(cri, container, f"stat -c %u {files}; echo bye >/dev/termination-log; touch /v/f; mkdir -p /v/d/e")
        assert told.split() == ["0", "1000", "0", "0", "0", "0", "65534"]
        assert [owner(volume / name) for name in ("f", "d/e")] == [(0, 0)] * 2
        assert (tmp_path / "last-words").read_text() == "bye\n"
        refused = said(cri, container, "touch /secret/x; touch /unmapped/x; echo 127.0.0.2 more >>/etc/hosts")
        assert "Read-only file system" in refused
        assert "Permission denied" in refused
        assert "hosts" not in refused
    finally:
        mounts.unmount(str(secret), mounts.MNT_DETACH)


def test_images_and_their_volumes_have_the_pods_users(cri: Cri, instance: EmbeddedInstance) -> None:
    config = container_config(["sleep", "1000"], image=OWNED.name)
    config.mounts.append(mapped("", "/image", image=pb.ImageSpec(image=OWNED.name), readonly=True))
    container = run(cri, pod(cri, "images"), config)
    told = said(cri, container, "stat -c %u /data /data/seed /image /image/file; echo x >/data/x; touch /image/x")
    assert told.split()[:4] == ["0"] * 4
    assert "Read-only file system" in told
    (written,) = (data_dir(instance.settings) / "containers" / container / "volumes").glob("*/x")
    assert owner(written) == (0, 0)


def test_pod_has_no_rights_over_the_machine(cri: Cri, tmp_path: Path) -> None:
    (tmp_path / "root's").touch(mode=0o600)
    config = container_config(["sleep", "1000"])
    config.mounts.append(pb.Mount(host_path=str(tmp_path), container_path="/machine"))
    within = pod(cri, "rights", security_context=pb.LinuxSandboxSecurityContext(privileged=True))
    container = run(cri, within, config, privileged=True)
    assert said(cri, container, "mount -t tmpfs none /tmp && echo mounts in its own namespace").strip() == (
        "mounts in its own namespace"
    )
    attempts = (
        "mknod /disk b 254 0",
        'cat "/machine/root\'s"',
        'chown 0 "/machine/root\'s"',
        "echo 1 >/proc/sys/vm/swappiness",
        "echo h >/proc/sysrq-trigger",
        "chmod 600 /dev/full",
        "mount -o remount,rw /sys/fs/cgroup",
        "chmod 600 /dev/null",
    )
    for attempt in attempts:
        answer = cri.exec_sync(container, ["sh", "-c", attempt], 20).result()
        assert answer.exit_code != 0, f"{attempt}: {answer.stdout!r}"
    assert owner("/dev/null") == (0, 0)


def test_privileged_pod_opens_no_device_of_its_files(cri: Cri, instance: EmbeddedInstance, tmp_path: Path) -> None:
    """Its cgroup lets it open every device. The machine's in /dev belong to another user."""
    layers = list((data_dir(instance.settings) / "images").glob("*/*/fs"))
    assert layers
    nodes = [one / "zero" for one in layers] + [tmp_path / "zero"]
    for one in nodes:
        os.mknod(one, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    try:
        within = pod(cri, "devices", security_context=pb.LinuxSandboxSecurityContext(privileged=True))
        config = container_config(["sleep", "1000"])
        config.mounts.append(mapped(tmp_path, "/v"))
        container = run(cri, within, config, privileged=True)
        told = said(cri, container, "head -c 1 /zero; head -c 1 /v/zero; head -c 5 /dev/zero | wc -c")
        assert told.startswith("5\n")
        assert told.count("ermission denied") == 2
    finally:
        for one in nodes:
            one.unlink()


def test_namespaces_belong_to_the_user_namespace(cri: Cri) -> None:
    within = pod(cri, "owned", sysctls={"net.ipv4.ip_unprivileged_port_start": "512", "kernel.shm_rmid_forced": "1"})
    first, second = (
        run(cri, within, container_config(command, name=name, image=PYTHON), capabilities=more)
        for name, command, more in (
            ("first", ["sleep", "1000"], pb.Capability(add_capabilities=["NET_ADMIN"])),
            ("second", ["sleep", "1000"], pb.Capability()),
        )
    )
    users = f"/proc/{pid_of(cri, first)}/ns/user"
    assert os.readlink(users) != os.readlink("/proc/self/ns/user")
    for kind in ("net", "ipc", "uts", "mnt", "pid"):
        with open(f"/proc/{pid_of(cri, first)}/ns/{kind}", "rb") as namespace:
            above = fcntl.ioctl(namespace, _NS_GET_USERNS)
            assert os.fstat(above).st_ino == os.stat(users).st_ino, kind
            os.close(above)
    for kind in ("user", "net", "ipc", "uts"):
        assert len({os.readlink(f"/proc/{pid_of(cri, one)}/ns/{kind}") for one in (first, second)}) == 1, kind
    read = "cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shm_rmid_forced; ls -d /sys/class/net/lo"
    assert said(cri, second, read).split() == ["512", "1", "/sys/class/net/lo"]
    assert cri.exec_sync(first, BRIDGE, 20).result().exit_code == 0
    assert cri.exec_sync(second, BRIDGE, 20).result().exit_code != 0


def test_shared_processes_are_in_the_users_namespace(cri: Cri) -> None:
    within = pod(cri, "shared", pb.POD)
    one, other = (run(cri, within, container_config(["sleep", "1000"], name=name)) for name in ("one", "other"))
    names = {os.readlink(f"/proc/{pid_of(cri, each)}/ns/pid") for each in (one, other)}
    assert len(names) == 1
    assert said(cri, one, "cat /proc/*/comm 2>/dev/null | sort | uniq -c | grep sleep").split()[0] == "2"
    target = container_config(["sleep", "1000"], name="debugger")
    target.linux.security_context.namespace_options.pid = pb.TARGET
    sandbox, config = within
    debugger = pb.ContainerConfig()
    debugger.CopyFrom(target)
    debugger.linux.security_context.namespace_options.userns_options.CopyFrom(USERS)
    debugger.linux.security_context.namespace_options.target_id = one
    started = cri.create_container(sandbox, debugger, config).result()
    cri.start_container(started).result()
    assert os.readlink(f"/proc/{pid_of(cri, started)}/ns/pid") in names


def test_output_may_be_opened_again(cri: Cri, tmp_path: Path) -> None:
    sandbox = sandbox_config("output")
    sandbox.linux.security_context.namespace_options.pid = pb.CONTAINER
    sandbox.linux.security_context.namespace_options.userns_options.CopyFrom(USERS)
    sandbox.log_directory = str(tmp_path)
    within = cri.run_pod_sandbox(sandbox).result(), sandbox
    script = "echo one >/dev/stdout && echo two >/dev/stderr && sleep 1000"
    user = {"run_as_user": pb.Int64Value(value=1000)}
    container = run(cri, within, container_config(["sh", "-c", script], log_path="0.log"), **user)
    wait_for(lambda: "stderr F two" in (tmp_path / "0.log").read_text())
    assert "stdout F one" in (tmp_path / "0.log").read_text()
    assert said(cri, container, "echo out >/dev/stdout; echo err >/dev/stderr; exit 0") == "out\nerr\n"


def test_sessions_have_the_pods_users(cri: Cri) -> None:
    container = run(cri, pod(cri, "sessions"), container_config(["sleep", "1000"]))
    script = "head -1 /proc/self/uid_map >/dev/stdout; echo err >/dev/stderr; exit 7"
    told = SpdySession(exec_url(cri, container, script), V4, "stdout", "stderr").finish()
    assert told["stderr"] == b"err\n"
    assert (told["stdout"].split()[1], exit_code_of(told["error"])) == (str(FIRST).encode(), 7)
    typed = SpdySession(exec_url(cri, container, "sh", stdin=True, tty=True), V4, "stdin", "stdout", "resize")
    typed.wait(lambda: b"#" in typed.said["stdout"] or b"$" in typed.said["stdout"])
    typed.send("stdin", b"stat -c owner=%u $(tty); exit 5\n")
    told = typed.finish()
    assert b"owner=0" in told["stdout"]
    assert exit_code_of(told["error"]) == 5


def test_terminal_container_has_the_pods_users(cri: Cri, tmp_path: Path) -> None:
    config = container_config(["sh", "-c", "stat -c owner=%u $(tty); sleep 1000"], log_path="0.log")
    config.tty = True
    sandbox = sandbox_config("terminal")
    sandbox.linux.security_context.namespace_options.userns_options.CopyFrom(USERS)
    sandbox.log_directory = str(tmp_path)
    run(cri, (cri.run_pod_sandbox(sandbox).result(), sandbox), config)
    wait_for(lambda: "owner=0" in (tmp_path / "0.log").read_text())
    assert owner("/dev/null") == (0, 0)


def test_device_by_another_name_is_that_device(cri: Cri) -> None:
    config = container_config(["sleep", "1000"])
    config.devices.append(pb.Device(host_path="/dev/zero", container_path="/dev/kmsg", permissions="rw"))
    config.devices.append(pb.Device(host_path="/dev/full", container_path="/dev/mine", permissions="rw"))
    container = run(cri, pod(cri, "devices"), config)
    assert said(cri, container, "stat -c %t:%T /dev/kmsg /dev/mine; echo x >/dev/mine").startswith("1:5\n1:7\n")


def test_mounts_of_the_machine_come_in_and_stay_outside(cri: Cri, tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    mounts.mount("tmpfs", str(top), "tmpfs", "")
    try:
        mounts.mount("", str(top), "", "", _SHARED)
        for name in ("before", "later"):
            (top / name).mkdir()
        mounts.mount("tmpfs", str(top / "before"), "tmpfs", "")
        config = container_config(["sleep", "1000"])
        config.mounts.append(mapped(top, "/top", propagation=pb.PROPAGATION_HOST_TO_CONTAINER))
        within = pod(cri, "slave")
        run_, sandbox = run(cri, within, config), within[0]
        mounts.mount("tmpfs", str(top / "later"), "tmpfs", "")
        assert said(cri, run_, "grep -c ' /top' /proc/mounts").strip() == "3"
        cri.remove_pod_sandbox(sandbox).result()
        assert len(mounts.mounts_under(str(top))) == 3, "the machine's mounts stay"
    finally:
        for one in reversed(mounts.mounts_under(str(top))):
            mounts.unmount(one.mount_point, mounts.MNT_DETACH)


def test_read_only_mount_stays_read_only(cri: Cri, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("the machine's")
    config = container_config(["sleep", "1000"])
    config.mounts.append(mapped(tmp_path, "/v", readonly=True))
    admin = pb.Capability(add_capabilities=["SYS_ADMIN"])
    container = run(cri, pod(cri, "read-only"), config, capabilities=admin)
    assert said(cri, container, "mount --bind /tmp /tmp && echo it may mount") == "it may mount\n"
    assert "ermission denied" in said(cri, container, "mount -o remount,bind,rw /v && echo x >/v/file")
    assert (tmp_path / "file").read_text() == "the machine's"


@pytest.mark.parametrize("options", [{}, {"readonly": True}, {"readonly": True, "recursive_read_only": True}])
def test_limits_of_a_volumes_file_system_stay(cri: Cri, tmp_path: Path, options: dict[str, Any]) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    mounts.mount("tmpfs", str(volume), "tmpfs", "", _NOSUID | _NODEV | _NOEXEC)
    try:
        config = container_config(["sleep", "1000"])
        config.mounts.append(mapped(volume, "/v", **options))
        container = run(cri, pod(cri, "limited"), config)
        (line,) = said(cri, container, "grep ' /v ' /proc/mounts").splitlines()
        found = line.split()[3].split(",")
        assert {"nosuid", "nodev", "noexec", "ro" if options else "rw"} <= set(found)
    finally:
        mounts.unmount(str(volume), mounts.MNT_DETACH)


def test_options_of_a_mount_are_in_effect(cri: Cri, tmp_path: Path) -> None:
    config = container_config(["sleep", "1000"])
    config.mounts.append(mapped(tmp_path, "/v", mount_options=["noexec", "nosuid"]))
    container = run(cri, pod(cri, "options"), config, capabilities=pb.Capability(add_capabilities=["SYS_ADMIN"]))
    told = said(cri, container, "mount -o remount,bind,exec,suid /v; cp /bin/busybox /v/true; /v/true && echo runs")
    assert "runs" not in told
    assert "ermission denied" in told


def test_pod_with_the_machines_mounts_keeps_no_other_pod(cri: Cri, instance: EmbeddedInstance) -> None:
    """A mount of them among the machine's would keep the directories busy that they are on."""
    before = pod(cri, "before")
    run(cri, before, container_config(["sleep", "1000"]))
    for name in ("first", "second"):
        config = container_config(["sleep", "1000"], name=name)
        config.mounts.append(mapped(instance.directory, "/machine", readonly=True))
        container = run(cri, pod(cri, name), config)
    assert "/machine/run/runtime/shm/" in said(cri, container, "cat /proc/mounts")
    assert shown() == []
    cri.remove_pod_sandbox(before[0]).result()


def test_broken_pipe_ends_a_process(cri: Cri) -> None:
    """Python ignores SIGPIPE, which a program inherits."""
    container = run(cri, pod(cri, "signals"), container_config(["sleep", "1000"]))
    (ignored,) = said(cri, container, "grep SigIgn /proc/1/status").splitlines()
    assert not int(ignored.split()[1], 16) >> (signal.SIGPIPE - 1) & 1


def test_bad_mappings_are_refused_with_the_field(cri: Cri, tmp_path: Path) -> None:
    within = pod(cri, "refused")
    other = [pb.IDMapping(host_id=2 * FIRST, container_id=0, length=LENGTH)]
    for changes, message in (
        ({"uidMappings": other, "gidMappings": IDS}, r"mounts\[0\].uidMappings: they are not the pod's"),
        ({"uidMappings": IDS}, r"mounts\[0\].uidMappings: they are not the pod's"),
        ({"propagation": pb.PROPAGATION_BIDIRECTIONAL}, r"Bidirectional|not a shared mount"),
    ):
        config = container_config(["true"])
        config.mounts.append(pb.Mount(host_path=str(tmp_path), container_path="/v", **changes))
        with pytest.raises(CriError, match=message) as refused:
            created(cri, within, config)
        assert refused.value.code == "InvalidArgument"
    with pytest.raises(CriError, match="cannot run as user 70000"):
        created(cri, within, container_config(["true"]), run_as_user=pb.Int64Value(value=70_000))
    with pytest.raises(CriError, match="differs from its sandbox's"):
        cri.create_container(within[0], container_config(["true"]), within[1]).result()


def test_file_system_without_mapped_mounts_fails_the_start(cri: Cri) -> None:
    config = container_config(["sleep", "1000"])
    config.mounts.append(mapped("/sys/kernel", "/v"))
    container = created(cri, pod(cri, "sysfs"), config)
    with pytest.raises(CriError, match="cannot map the users of /sys/kernel: its file system has no ID-mapped mounts"):
        cri.start_container(container).result()
    assert status(cri, container).reason == "StartError"
    assert shown() == []


# Kills


def test_containers_survive_a_killed_runtime_and_its_restart(cri: Cri, instance: EmbeddedInstance) -> None:
    within = pod(cri, "lasting", pb.POD)
    config = container_config(["sleep", "1000"])
    container, pid = run(cri, within, config), 0
    pid = pid_of(cri, container)
    later = created(cri, within, container_config(["sleep", "1000"], name="later"))
    instance.kill()
    instance.start()
    assert pid_of(cri, container) == pid
    assert said(cri, container, "head -1 /proc/self/uid_map").split()[1] == str(FIRST)
    cri.start_container(later).result()
    assert said(cri, later, "touch /made; stat -c %u /made").strip() == "0"
    cri.stop_container(container, 0).result()
    assert wait_exited(cri, container).exit_code == 137
    again = run(cri, within, container_config(["sleep", "1000"], name="again"))
    assert said(cri, again, "head -1 /proc/self/uid_map").split()[1] == str(FIRST)


def test_start_that_a_kill_interrupts_leaves_nothing(cri: Cri, instance: EmbeddedInstance, tmp_path: Path) -> None:
    within = pod(cri, "interrupted")
    first = run(cri, within, container_config(["sleep", "1000"]))
    config = container_config(["sleep", "1000"], name="second")
    config.mounts.append(mapped(tmp_path, "/v"))
    container = created(cri, within, config)
    (monitor,) = instance.monitor_pids()
    os.kill(monitor, signal.SIGSTOP)
    try:
        starting = cri.start_container(container)
        wait_for((data_dir(instance.settings) / "containers" / container / "shown.json").exists)
        instance.kill()
        with pytest.raises(CriError):
            starting.result()
    finally:
        os.kill(monitor, signal.SIGCONT)
    instance.start()
    if status(cri, container).state == pb.CONTAINER_CREATED:
        cri.start_container(container).result()
    assert status(cri, container).state == pb.CONTAINER_RUNNING
    assert said(cri, container, "touch /v/made; stat -c %u /v").strip() == "0"
    assert said(cri, first, "id -u").strip() == "0"


@pytest.mark.parametrize("after_s", [0.005, 0.03, 0.06, 0.1, 0.15, 0.25])
def test_sandbox_that_a_kill_interrupts_leaves_nothing(cri: Cri, instance: EmbeddedInstance, after_s: float) -> None:
    config = sandbox_config("half")  # with a pause process
    config.linux.security_context.namespace_options.userns_options.CopyFrom(USERS)
    running = cri.run_pod_sandbox(config)
    time.sleep(after_s)  # the moments of the kill, not a wait
    instance.kill()
    with contextlib.suppress(CriError):
        running.result()
    instance.start()
    instance.remove_pods()
    directory = Path(instance.settings.run_dir, "runtime", "ns")
    wait_for(lambda: not directory.exists() or not list(directory.iterdir()))
    made = pod(cri, "whole", pb.POD)
    assert said(cri, run(cri, made, container_config(["sleep", "1000"])), "id -u").strip() == "0"

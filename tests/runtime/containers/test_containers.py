"""Containers of the embedded runtime: promises beyond CRI."""

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors._cri.client import Cri
from actors._cri.errors import CriDeadline, CriError
from proto.cri import api_pb2 as pb
from tests.containerd.images import Image, write_archive
from tests.containerd.pods import container_config, run_pod, sandbox_config
from tests.deep_trees import nest
from tests.runtime.inside import PROCESSES
from tests.runtime.instance import EmbeddedInstance, wait_for

POLLS = ("7", "271", "73")
"""Numbers of poll and ppoll: x86-64's, then arm64's."""


@pytest.fixture
def cri(embedded: EmbeddedInstance) -> Iterator[Cri]:
    yield embedded.cri
    embedded.remove_pods()


STATIC = {"kubernetes.io/config.source": "file"}
"""Annotations of the sandbox of a static pod."""


def start(cri: Cri, name: str, config: pb.ContainerConfig, **changes: Any) -> tuple[str, str]:
    sandbox = sandbox_config(name)
    sandbox.linux.security_context.namespace_options.pid = pb.CONTAINER
    sandbox.linux.security_context.privileged = config.linux.security_context.privileged
    sandbox.annotations.update(changes.pop("annotations", {}))
    for key, value in changes.items():
        setattr(sandbox, key, value)
    config.linux.security_context.namespace_options.pid = pb.CONTAINER
    sandbox_id = cri.run_pod_sandbox(sandbox).result()
    container = cri.create_container(sandbox_id, config, sandbox).result()
    cri.start_container(container).result()
    return sandbox_id, container


def status(cri: Cri, container: str) -> pb.ContainerStatus:
    return cri.container_status(container).result().status


def wait_exited(cri: Cri, container: str) -> pb.ContainerStatus:
    wait_for(lambda: status(cri, container).state == pb.CONTAINER_EXITED)
    return status(cri, container)


def measured_once(cri: Cri, ready: Callable[[dict[str, pb.FilesystemUsage]], bool]) -> dict[str, pb.FilesystemUsage]:
    """The writable layers of all containers. A request waits two seconds at most for layers that are being measured."""
    found: dict[str, pb.FilesystemUsage] = {}

    def measured() -> bool:
        found.update((one.attributes.id, one.writable_layer) for one in cri.list_container_stats().result())
        return ready(found)

    wait_for(measured)
    return found


def pid_of(cri: Cri, container: str) -> int:
    return int(json.loads(cri.container_status(container, verbose=True).result().info["info"])["pid"])


def run_out(cri: Cri, name: str, script: str, **context: Any) -> str:
    """The script's output in a container of its own."""
    config = container_config(["sleep", "1000"])
    config.linux.security_context.CopyFrom(pb.LinuxContainerSecurityContext(**context))
    _, container = start(cri, name, config)
    # The OCI runtime reports the start when its init may execute the command, which happens a moment later.
    wait_for(lambda: b"sleep 1000" in cri.exec_sync(container, PROCESSES, 10).result().stdout)
    answer = cri.exec_sync(container, ["sh", "-c", script], 20).result()
    return bytes(answer.stdout + answer.stderr).decode()


@pytest.mark.needs("mounts")
def test_a_container_is_isolated(cri: Cri) -> None:
    out = run_out(
        cri, "isolated", f"{PROCESSES[2]}; hostname; cat /proc/mounts; cat /proc/self/status; ls /dev; ls -A /var"
    )
    assert "sleep 1000" in out
    assert "containerd" not in out  # it sees neither the machine's processes nor its mounts
    assert re.search(r"^overlay / ", out, re.M) or "ext4" in out
    assert "CapEff:\t00000000a80425fb" in out
    assert not re.search(r"^(sd[a-z]|vd[a-z]|nvme)\w*$", out, re.M), "it has no disk of the machine in /dev"


@pytest.mark.needs("mounts")
def test_user_groups_and_read_only_root(cri: Cri) -> None:
    out = run_out(
        cri,
        "user",
        "id; touch /file; touch /proc/sys/kernel/hostname; cat /proc/1/status",
        run_as_user=pb.Int64Value(value=1000),
        supplemental_groups=[4321],
        readonly_rootfs=True,
        no_new_privs=True,
        readonly_paths=["/proc/sys"],
    )
    assert "uid=1000(app) gid=1000(app)" in out
    assert "4321" in out
    assert "Read-only file system" in out
    assert "NoNewPrivs:\t1" in out
    assert "CapEff:\t0000000000000000" in out


def test_default_seccomp_filter(cri: Cri) -> None:
    profile = pb.SecurityProfile(profile_type=pb.SecurityProfile.RuntimeDefault)
    out = run_out(cri, "seccomp", "unshare -m true || echo refused; cat /proc/self/status", seccomp=profile)
    assert "refused" in out
    assert "Seccomp:\t2" in out


def test_masked_paths_are_empty(cri: Cri) -> None:
    assert run_out(cri, "masked", "cat /proc/uptime | wc -c", masked_paths=["/proc/uptime"]).strip() == "0"


def test_mounts_reach_the_container(cri: Cri, tmp_path: Path) -> None:
    (tmp_path / "given").write_text("given")
    config = container_config(["sleep", "1000"])
    config.mounts.append(pb.Mount(container_path="/data/deep", host_path=str(tmp_path)))
    config.mounts.append(pb.Mount(container_path="/ro", host_path=str(tmp_path), readonly=True))
    _, container = start(cri, "mounts", config)
    answer = cri.exec_sync(
        container, ["sh", "-c", "cat /data/deep/given; echo out > /data/deep/made; touch /ro/x"], 10
    ).result()
    assert answer.stdout == b"given"
    assert b"Read-only" in answer.stderr
    assert (tmp_path / "made").read_text() == "out\n"


@pytest.mark.needs("mounts", "cgroups")
def test_limits_are_in_the_cgroup_and_change(cri: Cri) -> None:
    config = container_config(["sleep", "1000"])
    config.linux.resources.memory_limit_in_bytes = 64 << 20
    config.linux.resources.cpu_shares = 300
    _, container = start(cri, "limits", config)
    show = ["sh", "-c", "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null"]
    assert cri.exec_sync(container, show, 10).result().stdout.strip() == str(64 << 20).encode()
    cri.update_container_resources(container, pb.LinuxContainerResources(memory_limit_in_bytes=80 << 20)).result()
    assert cri.exec_sync(container, show, 10).result().stdout.strip() == str(80 << 20).encode()
    assert status(cri, container).resources.linux.memory_limit_in_bytes == 80 << 20
    assert status(cri, container).resources.linux.cpu_shares == 300
    stats = cri.container_stats(container).result()
    assert 0 < stats.memory.working_set_bytes.value < 80 << 20
    assert stats.memory.available_bytes.value > 0
    assert 0 < stats.memory.rss_bytes.value < 80 << 20
    assert stats.memory.page_faults.value > 0


@pytest.mark.needs("mounts", "cgroups")
def test_container_over_its_limit_is_oom_killed(cri: Cri) -> None:
    config = container_config(["sh", "-c", "x=a; while true; do x=$x$x; done"])
    config.linux.resources.memory_limit_in_bytes = 16 << 20
    _, container = start(cri, "oom", config)
    ended = wait_exited(cri, container)
    assert (ended.exit_code, ended.reason) == (137, "OOMKilled")


@pytest.mark.parametrize(("script", "code", "reason"), [("exit 0", 0, "Completed"), ("exit 7", 7, "Error")])
def test_exit_is_recorded(cri: Cri, script: str, code: int, reason: str) -> None:
    _, container = start(cri, "end", container_config(["sh", "-c", script]))
    ended = wait_exited(cri, container)
    assert (ended.exit_code, ended.reason) == (code, reason)
    assert ended.created_at <= ended.started_at <= ended.finished_at


def test_container_that_exits_at_once_counts_as_started(cri: Cri) -> None:
    for number in range(5):
        _, container = start(cri, f"short{number}", container_config(["true"]))
        assert wait_exited(cri, container).exit_code == 0


def test_failed_start_has_a_message_and_is_final(cri: Cri) -> None:
    config = sandbox_config("nostart")
    sandbox = cri.run_pod_sandbox(config).result()
    container = cri.create_container(sandbox, container_config(["/no/such"]), config).result()
    with pytest.raises(CriError, match=r"[Nn]o such file"):
        cri.start_container(container).result()
    ended = status(cri, container)
    assert (ended.state, ended.exit_code, ended.reason) == (pb.CONTAINER_EXITED, 128, "StartError")
    with pytest.raises(CriError, match="CONTAINER_EXITED"):
        cri.start_container(container).result()


def start_trapping(cri: Cri, name: str, trap: str, logs: Path) -> str:
    """A container that keeps running; on return its trap is set."""
    config = container_config(["sh", "-c", f"{trap}; echo up; sleep 1000 & wait"], log_path=f"{name}.log")
    _, container = start(cri, name, config, log_directory=str(logs))
    wait_for(lambda: "up" in (logs / f"{name}.log").read_text())
    return container


def test_stop_signals_then_waits_then_kills(cri: Cri, tmp_path: Path) -> None:
    container = start_trapping(cri, "polite", "trap 'exit 3' TERM", tmp_path)
    cri.stop_container(container, 20).result()
    assert status(cri, container).exit_code == 3
    container = start_trapping(cri, "stubborn", "trap '' TERM", tmp_path)
    began = time.monotonic()
    cri.stop_container(container, 1).result()
    assert time.monotonic() - began >= 1
    assert status(cri, container).exit_code == 137


def test_second_stop_shortens_the_first_without_a_signal(cri: Cri, tmp_path: Path) -> None:
    script = "trap 'echo told' TERM; echo up; while true; do sleep 0.1; done"
    _, container = start(
        cri, "second", container_config(["sh", "-c", script], log_path="0.log"), log_directory=str(tmp_path)
    )
    log = tmp_path / "0.log"
    wait_for(lambda: "up" in log.read_text())
    first = cri.stop_container(container, 600)
    wait_for(lambda: "told" in log.read_text())
    cri.stop_container(container, 1).result()
    first.result(20)
    assert log.read_text().count("told") == 1
    assert status(cri, container).exit_code == 137


def test_cri_logs_divide_long_lines(cri: Cri, tmp_path: Path) -> None:
    script = "echo one; echo two >&2; head -c 40000 /dev/zero | tr '\\0' x; echo; printf unended"
    config = container_config(["sh", "-c", script], log_path="main/0.log")
    _, container = start(cri, "log", config, log_directory=str(tmp_path))
    wait_exited(cri, container)
    lines = (tmp_path / "main/0.log").read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z std(out|err) [FP] ", line) for line in lines)
    texts = [tuple(line.split(" ", 3)[1:]) for line in lines]
    assert ("stdout", "F", "one") in texts
    assert ("stderr", "F", "two") in texts
    assert [tag for _, tag, text in texts if text.startswith("x")] == ["P", "P", "F"]
    assert sum(len(text) for _, _, text in texts if text.startswith("x")) == 40000
    # Two pipes have no common order: only that of each stream is certain.
    assert [text for text in texts if text[0] == "stdout"][-1] == ("stdout", "P", "unended")


def test_a_terminal_is_one_stream(cri: Cri, tmp_path: Path) -> None:
    config = container_config(["sh", "-c", "test -t 0 && test -t 1 && echo terminal; sleep 1000"], log_path="0.log")
    config.tty = True
    start(cri, "tty", config, log_directory=str(tmp_path))
    wait_for(lambda: "stdout F terminal" in (tmp_path / "0.log").read_text())


def test_exec_time_limit_ends_all_its_processes(cri: Cri) -> None:
    _, container = start(cri, "timeout", container_config(["sleep", "1000"]))
    with pytest.raises(CriDeadline, match="timed out"):
        cri.exec_sync(container, ["sleep", "4321"], 1).result()
    shown = cri.exec_sync(container, PROCESSES, 10).result().stdout
    assert b"4321" not in shown
    with pytest.raises(CriError, match=r"no such file|not found"):
        cri.exec_sync(container, ["/no/such"], 10).result()


def test_exec_whose_client_goes_is_killed(cri: Cri) -> None:
    _, container = start(cri, "gone", container_config(["sleep", "1000"]))
    call = cri.exec_sync(container, ["sleep", "4321"], 0)

    def runs() -> bool:
        return b"sleep 4321" in cri.exec_sync(container, PROCESSES, 10).result().stdout

    wait_for(runs)
    call.cancel()
    wait_for(lambda: not runs())


def test_stop_whose_client_goes_does_not_kill(cri: Cri, tmp_path: Path) -> None:
    container = start_trapping(cri, "left", "trap 'echo heard' TERM; echo up; while true; do sleep 0.1; done", tmp_path)
    left = cri.stop_container(container, 8)  # long enough to be given up in time on a loaded machine
    wait_for(lambda: "heard" in (tmp_path / "left.log").read_text())
    left.cancel()
    began = time.monotonic()  # before the call: a machine that stands still would take its time from the wait
    later = cri.stop_container(container, 9)  # it would end with the first one's SIGKILL
    later.result()
    assert time.monotonic() - began >= 9


def test_exec_in_an_exiting_container_fails_without_a_hang(cri: Cri) -> None:
    _, container = start(cri, "exiting", container_config(["sleep", "0.5"]))
    with contextlib.suppress(CriError):
        while True:
            cri.exec_sync(container, ["true"], 10).result()
    assert wait_exited(cri, container).exit_code == 0
    with pytest.raises(CriError, match="EXITED"):
        cri.exec_sync(container, ["true"], 10).result()


def test_names_are_unique_for_each_attempt(cri: Cri) -> None:
    config = sandbox_config("twice")
    sandbox = cri.run_pod_sandbox(config).result()
    with pytest.raises(CriError, match="reserved"):
        cri.run_pod_sandbox(config).result()
    cri.create_container(sandbox, container_config(["true"]), config).result()
    with pytest.raises(CriError, match="reserved"):
        cri.create_container(sandbox, container_config(["true"]), config).result()
    again = container_config(["true"])
    again.metadata.attempt = 1
    cri.create_container(sandbox, again, config).result()
    assert len(cri.list_containers().result()) == 2


def test_shared_pid_namespace_of_a_pod(cri: Cri) -> None:
    sandbox, first = run_pod(cri, "shared")  # CRI's default is a shared namespace
    config = sandbox_config("shared")
    other = cri.create_container(sandbox, container_config(["sleep", "2000"], name="other"), config).result()
    cri.start_container(other).result()
    # The OCI runtime reports the start when its init may execute the command, which happens a moment later.
    wait_for(lambda: b"sleep 2000" in cri.exec_sync(first, PROCESSES, 10).result().stdout)
    cri.exec_sync(first, ["sh", "-c", "(sleep 0.1 &)"], 10).result()
    wait_for(lambda: b"sleep 0.1" not in cri.exec_sync(first, PROCESSES, 10).result().stdout)  # orphans are reaped
    cri.stop_container(other, 0).result()
    assert b"sleep 1000" in cri.exec_sync(first, PROCESSES, 10).result().stdout


@pytest.mark.needs("mounts")
def test_host_image_cannot_be_written_to(cri: Cri, embedded: EmbeddedInstance) -> None:
    config = container_config(["sh", "-c", "sleep 1000"], image="host")
    config.linux.security_context.readonly_rootfs = True
    _, container = start(cri, "host", config, annotations=STATIC)
    probe = f"ls /usr/bin | head -1; touch /usr/bin/made; ls -A {embedded.settings.root_dir}"
    answer = cri.exec_sync(container, ["sh", "-c", probe], 10).result()
    assert answer.stdout.count(b"\n") == 1
    assert b"Read-only" in answer.stderr
    writable = container_config(["sleep", "1000"], image="host", name="writable")
    _, container = start(cri, "host2", writable, annotations=STATIC)
    cri.exec_sync(container, ["touch", "/made-in-a-container"], 10).result()
    assert not Path("/made-in-a-container").exists()


@pytest.mark.parametrize("source", ["api", ""])
def test_host_image_is_refused_to_api_pods(cri: Cri, source: str) -> None:
    config = container_config(["cat", "/etc/shadow"], image="host")
    with pytest.raises(CriError, match="static pods only"):
        start(cri, "stranger", config, annotations={"kubernetes.io/config.source": source} if source else {})


@pytest.mark.parametrize("privileged", [False, True])
@pytest.mark.needs("mounts")
def test_host_image_hides_passwords_and_keys(cri: Cri, embedded: EmbeddedInstance, *, privileged: bool) -> None:
    config = container_config(["sleep", "1000"], image="host")
    config.linux.security_context.privileged = privileged
    _, container = start(cri, "static", config, annotations=STATIC)
    run_dir = embedded.settings.run_dir
    # The image has the file system at / alone: it does not show a run directory on another one.
    empty = ["/root", run_dir] if os.stat(run_dir).st_dev == os.stat("/").st_dev else ["/root"]
    listed = f"for one in {' '.join(empty)}; do ls -Ad $one; ls -A $one; done"
    script = f"cat /etc/shadow /etc/ssh/ssh_host_*key; {listed}; echo done"
    answer = cri.exec_sync(container, ["sh", "-c", script], 10).result()
    assert answer.stdout.decode().split() == [*empty, "done"]
    assert Path("/etc/shadow").read_text()
    assert os.listdir("/root")


def test_an_image_that_a_container_uses_can_be_removed(cri: Cri, tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    write_archive(archive, [Image("registry.test/used:1", files={"/f": b"data"})])
    cri.pull_image(f"oci-archive:{archive}").result()
    _, container = start(cri, "used", container_config(["/bin/sleep", "1000"], image="registry.test/used:1"))
    cri.remove_image("registry.test/used:1").result()
    assert cri.image_status("registry.test/used:1").result() is None
    assert cri.exec_sync(container, ["/bin/cat", "/f"], 10).result().stdout == b"data"


def test_deep_tree_goes_with_its_container_and_from_the_trash(embedded: EmbeddedInstance, cri: Cri) -> None:
    script = f"for one in $(seq 30); do mkdir -p {'d/' * 50} && cd {'d/' * 50} || exit 1; done; touch end"
    _, container = start(cri, "deep", container_config(["sh", "-c", script]))
    assert wait_exited(cri, container).exit_code == 0
    cri.remove_container(container).result()
    trash = Path(embedded.settings.root_dir, "nodevisor/runtime/trash")
    assert list(trash.iterdir()) == []
    (trash / "left").mkdir()
    nest(trash / "left", 3000)
    embedded.kill()
    embedded.start()
    assert list(trash.iterdir()) == []


def test_deep_tree_of_one_container_is_in_the_statistics_of_all(embedded: EmbeddedInstance, cri: Cri) -> None:
    (_, deep), (_, plain) = (start(cri, name, container_config(["sleep", "1000"])) for name in ("nests", "plain"))
    directory = Path(embedded.settings.root_dir, "nodevisor/runtime/containers", deep)
    nest(next(directory / name for name in ("upper", "copy") if (directory / name).is_dir()), 3000)
    measured = measured_once(cri, lambda one: one[deep].inodes_used.value > 3000)
    assert {deep, plain} <= set(measured)
    assert measured[deep].used_bytes.value >= 8192
    assert measured[plain].inodes_used.value < measured[deep].inodes_used.value
    assert cri.image_fs_info().result().container_filesystems[0].inodes_used.value > 3000


def test_ended_targets_pid_namespace_is_not_joined(cri: Cri) -> None:
    sandbox, target = start(cri, "targeted", container_config(["sleep", "1000"]))
    config = container_config(["sleep", "1000"], name="debugger")
    config.linux.security_context.namespace_options.pid = pb.TARGET
    config.linux.security_context.namespace_options.target_id = target
    debugger = cri.create_container(sandbox, config, sandbox_config("targeted")).result()
    cri.stop_container(target, 0).result()
    with pytest.raises(CriError, match=f"cannot share the processes of container {target}, which does not run"):
        cri.start_container(debugger).result()
    assert status(cri, debugger).reason == "StartError"


@pytest.mark.needs("mounts")  # else each container has files of its own there
def test_files_that_a_pod_shares_in_etc_count_once(embedded: EmbeddedInstance, cri: Cri) -> None:
    sandbox, first = start(cri, "shares", container_config(["sleep", "1000"]))
    second = container_config(["sleep", "1000"], name="second")
    second.linux.security_context.namespace_options.pid = pb.CONTAINER
    other = cri.create_container(sandbox, second, sandbox_config("shares")).result()
    cri.start_container(other).result()
    script = "for one in hosts hostname resolv.conf; do dd if=/dev/urandom of=/etc/$one bs=1M count=2 || exit 1; done"
    assert cri.exec_sync(other, ["sh", "-c", script], 20).result().exit_code == 0
    used = measured_once(cri, lambda one: one[first].used_bytes.value >= 6 << 20)
    assert used[other].used_bytes.value < 6 << 20
    assert cri.image_fs_info().result().container_filesystems[0].used_bytes.value >= 6 << 20
    cri.stop_container(first, 0).result()
    # The next container of the pod has them, once its own figures are old.
    wait_for(lambda: cri.container_stats(other).result().writable_layer.used_bytes.value >= 6 << 20, 40)


def test_container_that_never_starts_hides_no_shared_files(cri: Cri) -> None:
    """A kill between CreateContainer and StartContainer leaves it created, and another takes its place."""
    config = sandbox_config("never")
    sandbox = cri.run_pod_sandbox(config).result()
    left = cri.create_container(sandbox, container_config(["sleep", "1000"]), config).result()
    second = container_config(["sleep", "1000"])
    second.metadata.attempt = 1
    runs = cri.create_container(sandbox, second, config).result()
    cri.start_container(runs).result()
    written = cri.exec_sync(runs, ["sh", "-c", "dd if=/dev/urandom of=/etc/hostname bs=1M count=4"], 20).result()
    assert written.exit_code == 0
    used = measured_once(cri, lambda one: one[runs].used_bytes.value >= 4 << 20)
    assert left not in used


def test_events_of_a_containers_life(embedded: EmbeddedInstance, cri: Cri) -> None:
    seen: list[tuple[int, str]] = []
    watch = cri.container_events(
        lambda event: seen.append((event.container_event_type, event.container_id)), lambda _: None
    )
    for number in range(100):  # only an event shows that the stream is open
        start(cri, f"before{number}", container_config(["true"]))
        with contextlib.suppress(TimeoutError):
            wait_for(lambda: seen, 0.2)
            break
    sandbox, container = start(cri, "events", container_config(["sh", "-c", "exit 5"]))
    wait_exited(cri, container)
    cri.remove_pod_sandbox(sandbox).result()
    wanted = [(kind, container) for kind in (0, 1, 2, 3)]
    wait_for(lambda: [one for one in seen if one[1] == container] == wanted)
    watch.close()

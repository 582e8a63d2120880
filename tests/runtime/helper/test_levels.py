"""Isolation levels 2 and 3, without an OCI runtime: containers' isolation, and kills of the runtime."""

import json
import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._cri.client import Cri
from actors._cri.errors import CriError
from proto.cri import api_pb2 as pb
from supervisor.cli.streams.transport.remote import exit_code_of
from tests.containerd.images import PYTHON, Image, python
from tests.containerd.pods import container_config, sandbox_config
from tests.harness import Stalls
from tests.runtime.containers.test_containers import pid_of, run_out, start, start_trapping, status, wait_exited
from tests.runtime.inside import HEADLESS, PROCESSES
from tests.runtime.instance import EmbeddedInstance, wait_for
from tests.runtime.streaming.clients import SpdySession
from tests.runtime.streaming.test_streaming import V4, attach_url, exec_url


@pytest.fixture(scope="module", params=[pytest.param(2, marks=pytest.mark.needs("mounts")), 3])
def instance(request: pytest.FixtureRequest) -> Iterator[EmbeddedInstance]:
    with EmbeddedInstance(Path(tempfile.mkdtemp(prefix="nvlv-")), isolation=request.param) as made:
        yield made


@pytest.fixture
def cri(instance: EmbeddedInstance) -> Iterator[Cri]:
    yield instance.cri
    instance.remove_pods()


def level_of(cri: Cri) -> int:
    return int(json.loads(cri.status(verbose=True).result().info["runtime"])["isolation"])


def test_status_has_the_isolation_level_and_reason(cri: Cri) -> None:
    answer = cri.status(verbose=True).result()
    told = json.loads(answer.info["runtime"])
    ready, network = answer.status.conditions
    assert ready.status
    assert network.status
    assert ready.reason == f"IsolationLevel{told['isolation']}"
    assert "as asked for" in ready.message
    assert network.reason == ("HostNetwork" if told["isolation"] == 3 else "")
    assert told["ociRuntime"] == "nodevisor-helper"


GLIBCS_OWN = 1 << 31 | 1 << 32
"""Mask of SIGCANCEL and SIGSETXID, which glibc's posix_spawn ignores in its children."""


def wait_for_program(pid: int, name: str) -> str:
    """The status file of the process once it executes the program."""
    path = Path(f"/proc/{pid}/status")
    wait_for(lambda: path.read_text().startswith(f"Name:\t{name}\n"))
    return path.read_text()


@pytest.mark.parametrize("level", [pytest.param(2, marks=pytest.mark.needs("mounts")), 3])
def test_containers_of_an_agent_under_nohup_ignore_no_signal(level: int) -> None:
    was = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with EmbeddedInstance(Path(tempfile.mkdtemp(prefix="nvlv-")), isolation=level) as made:
            _, container = start(made.cri, "signals", container_config(["sleep", "1000"]))
            begun = wait_for_program(pid_of(made.cri, container), "sleep")
            run = made.cri.exec_sync(container, ["cat", "/proc/self/status"], 20).result().stdout.decode()
    finally:
        signal.signal(signal.SIGHUP, was)
    for told in (begun, run):
        ignored = int(re.findall(r"^SigIgn:\t(.*)", told, re.MULTILINE)[0], 16)
        assert ignored & ~GLIBCS_OWN == 0, hex(ignored)


def test_processes_and_files_are_the_containers_own(cri: Cri) -> None:
    out = run_out(
        cri, "own", f"{PROCESSES[2]}; cat /proc/self/mounts; ls /dev; ls -A /var; touch /made; ls /made; ls -l /dev/fd"
    )
    assert "sleep 1000" in out
    assert "pytest" not in out
    assert "sda" not in out
    assert "/made" in out
    assert "/dev/fd -> /proc/self/fd" in out


def test_process_has_its_user_and_capabilities(cri: Cri) -> None:
    script = "id -u; id -g; cat /proc/self/status; touch /file"
    context = {"run_as_user": pb.Int64Value(value=1000), "no_new_privs": True, "readonly_rootfs": True}
    out = run_out(cri, "user", script, **context)
    assert out.startswith("1000\n")
    assert "CapEff:\t0000000000000000" in out
    assert "NoNewPrivs:\t1" in out
    assert "Read-only file system" in out
    assert "CapBnd:\t00000000a80425fb" in run_out(cri, "root", "cat /proc/self/status")


def test_default_seccomp_filter(cri: Cri) -> None:
    profile = pb.SecurityProfile(profile_type=pb.SecurityProfile.RuntimeDefault)
    out = run_out(cri, "seccomp", "unshare -m true || echo refused; cat /proc/self/status", seccomp=profile)
    assert "refused" in out
    assert "Seccomp:\t2" in out


def test_paths_are_masked_and_made_read_only(cri: Cri) -> None:
    script = "cat /proc/uptime | wc -c; ls -A /proc/irq | wc -l; echo x > /proc/sys/kernel/hostname"
    out = run_out(cri, "masked", script, masked_paths=["/proc/uptime", "/proc/irq"], readonly_paths=["/proc/sys"])
    assert out.split()[:2] == ["0", "0"]
    assert "Read-only" in out


def test_mounts_reach_the_container_and_follow_no_link_out(cri: Cri, tmp_path: Path) -> None:
    (tmp_path / "given").write_text("given")
    tmp_path.chmod(0o777)
    config = container_config(["sleep", "1000"])
    config.mounts.append(pb.Mount(container_path="/data/deep", host_path=str(tmp_path)))
    config.mounts.append(pb.Mount(container_path="/ro", host_path=str(tmp_path), readonly=True))
    config.mounts.append(pb.Mount(container_path="/given", host_path=str(tmp_path / "given")))
    _, container = start(cri, "mounts", config)
    script = "cat /data/deep/given /given; echo out > /data/deep/made; touch /ro/x; ls /proc/1/root/"
    answer = cri.exec_sync(container, ["sh", "-c", script], 10).result()
    assert answer.stdout.startswith(b"givengiven")
    assert b"Read-only" in answer.stderr
    assert (tmp_path / "made").read_text() == "out\n"
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()  # no mount reaches the machine


def test_declared_volume_of_an_image_at_each_level(cri: Cri, instance: EmbeddedInstance) -> None:
    image = Image("registry.test/declares:1", files={"/var/lib/app/seed": b"seed"}, volumes=["/var/lib/app", "/new"])
    instance.import_images([image])
    config = container_config(["sleep", "1000"], image=image.name)
    config.linux.security_context.readonly_rootfs = True
    _, container = start(cri, "declares", config)
    script = "echo x > /var/lib/app/x && echo x > /new/x && cat /var/lib/app/* /new/x; touch /x"
    answer = cri.exec_sync(container, ["sh", "-c", script], 10).result()
    assert answer.stdout == b"seedx\nx\n"
    assert b"Read-only" in answer.stderr


def test_sysctl_of_a_pod_is_set_or_the_pod_is_refused(cri: Cri) -> None:
    config = sandbox_config("sysctl")
    config.linux.sysctls["net.ipv4.ip_unprivileged_port_start"] = "512"
    if level_of(cri) == 3:
        with pytest.raises(CriError, match="for the machine, not for the pod"):
            cri.run_pod_sandbox(config).result()
        return
    sandbox = cri.run_pod_sandbox(config).result()
    container = cri.create_container(sandbox, container_config(["sleep", "100"]), config).result()
    cri.start_container(container).result()
    read = ["cat", "/proc/sys/net/ipv4/ip_unprivileged_port_start"]
    assert cri.exec_sync(container, read, 20).result().stdout == b"512\n"


def test_limits_are_in_the_cgroup_if_any(cri: Cri) -> None:
    config = container_config(["sleep", "1000"])
    config.linux.resources.memory_limit_in_bytes = 64 << 20
    config.linux.resources.cpu_shares = 300
    _, container = start(cri, "limits", config)
    show = ["sh", "-c", "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null"]
    enforced = level_of(cri) == 2
    shown = cri.exec_sync(container, show, 10).result().stdout.strip()
    assert (shown == str(64 << 20).encode()) == enforced
    cri.update_container_resources(container, pb.LinuxContainerResources(memory_limit_in_bytes=80 << 20)).result()
    shown = cri.exec_sync(container, show, 10).result().stdout.strip()
    assert (shown == str(80 << 20).encode()) == enforced


def test_a_terminal_is_one_stream(cri: Cri, tmp_path: Path) -> None:
    config = container_config(["sh", "-c", "test -t 0 && test -t 1 && echo terminal; sleep 1000"], log_path="0.log")
    config.tty = True
    start(cri, "tty", config, log_directory=str(tmp_path))
    wait_for(lambda: "stdout F terminal" in (tmp_path / "0.log").read_text())


def test_logs_exec_and_exit_codes(cri: Cri, tmp_path: Path) -> None:
    script = "trap 'exit 3' TERM; echo one; echo two >&2; while true; do sleep 0.1; done"
    _, container = start(
        cri, "life", container_config(["sh", "-c", script], log_path="0.log"), log_directory=str(tmp_path)
    )
    log = tmp_path / "0.log"
    wait_for(lambda: re.search(r" stdout F one\n", log.read_text()) and re.search(r" stderr F two\n", log.read_text()))
    assert cri.exec_sync(container, ["sh", "-c", "exit 7"], 10).result().exit_code == 7
    with pytest.raises(CriError, match=r"no such file|not found"):
        cri.exec_sync(container, ["/no/such"], 10).result()
    cri.stop_container(container, 20).result()
    assert (status(cri, container).exit_code, status(cri, container).reason) == (3, "Error")


def test_failed_start_has_a_message(cri: Cri) -> None:
    config = sandbox_config("nostart")
    sandbox = cri.run_pod_sandbox(config).result()
    container = cri.create_container(sandbox, container_config(["/no/such"]), config).result()
    with pytest.raises(CriError, match="/no/such: no such file"):
        cri.start_container(container).result()
    assert (status(cri, container).exit_code, status(cri, container).reason) == (128, "StartError")


def test_container_without_first_thread_is_listed_and_stopped(cri: Cri, instance: EmbeddedInstance) -> None:
    instance.import_images([python()])
    containers = [start(cri, f"headless{number}", container_config(HEADLESS, image=PYTHON))[1] for number in range(2)]
    stats = [Path(f"/proc/{pid_of(cri, container)}/stat") for container in containers]
    wait_for(lambda: all(") Z " in stat.read_text() for stat in stats))
    with Stalls() as machine:
        began = time.monotonic()
        listed = cri.list_containers().result()
        assert time.monotonic() - began < 1 + machine.longest_s
    assert {one.state for one in listed if one.id in containers} == {pb.CONTAINER_RUNNING}
    assert cri.exec_sync(containers[0], ["sh", "-c", "ls /; exit 7"], 20).result().exit_code == 7
    with Stalls() as machine:
        began = time.monotonic()
        for container in containers:
            cri.stop_container(container, 0).result()
            assert status(cri, container).exit_code == 137
        assert time.monotonic() - began < 5 + machine.longest_s


def test_no_interpreter_stays_beside_a_container(cri: Cri) -> None:
    _, container = start(cri, "alone", container_config(["sleep", "1000"]))
    pid = pid_of(cri, container)
    # Its descriptors, which tell the helper of the execution, are closed before it has its name.
    wait_for(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    assert b"monitor" in Path(f"/proc/{parent}/cmdline").read_bytes()


def test_containers_survive_a_killed_runtime_at_every_level(
    cri: Cri, instance: EmbeddedInstance, tmp_path: Path
) -> None:
    lasting = start_trapping(cri, "lasting", "trap 'exit 4' TERM", tmp_path)
    _, ending = start(cri, "ending", container_config(["sh", "-c", "sleep 0.5; exit 5"]))
    pid = pid_of(cri, lasting)
    instance.kill()
    ended = Path(instance.settings.root_dir, "nodevisor/runtime/containers", ending, "exit")
    wait_for(ended.exists)
    instance.start()
    assert status(cri, ending).exit_code == 5
    assert pid_of(cri, lasting) == pid
    assert cri.exec_sync(lasting, ["true"], 10).result().exit_code == 0
    cri.stop_container(lasting, 20).result()
    assert status(cri, lasting).exit_code == 4


def test_containers_orphans_end_with_it(cri: Cri) -> None:
    _, container = start(cri, "leaves", container_config(["sh", "-c", "sleep 43210 & sleep 0.2"]))
    wait_exited(cri, container)
    wait_for(lambda: not commands_with(b"43210"))


def commands_with(word: bytes) -> list[bytes]:
    """Command lines of processes on this machine that contain the word."""
    return [line for pid in os.listdir("/proc") if pid.isdigit() and word in (line := _command(pid))]


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_sessions_work_at_every_level(instance: EmbeddedInstance, cri: Cri) -> None:
    config = container_config(["sh", "-c", "while read line; do echo got $line; done"])
    config.stdin = True
    _, container = start(cri, "sessions", config)
    told = SpdySession(exec_url(cri, container, "echo out; exit 7"), V4, "stdout", "stderr").finish()
    assert (told["stdout"], exit_code_of(told["error"])) == (b"out\n", 7)
    typed = SpdySession(exec_url(cri, container, "sh", stdin=True, tty=True), V4, "stdin", "stdout", "resize")
    typed.send("resize", b'{"Width":99,"Height":33}')
    typed.wait(lambda: b"#" in typed.said["stdout"] or b"$" in typed.said["stdout"])
    typed.send("stdin", b"stty size; exit 5\n")
    told = typed.finish()
    assert b"33 99" in told["stdout"]
    assert exit_code_of(told["error"]) == 5
    attached = SpdySession(attach_url(cri, container, stdin=True), V4, "stdin", "stdout", "stderr")
    attached.send("stdin", b"hello\n")
    attached.wait(lambda: b"got hello\n" in attached.said["stdout"])
    left = SpdySession(
        exec_url(cri, container, "trap '' HUP; echo up; while sleep 1; do :; done"), V4, "stdout", "stderr"
    )
    left.wait(lambda: b"\n" in left.said["stdout"])
    instance.kill()
    for session in (attached, left):
        session.close()
    instance.start()
    files = Path(instance.settings.run_dir, "runtime", "exec")
    wait_for(lambda: not list(files.iterdir()))
    wait_for(lambda: not commands_with(b"while sleep 1; do"))  # its files are removed after the kill

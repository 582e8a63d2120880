"""Host set-up on a directory in place of /proc, the service manager, and the lock file."""

from __future__ import annotations

import errno
import fcntl
import logging
import math
import os
import resource
import select
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from actors._cgroup.hierarchy import Hierarchy, missing_controllers
from proto.agent.supervisor import Exited, PeerState, PeerStates, Started
from supervisor.core.service import AgentService
from supervisor.health.notify import Notifier
from supervisor.host import host_setup
from supervisor.host.host_setup import KERNEL_SETTINGS, HostSetupError, check_kernel_settings, set_oom_score_adj
from tests.harness import wait_for


def kernel(proc: Path, **changes: int) -> Path:
    """A /proc whose settings are right but for `changes`, by the setting's last part."""
    for name, (wanted, _) in KERNEL_SETTINGS.items():
        path = proc / "sys" / name.replace(".", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{changes.get(name.rpartition('.')[2], wanted)}\n")
    return proc


def value(proc: Path, name: str) -> int:
    return int((proc / "sys" / name.replace(".", "/")).read_text())


@pytest.mark.parametrize("protect", [True, False])
def test_right_or_higher_kernel_settings_stay(tmp_path: Path, protect: bool) -> None:
    proc = kernel(tmp_path, root_maxkeys=2_000_000)
    check_kernel_settings(protect, str(proc))
    assert value(proc, "kernel.keys.root_maxkeys") == 2_000_000


def test_kernel_settings_are_set_right(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    proc = kernel(tmp_path, overcommit_memory=0, root_maxbytes=20_000)
    with caplog.at_level(logging.INFO):
        check_kernel_settings(False, str(proc))
    assert (value(proc, "vm.overcommit_memory"), value(proc, "kernel.keys.root_maxbytes")) == (1, 25_000_000)
    assert "set kernel setting vm.overcommit_memory from 0 to 1" in caplog.text


def test_protected_kernel_settings_that_differ_are_all_named(tmp_path: Path) -> None:
    proc = kernel(tmp_path, panic=0, root_maxkeys=200)
    with pytest.raises(HostSetupError) as caught:
        check_kernel_settings(True, str(proc))
    assert "kernel.panic is 0, has to be 10" in str(caught.value)
    assert "kernel.keys.root_maxkeys is 200, has to be 1000000" in str(caught.value)
    assert value(proc, "kernel.panic") == 0


def test_kernel_without_a_setting_is_no_error(tmp_path: Path) -> None:
    check_kernel_settings(True, str(tmp_path))


SWAPS = "Filename\tType\tSize\tUsed\tPriority\n"


@pytest.mark.parametrize("swaps", [None, SWAPS, SWAPS + "/dev/sda2 partition 16760828 0 -2\n"])
@pytest.mark.parametrize("refuse", [True, False])
def test_swap_is_refused_with_fail_swap_on(tmp_path: Path, swaps: str | None, refuse: bool) -> None:
    if swaps is not None:
        (tmp_path / "swaps").write_text(swaps)
    if refuse and swaps is not None and swaps != SWAPS:
        with pytest.raises(HostSetupError, match="running with swap on is not supported, please disable swap or set"):
            host_setup.check_swap(refuse, str(tmp_path))
    else:
        host_setup.check_swap(refuse, str(tmp_path))


@pytest.mark.parametrize(
    ("unified", "refuse", "starts"), [(True, True, True), (False, False, True), (False, True, False)]
)
def test_cgroup_v1_is_refused_with_fail_cgroup_v1(tmp_path: Path, unified: bool, refuse: bool, starts: bool) -> None:
    if unified:
        (tmp_path / "cgroup.controllers").touch()
    if starts:
        host_setup.check_cgroup_version(refuse, str(tmp_path))
    else:
        with pytest.raises(HostSetupError, match="kubelet is configured to not run on a host using cgroup v1"):
            host_setup.check_cgroup_version(refuse, str(tmp_path))


V1 = {"cpu": "/c", "cpuacct": "/c", "cpuset": "/s", "memory": "/m", "": "/u"}


@pytest.mark.parametrize(
    ("v1", "v2", "missing"),
    [
        ({}, "cpuset cpu io memory hugetlb pids rdma misc", ()),
        ({}, "cpuset cpu io pids", ("memory",)),  # Raspberry Pi OS
        ({}, "", ("cpu", "memory")),
        ({}, None, ()),  # no cgroups are mounted: in a chroot
        (V1, "", ()),
        ({name: path for name, path in V1.items() if name != "memory"}, "", ("memory",)),
    ],
)
def test_controllers_that_pods_need_are_looked_for(
    tmp_path: Path, v1: dict[str, str], v2: str | None, missing: tuple[str, ...]
) -> None:
    if v2 is not None:
        (tmp_path / "cgroup.controllers").write_text(v2 + "\n")
    tree = Hierarchy(unified=not v1, mounts=v1 or {"": str(tmp_path)})
    assert missing_controllers(tree) == missing
    if missing:
        with pytest.raises(HostSetupError, match=rf"subsystem not mounted: \[{' '.join(missing)}\]; .*memory"):
            host_setup.check_controllers(missing)
    else:
        host_setup.check_controllers(missing)


def test_python_of_32_bits_is_refused() -> None:
    host_setup.check_word_size(64)
    with pytest.raises(HostSetupError, match="this Python is of 32 bits, and 64 are needed"):
        host_setup.check_word_size(32)


@pytest.mark.parametrize(
    ("reservations", "problem"),
    [
        (({}, {}), ""),
        (({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi", "pid": "7"}), ""),
        (({"cpu": "2"}, {"cpu": "1m"}), 'Resource "cpu" has a reservation of 2001m but capacity of 2000m.'),
        (({}, {"memory": "3Gi"}), 'Resource "memory" has a reservation of 3221225472 but capacity of 2147483648.'),
    ],
)
def test_reservations_above_capacity_are_refused(
    tmp_path: Path, reservations: tuple[dict[str, str], ...], problem: str
) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal:        {2 << 20} kB\nMemFree: 1 kB\n")
    if not problem:
        host_setup.check_reservations(reservations, str(tmp_path), cpus=2)
        return
    with pytest.raises(HostSetupError) as error:
        host_setup.check_reservations(reservations, str(tmp_path), cpus=2)
    words = f"invalid Node Allocatable configuration. {problem} Expected capacity >= reservation."
    assert str(error.value) == f"cannot start: {words}"


def test_oom_score_adj_without_permission_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    set_oom_score_adj(-999, proc=str(tmp_path))
    assert "cannot set oom_score_adj to -999: No such file or directory" in caplog.text
    (tmp_path / "self").mkdir()
    set_oom_score_adj(-999, proc=str(tmp_path))
    assert (tmp_path / "self/oom_score_adj").read_text() == "-999\n"


def test_limit_of_open_files_is_set() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    code = (
        "import resource; from supervisor.host.host_setup import set_open_files; set_open_files(500);"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(500, 500)"
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


# The lock file


def test_lock_file_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    take = "from supervisor.host.host_setup import take_lock_file; take_lock_file"
    code = f"{take}({str(path)!r}); print('locked', flush=True)"
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as waiting:
            assert waiting.stdout is not None
            wait_for(
                lambda: f":{path.stat().st_ino} " in Path("/proc/locks").read_text() and _blocked(path), 30, "waits"
            )
            assert not select.select([waiting.stdout], [], [], 0)[0]
            fcntl.flock(held, fcntl.LOCK_UN)
            assert waiting.stdout.readline() == b"locked\n"


def _blocked(path: Path) -> bool:
    """True when a process waits for a lock on the file: a line with `->` in proc_locks(5)."""
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and f":{path.stat().st_ino} " in line for line in lines)


def test_lock_file_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HostSetupError, match=r"lock file .*/none/lock: No such file or directory; choose another"):
        host_setup.take_lock_file(str(tmp_path / "none/lock"))


def test_lock_outlives_an_exec(tmp_path: Path) -> None:
    descriptor = host_setup.take_lock_file(str(tmp_path / "lock"))
    assert os.get_inheritable(descriptor)
    os.close(descriptor)


@pytest.mark.parametrize("how", ["open", "unlink"])
def test_lock_contention_ends_the_agent(tmp_path: Path, how: str) -> None:
    path = tmp_path / "lock"
    path.touch()
    service = AgentService(Notifier({}, 1), (), str(path))
    (fd,) = service.fds
    assert not select.select([fd], [], [], 0)[0]
    path.read_text() if how == "open" else path.unlink()
    assert select.select([fd], [], [], 5)[0]
    assert service.on_input(fd)
    os.close(fd)


# The service manager


@pytest.fixture
def manager(tmp_path: Path) -> socket.socket:
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(str(tmp_path / "notify"))
    receiver.setblocking(False)
    return receiver


def said(manager: socket.socket) -> list[str]:
    found = []
    try:
        while True:
            found += manager.recv(4096).decode().splitlines()
    except BlockingIOError:
        return found


def environment(manager: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": manager.getsockname(), **more}


def test_ready_is_sent_once_every_actor_has_been_ready(manager: socket.socket) -> None:
    with manager:
        service = AgentService(Notifier(environment(manager), 7), ("a", "b", "c"))
        service.on_event(PeerStates(peers=(PeerState(name="a", incarnation=1, ready=True),)))
        service.on_event(Started(name="b", incarnation=1))
        service.on_event(Exited(name="a", incarnation=1, reason="killed"))
        assert said(manager) == []
        service.on_event(Started(name="c", incarnation=2))
        service.on_event(Started(name="a", incarnation=2))
        assert [line for line in said(manager) if line.startswith("READY")] == ["READY=1"]


def test_notification_is_resent_to_a_busy_service_manager(manager: socket.socket) -> None:
    with manager:
        notifier = Notifier(environment(manager), 7)
        service = AgentService(notifier, ("a",))
        assert service.deadline() is None
        while notifier.send("STATUS=starting"):
            pass
        service.on_event(Started(name="a", incarnation=1))
        assert "READY=1" not in said(manager)
        due = service.deadline()
        assert due is not None
        service.tick(due, stopping=False)
        assert "READY=1" in said(manager)
        assert service.deadline() is None


def test_watchdog_is_fed_at_half_its_period(manager: socket.socket) -> None:
    with manager:
        service = AgentService(Notifier(environment(manager, WATCHDOG_USEC="4000000"), 7), ("a",))
        service.tick(100.0, stopping=False)
        assert (said(manager), service.deadline()) == (["WATCHDOG=1"], 102.0)
        service.tick(101.9, stopping=False)
        assert said(manager) == []
        service.tick(102.0, stopping=False)
        assert said(manager) == ["WATCHDOG=1"]


def test_failure_that_passes_ends_no_notifications(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    with manager:
        service = AgentService(Notifier(environment(manager, WATCHDOG_USEC="4000000"), 7), ("a",))
        with monkeypatch.context() as full:
            full.setattr("supervisor.health.notify.socket.socket", fail)
            service.tick(100.0, stopping=False)
            service.on_event(Started(name="a", incarnation=1))
        service.tick(102.0, stopping=False)
        assert said(manager) == ["WATCHDOG=1"]
        service.tick(math.inf, stopping=False)
        assert "READY=1" in said(manager)
    assert caplog.text.count("cannot notify the service manager") == 1


def test_stopping_is_sent_once(manager: socket.socket) -> None:
    with manager:
        service = AgentService(Notifier(environment(manager), 7), ("a",))
        service.tick(1.0, stopping=True)
        service.tick(2.0, stopping=True)
        assert said(manager) == ["STOPPING=1"]


@pytest.mark.parametrize("more", [{"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "8"}, {"WATCHDOG_USEC": "soon"}, {}])
def test_watchdog_of_another_pid_is_not_fed(manager: socket.socket, more: dict[str, str]) -> None:
    with manager:
        assert AgentService(Notifier(environment(manager, **more), 7), ()).deadline() is None


def test_notify_variables_are_not_inherited() -> None:
    variables = {"NOTIFY_SOCKET": "/x", "WATCHDOG_PID": "1", "WATCHDOG_USEC": "1", "HOME": "/"}
    kept = Notifier(variables, 1).variables
    assert variables == {"HOME": "/"}
    assert kept == {"NOTIFY_SOCKET": "/x", "WATCHDOG_PID": "1", "WATCHDOG_USEC": "1"}


def test_ended_service_manager_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "none")}, 1)
    notifier.send("READY=1")
    notifier.send("READY=1")
    assert caplog.text.count("cannot notify the service manager") == 1

"""The private containerd itself: it can be restarted, and it leaves nothing behind."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proto.cri import api_pb2 as pb
from tests.containerd import ContainerdInstance, missing_requirements
from tests.containerd.host.leftovers import command_line, mounts_below
from tests.containerd.host.network import owner_of
from tests.containerd.instance import clear_abandoned
from tests.containerd.pods import run_pod


@pytest.fixture
def directory(containerd: ContainerdInstance) -> Iterator[Path]:
    """A directory for one more instance; nothing of it is left after the test."""
    assert missing_requirements() == ""
    path = Path(tempfile.mkdtemp(prefix="nvctd-", dir="/tmp"))
    with nothing_left_of(path):
        yield path


@contextmanager
def nothing_left_of(path: Path) -> Iterator[None]:
    bridges = bridge_names()
    yield
    assert processes_of(path) == []
    assert mounts_below(path) == []
    # Other instances on this machine may have made bridges meanwhile; a bridge without a slot has no owner.
    new = [name for name in bridge_names() - bridges if owner_of(name) in ("", str(path.resolve()))]
    assert [name for name in new if name in bridge_names()] == []
    assert not path.exists()


def bridge_names() -> set[str]:
    return {link.name for link in Path("/sys/class/net").glob("nvtest*")}


def processes_of(path: Path) -> list[str]:
    commands = (command_line(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [" ".join(command) for command in commands if any(f"{path}/" in part for part in command)]


def test_pods_survive_a_runtime_restart_and_leave_nothing_behind(directory: Path) -> None:
    with ContainerdInstance(directory) as instance:
        _, container = run_pod(instance.cri, "stays")
        before = instance.cri.container_status(container).result()
        instance.kill()
        assert instance.pid is None
        instance.start()
        after = instance.cri.container_status(container).result()
        assert after.status.state == pb.CONTAINER_RUNNING
        assert after.status.started_at == before.status.started_at


def test_nothing_is_left_when_the_runtime_is_dead_at_the_end(directory: Path) -> None:
    with ContainerdInstance(directory) as instance:
        run_pod(instance.cri, "one")
        run_pod(instance.cri, "two")
        instance.kill()


def test_an_error_inside_still_cleans_up(directory: Path) -> None:
    def fail() -> None:
        with ContainerdInstance(directory) as instance:
            run_pod(instance.cri, "one")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


def test_a_directory_with_something_in_it_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("keep me")
    with pytest.raises(FileExistsError, match="not empty"), ContainerdInstance(tmp_path):
        pass
    assert (tmp_path / "precious").exists()


def test_half_of_another_containerd_is_refused(tmp_path: Path) -> None:
    (tmp_path / "containerd").touch(0o755)
    environment = {**os.environ, "NODEVISOR_CONTAINERD": str(tmp_path)}
    command = [sys.executable, "-m", "tests.containerd", "--dir", str(tmp_path / "unused")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert f"NODEVISOR_CONTAINERD={tmp_path}: no ctr, no containerd-shim-runc-v2 there" in ended.stderr


@contextmanager
def program(directory: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "tests.containerd", "--dir", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_program_cleans_up_at_a_signal(directory: Path, number: signal.Signals) -> None:
    with program(directory) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"unix://{directory}/containerd.sock\n"
        process.send_signal(number)
        assert process.wait(30) == 0


def test_next_run_clears_the_leftovers_of_a_killed_program(directory: Path) -> None:
    with program(directory) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert processes_of(directory)  # Other programs clear what it leaves, too.
        process.kill()
        process.wait(10)
    deadline = time.monotonic() + 30
    while processes_of(directory) or mounts_below(directory) or directory.exists():
        clear_abandoned()
        assert time.monotonic() < deadline

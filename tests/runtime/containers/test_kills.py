"""Containers of the embedded runtime outlive kills and stops of the runtime and its monitor."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest

from actors._cri.client import Cri
from actors._cri.errors import CriError
from actors._host.files import mounts
from actors.runtime.filesystems.rootfs import RootFs
from actors.runtime.images.local.store import ImageStore
from proto.cri import api_pb2 as pb
from tests.containerd.images import BUSYBOX
from tests.containerd.pods import container_config, sandbox_config
from tests.harness import alive, unmount
from tests.runtime.containers.test_containers import POLLS, cri, pid_of, start, status, wait_exited
from tests.runtime.instance import EmbeddedInstance, wait_for

__all__ = ["cri"]  # fixtures


def test_containers_and_exits_survive_a_killed_runtime(embedded: EmbeddedInstance, cri: Cri, tmp_path: Path) -> None:
    script = "i=0; while test ! -e /data/end; do i=$((i+1)); echo line $i; sleep 0.01; done; exit 9"
    config = container_config(["sh", "-c", script], log_path="0.log")
    config.mounts.append(pb.Mount(container_path="/data", host_path=str(tmp_path)))
    sandbox, container = start(cri, "outlives", config, log_directory=str(tmp_path))
    ip = cri.pod_sandbox_status(sandbox).result().status.network.ip
    pid = pid_of(cri, container)
    embedded.kill()
    size = (tmp_path / "0.log").stat().st_size
    wait_for(lambda: (tmp_path / "0.log").stat().st_size > size)  # its log grows
    embedded.start()
    assert (status(cri, container).state, pid_of(cri, container)) == (pb.CONTAINER_RUNNING, pid)
    assert cri.pod_sandbox_status(sandbox).result().status.network.ip == ip
    embedded.kill()
    (tmp_path / "end").touch()
    wait_for(lambda: not alive(pid))
    embedded.start()
    ended = wait_exited(cri, container)
    assert (ended.exit_code, ended.reason) == (9, "Error")
    numbers = [int(line.rsplit(" ", 1)[1]) for line in (tmp_path / "0.log").read_text().splitlines()]
    assert numbers == list(range(1, len(numbers) + 1))


def root_of(embedded: EmbeddedInstance, container: str) -> Path:
    return Path(embedded.settings.run_dir) / "runtime" / "rootfs" / container


def created_beside_another(cri: Cri, name: str) -> str:
    """A container that is created, in a pod whose first one runs."""
    sandbox, _ = start(cri, name, container_config(["sleep", "1000"]))
    config = container_config(["sleep", "1000"], name="late")
    config.linux.security_context.namespace_options.pid = pb.CONTAINER
    return cri.create_container(sandbox, config, sandbox_config(name)).result()


@pytest.mark.needs("mounts")
def test_a_start_under_way_outlives_a_runtime_that_stops(embedded: EmbeddedInstance, cri: Cri) -> None:
    container = created_beside_another(cri, "stopping")
    (monitor,) = embedded.monitor_pids()
    os.kill(monitor, signal.SIGSTOP)
    try:
        starting = cri.start_container(container)
        wait_for(lambda: mounts.mounts_under(str(root_of(embedded, container))))
        embedded.terminate()
        with pytest.raises(CriError) as refused:
            starting.result()
        assert refused.value.code in ("Unavailable", "Canceled")
        embedded.wait()
        assert mounts.mounts_under(str(root_of(embedded, container)))
    finally:
        os.kill(monitor, signal.SIGCONT)
    embedded.start()
    if status(cri, container).state == pb.CONTAINER_CREATED:  # the monitor saw the end before the request, or goes on
        with contextlib.suppress(CriError):  # it waits for the start that goes on, and finds the container running
            cri.start_container(container).result()
    assert status(cri, container).state == pb.CONTAINER_RUNNING
    assert cri.exec_sync(container, ["true"], 10).result().exit_code == 0


@pytest.mark.needs("mounts")
def test_container_is_not_removed_while_it_starts(embedded: EmbeddedInstance, cri: Cri) -> None:
    """A client that lost the answer of a start would otherwise end what it takes for never started."""
    container = created_beside_another(cri, "starting")
    (monitor,) = embedded.monitor_pids()
    os.kill(monitor, signal.SIGSTOP)
    try:
        starting = cri.start_container(container)
        wait_for(lambda: mounts.mounts_under(str(root_of(embedded, container))))
        with pytest.raises(CriError) as refused:
            cri.remove_container(container).result()
        assert refused.value.code == "FailedPrecondition"
        assert "is starting, and cannot be removed" in str(refused.value)
    finally:
        os.kill(monitor, signal.SIGCONT)
    starting.result()
    assert status(cri, container).state == pb.CONTAINER_RUNNING
    cri.remove_container(container).result()
    assert not cri.list_containers(pb.ContainerFilter(id=container)).result()


def test_exit_that_the_monitor_has_not_told_yet_outlives_a_runtime_that_stops(
    embedded: EmbeddedInstance, cri: Cri
) -> None:
    _, container = start(cri, "stopping", container_config(["sleep", "1000"]))
    pid = pid_of(cri, container)
    (monitor,) = embedded.monitor_pids()
    os.kill(monitor, signal.SIGSTOP)
    try:
        stopping = cri.stop_container(container, 0)
        wait_for(lambda: "State:\tZ" in Path(f"/proc/{pid}/status").read_text())
        embedded.terminate()
        with pytest.raises(CriError):
            stopping.result()
        embedded.wait()
    finally:
        os.kill(monitor, signal.SIGCONT)
    embedded.start()
    wait_for(lambda: status(cri, container).state == pb.CONTAINER_EXITED)
    assert status(cri, container).exit_code == 137


@pytest.mark.needs("mounts")
def test_a_root_that_cannot_be_removed_keeps_no_other_from_being_served(embedded: EmbeddedInstance, cri: Cri) -> None:
    _, container = start(cri, "served", container_config(["sleep", "1000"]))
    left, foreign = root_of(embedded, "left"), root_of(embedded, "foreign")
    (left / "etc").mkdir(parents=True)
    (left / "etc" / "hosts").touch()
    mounted = foreign / "mnt"
    mounted.mkdir(parents=True)
    mounts.mount("tmpfs", str(mounted), "tmpfs", "")
    try:
        (mounted / "file").touch()
        embedded.kill()
        embedded.start()
        assert status(cri, container).state == pb.CONTAINER_RUNNING
        assert not left.exists()
        assert (mounted / "file").exists()
        assert "cannot remove what container" in embedded.log.read_text()
    finally:
        unmount(mounted)


@pytest.mark.needs("mounts")
def test_a_mount_below_a_root_stays_where_the_run_directory_is_a_link(tmp_path: Path) -> None:
    mounted = tmp_path / "run" / "root" / "mnt"
    mounted.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "run")
    mounts.mount("tmpfs", str(mounted), "tmpfs", "")
    try:
        (mounted / "file").touch()
        with pytest.raises(OSError, match="not empty"):
            RootFs(ImageStore(tmp_path / "store"), overlay=True).remove(tmp_path / "link" / "root")
        assert (mounted / "file").exists()
    finally:
        unmount(mounted)


def kernel_tells_exit_codes() -> bool:
    major, minor = map(int, os.uname().release.split(".")[:2])
    return (major, minor) >= (6, 15)


def kill_waiting(pid: int) -> None:
    """SIGKILL a process that waits in poll(2): otherwise bytes that it has read and not written would be lost."""

    def stopped_there() -> bool:
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        if Path(f"/proc/{pid}/syscall").read_text().split()[0] in POLLS:
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    wait_for(stopped_there)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.needs("mounts")
def test_containers_output_and_exits_survive_a_killed_monitor(
    embedded: EmbeddedInstance, cri: Cri, tmp_path: Path
) -> None:
    script = "i=0; while test ! -e /data/end; do i=$((i+1)); echo line $i; sleep 0.01; done; exit 9"
    config = container_config(["sh", "-c", script], log_path="0.log")
    config.mounts.append(pb.Mount(container_path="/data", host_path=str(tmp_path)))
    _, container = start(cri, "monitor", config, log_directory=str(tmp_path))
    (monitor,) = embedded.monitor_pids()
    kill_waiting(monitor)
    wait_for(lambda: embedded.monitor_pids() not in ([], [monitor]))
    size = (tmp_path / "0.log").stat().st_size
    wait_for(lambda: (tmp_path / "0.log").stat().st_size > size)
    assert status(cri, container).state == pb.CONTAINER_RUNNING
    _, other = start(cri, "after", container_config(["sh", "-c", "exit 4"]))
    assert wait_exited(cri, other).exit_code == 4
    (tmp_path / "end").touch()
    ended = wait_exited(cri, container)
    assert ended.exit_code == (9 if kernel_tells_exit_codes() else 255)
    numbers = [int(line.rsplit(" ", 1)[1]) for line in (tmp_path / "0.log").read_text().splitlines()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_monitor_is_small(embedded: EmbeddedInstance, cri: Cri) -> None:
    for number in range(5):
        start(cri, f"small{number}", container_config(["sleep", "1000"]))
    (monitor,) = embedded.monitor_pids()
    rollup = Path(f"/proc/{monitor}/smaps_rollup").read_text()
    pss_kib = int(re.search(r"^Pss:\s+(\d+)", rollup, re.M)[1])  # type: ignore[index]
    assert pss_kib < 6 * 1024, f"{pss_kib} KiB for all containers together"


@pytest.mark.needs("mounts")
def test_random_kills_lose_and_duplicate_nothing(embedded: EmbeddedInstance, cri: Cri) -> None:
    """Pods come and go while the runtime is killed; in the end all and only the removed ones are gone."""
    rounds = int(os.environ.get("NODEVISOR_KILLS", "3"))
    kept = [start(cri, f"kept{number}", container_config(["sleep", "5000"])) for number in range(3)]
    pids = {container: pid_of(cri, container) for _, container in kept}
    over = threading.Event()

    def churn(worker: int) -> None:
        number = 0
        while not over.is_set():
            number += 1
            with contextlib.suppress(CriError):
                config = container_config(["sh", "-c", f"exit {worker + 1}"])
                sandbox, container = start(cri, f"churn{worker}-{number}", config)
                ended = wait_exited(cri, container)
                assert ended.exit_code == worker + 1
                cri.remove_pod_sandbox(sandbox).result()

    workers = [threading.Thread(target=churn, args=(worker,)) for worker in range(3)]
    for worker in workers:
        worker.start()
    for turn in range(rounds):
        time.sleep(0.2 + 0.13 * (turn % 5))
        embedded.kill()
        embedded.start()
    over.set()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()
    for _, container in kept:
        assert (status(cri, container).state, pid_of(cri, container)) == (pb.CONTAINER_RUNNING, pids[container])
    mine = {sandbox for sandbox, _ in kept}
    for sandbox in cri.list_pod_sandbox().result():
        if sandbox.id not in mine:
            cri.remove_pod_sandbox(sandbox.id).result()
    embedded.kill()
    embedded.start()
    assert {one.id for one in cri.list_containers().result()} == set(pids)
    run = Path(embedded.settings.run_dir, "runtime")
    # A thread removes pods that a kill left unfinished, which may be interrupted by the last kill.
    wait_for(lambda: {path.name for path in (run / "ns").iterdir()} == mine)
    assert {path.name for path in (run / "rootfs").iterdir()} == set(pids)
    assert {path.name for path in (run / "oci").iterdir()} == set(pids)
    assert BUSYBOX in {tag for image in cri.list_images().result() for tag in image.repo_tags}

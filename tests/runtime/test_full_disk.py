"""The runtime on a full disk: pods end, as their files may be what fills it, and it starts and serves."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors._cri.errors import CriError
from actors._host.files import mounts
from actors.runtime import assembly
from actors.runtime.assembly import data_dir
from actors.runtime.filesystems.rootfs import can_overlay
from proto.cri import api_pb2 as pb
from tests.containerd.pods import container_config, run_pod, sandbox_config
from tests.harness import unmount
from tests.runtime.containers.test_containers import start, status, wait_exited
from tests.runtime.instance import EmbeddedInstance

SIZE = "size=2g"
SLEEP = ["sleep", "1000"]
MS_RDONLY, MS_REMOUNT = 1, 32

pytestmark = pytest.mark.needs("mounts")


@pytest.fixture
def runtime() -> Iterator[EmbeddedInstance]:
    """A runtime whose images and records are on a tmpfs. Its size must exceed what the image store leaves free."""
    made = EmbeddedInstance(Path(tempfile.mkdtemp(prefix="nvfull-")), isolation=2, cni=False)
    root = Path(made.settings.root_dir)
    root.mkdir()
    mounts.mount("small", str(root), "tmpfs", SIZE)
    with made:
        yield made
        free(made)


def fill(runtime: EmbeddedInstance) -> None:
    """Shrink the tmpfs to what is used, and write the rest of the last pages."""
    found = os.statvfs(runtime.settings.root_dir)
    used = (found.f_blocks - found.f_bfree + 16) * found.f_frsize
    mounts.mount("small", runtime.settings.root_dir, "tmpfs", f"size={used}", MS_REMOUNT)
    with pytest.raises(OSError, match="No space left"):
        write_on(Path(runtime.settings.root_dir) / "filler")


def write_on(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def free(runtime: EmbeddedInstance) -> None:
    mounts.mount("small", runtime.settings.root_dir, "tmpfs", SIZE, MS_REMOUNT)


def states(runtime: EmbeddedInstance) -> list[pb.PodSandboxState.ValueType]:
    return [one.state for one in runtime.cri.list_pod_sandbox().result()]


def test_pods_stop_and_go_on_a_full_disk(runtime: EmbeddedInstance) -> None:
    cri = runtime.cri
    (sandbox, container), (_, other), (removed, _) = (run_pod(cri, name) for name in ("one", "other", "removed"))
    fill(runtime)
    cri.stop_pod_sandbox(sandbox).result()
    assert cri.pod_sandbox_status(sandbox).result().status.state == pb.SANDBOX_NOTREADY
    assert status(cri, container).exit_code == 137
    cri.stop_container(other, 0).result()
    assert status(cri, other).state == pb.CONTAINER_EXITED
    cri.remove_container(other).result()
    cri.remove_pod_sandbox(removed).result()
    assert removed not in {one.id for one in cri.list_pod_sandbox().result()}
    assert "No space left" in runtime.log.read_text()


def test_runtime_starts_on_a_full_disk(runtime: EmbeddedInstance) -> None:
    sandbox, container = run_pod(runtime.cri, "before")  # with a pause process, whose end is put on record at the start
    fill(runtime)
    runtime.cri.stop_pod_sandbox(sandbox).result()
    runtime.kill()
    runtime.start()
    assert states(runtime) == [pb.SANDBOX_NOTREADY]
    assert wait_exited(runtime.cri, container).exit_code == 137, "the monitor tells it again"
    runtime.cri.stop_pod_sandbox(sandbox).result()
    runtime.cri.remove_pod_sandbox(sandbox).result()
    assert states(runtime) == []


def test_update_that_a_full_disk_refuses_spoils_no_container(runtime: EmbeddedInstance) -> None:
    cri, pod = runtime.cri, sandbox_config("created")
    sandbox = cri.run_pod_sandbox(pod).result()
    container = cri.create_container(sandbox, container_config(SLEEP), pod).result()
    fill(runtime)
    with pytest.raises(CriError, match="No space left"):
        cri.update_container_resources(container, pb.LinuxContainerResources(cpu_shares=512)).result()
    free(runtime)
    cri.start_container(container).result()
    assert status(cri, container).state == pb.CONTAINER_RUNNING


def test_ends_are_saved_once_the_disk_has_room(runtime: EmbeddedInstance) -> None:
    sandbox, container = start(runtime.cri, "later", container_config(SLEEP))
    fill(runtime)
    runtime.cri.stop_pod_sandbox(sandbox).result()
    free(runtime)
    runtime.stop()
    runtime.start()
    assert states(runtime) == [pb.SANDBOX_NOTREADY]
    assert status(runtime.cri, container).exit_code == 137, "it is not 255, an unknown exit code"


def root_file_systems(runtime: EmbeddedInstance) -> str:
    told = runtime.cri.status(verbose=True).result().info["runtime"]
    return str(json.loads(told)["rootFileSystems"])


def without_files(root: str) -> None:
    """Let the tmpfs have no further file or directory, as on a disk that is full to its last block."""
    found = os.statvfs(root)
    mounts.mount("small", root, "tmpfs", f"nr_inodes={found.f_files - found.f_ffree}", MS_REMOUNT)


def read_only(root: str) -> None:
    mounts.mount("small", root, "tmpfs", "", MS_REMOUNT | MS_RDONLY)


@pytest.mark.parametrize("spoil", [without_files, read_only])
def test_runtime_serves_without_a_new_file_on_its_disk(runtime: EmbeddedInstance, spoil: Callable[[str], None]) -> None:
    _, container = start(runtime.cri, "before", container_config(SLEEP))
    data = data_dir(runtime.settings)
    before = {path.name for path in data.iterdir()}
    runtime.kill()
    leftovers = [
        data / name for name in ("containers/unfinished", "trash/1", "images/layers/unused", "images/incoming/1")
    ]
    for path in leftovers:
        path.mkdir()
    leftovers += [data / "images/documents" / ("0" * 64), data / "images/partial" / ("0" * 64)]
    for path in leftovers[-2:]:
        path.write_bytes(b"x")
    os.utime(leftovers[-1], (0, 0))
    spoil(runtime.settings.root_dir)
    runtime.start()
    assert runtime.cri.exec_sync(container, ["echo", "here"], 20).result().stdout == b"here\n"
    assert root_file_systems(runtime) == "overlay", "it has no reason to copy images for this container's successors"
    assert "cannot try overlayfs" in runtime.log.read_text()
    runtime.cri.stop_container(container, 0).result()
    mounts.mount("small", runtime.settings.root_dir, "tmpfs", f"{SIZE},nr_inodes=100k", MS_REMOUNT)
    assert {path.name for path in data.iterdir()} == before
    runtime.stop()
    runtime.start()
    assert [path for path in leftovers if path.exists()] == []
    assert run_pod(runtime.cri, "after")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 2 MiB."""
    path = tmp_path / "small"
    path.mkdir()
    mounts.mount("small", str(path), "tmpfs", "size=2m")
    try:
        yield path
    finally:
        unmount(path)


@pytest.mark.parametrize("free_files", range(12))
def test_full_disk_is_no_proof_against_overlayfs(small: Path, free_files: int) -> None:
    """With room for the trial's own files and none for the work directory's, the kernel mounts it read-only."""
    found = os.statvfs(small)
    mounts.mount("small", str(small), "tmpfs", f"nr_inodes={found.f_files - found.f_ffree + free_files}", MS_REMOUNT)
    with contextlib.suppress(OSError):
        assert can_overlay(small / "probe")
    assert list(small.iterdir()) == []
    mounts.mount("small", str(small), "tmpfs", "nr_inodes=100", MS_REMOUNT)
    assert can_overlay(small / "probe")


def test_leftover_of_a_killed_trial_does_not_spoil_the_next(small: Path) -> None:
    for name in ("lower", "upper", "work", "merged"):
        (small / "probe" / name).mkdir(parents=True)
    os.mknod(small / "probe/upper/file", stat.S_IFCHR)  # the whiteout of the removed file
    assert can_overlay(small / "probe")
    assert list(small.iterdir()) == []


@pytest.mark.parametrize("able", [True, False])
def test_full_disk_has_the_last_trials_result(
    small: Path, able: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_: Path) -> bool:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(assembly, "can_overlay", full)
    assert assembly._overlays(small), "there was no trial before"
    for found in (not able, able):
        monkeypatch.setattr(assembly, "can_overlay", lambda _, found=found: found)
        assert assembly._overlays(small) == found
    monkeypatch.setattr(assembly, "can_overlay", full)
    assert assembly._overlays(small) == able
    assert caplog.text.count("cannot try overlayfs") == 2


# Execs while the run directory is full


@pytest.fixture(params=[0, 2])
def probed(request: pytest.FixtureRequest) -> Iterator[tuple[EmbeddedInstance, Path, str]]:
    """A runtime whose files of execs are on a tmpfs, that directory, and a container."""
    made = EmbeddedInstance(Path(tempfile.mkdtemp(prefix="nvexec-")), isolation=request.param, cni=False)
    execs = made.directory / "run/runtime/exec"
    with made:
        execs.mkdir(parents=True)
        mounts.mount("small", str(execs), "tmpfs", "size=128k")
        yield made, execs, start(made.cri, "probed", container_config(SLEEP))[1]
        (execs / "filler").unlink(missing_ok=True)


def outcome(runtime: EmbeddedInstance, container: str, script: str) -> int | str:
    """The script's exit code, or the error of the rpc."""
    try:
        return int(runtime.cri.exec_sync(container, ["sh", "-c", script], 20).result().exit_code)
    except CriError as error:
        return str(error)


def test_exec_that_does_not_start_is_an_error_of_the_rpc(probed: tuple[EmbeddedInstance, Path, str]) -> None:
    """An exit code would be a failed probe: the container would be restarted."""
    runtime, execs, container = probed
    assert [outcome(runtime, container, script) for script in ("true", "exit 3", "kill -9 $$")] == [0, 3, 137]
    found: list[int | str] = []
    for free_pages in range(4):
        with pytest.raises(OSError, match="No space left"):
            write_on(execs / "filler")
        os.truncate(execs / "filler", (execs / "filler").stat().st_size - free_pages * 4096)
        found.append(outcome(runtime, container, "true"))
        assert [path.name for path in execs.iterdir()] == ["filler"], "a failed one leaves no file"
        (execs / "filler").unlink()
    errors = [one for one in found if one != 0]
    assert len(errors) > 1
    for error in errors:
        assert re.fullmatch(rf"cannot run a command in container {container}: .+", str(error), re.DOTALL)
    assert outcome(runtime, container, "exit 3") == 3

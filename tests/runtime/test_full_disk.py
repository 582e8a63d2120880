"""Pods end on a full disk: their files may be what fills it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._host.files import mounts
from proto.cri import api_pb2 as pb
from tests.containerd.pods import container_config, run_pod
from tests.runtime.instance import EmbeddedInstance
from tests.runtime.test_containers import start, status, wait_exited

SIZE = "size=2g"
SLEEP = ["sleep", "1000"]
MS_REMOUNT = 32

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


def test_ends_are_saved_once_the_disk_has_room(runtime: EmbeddedInstance) -> None:
    sandbox, container = start(runtime.cri, "later", container_config(SLEEP))
    fill(runtime)
    runtime.cri.stop_pod_sandbox(sandbox).result()
    free(runtime)
    runtime.stop()
    runtime.start()
    assert states(runtime) == [pb.SANDBOX_NOTREADY]
    assert status(runtime.cri, container).exit_code == 137, "it is not 255, an unknown exit code"

"""Figures of volumes that are file systems of their own, or raw devices."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors._host.files.paths import VOLUME_DEVICES
from actors.volume.metrics import Metrics
from actors.volume.ops import usage
from actors.volume.policy import Actual
from actors.volume.steps.places import LOCAL_VOLUME
from actors.volume.steps.volumes import MeasureMount
from proto.pods.volume import PodVolumeUsage, VolumeUsage, VolumeUsages
from proto.wire import codec

MOST = (1 << 64) - 1


def of(monkeypatch: pytest.MonkeyPatch, **figures: int) -> VolumeUsage:
    """The usage of a file system with these figures of statvfs(3); others are 0."""
    names = ("f_blocks", "f_bfree", "f_bavail", "f_frsize", "f_files", "f_ffree")
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(**(dict.fromkeys(names, 0) | figures)))
    return usage.file_system("v", "/v")


def test_figures_of_a_volume_are_bytes_and_inodes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = of(monkeypatch, f_blocks=10, f_bfree=6, f_bavail=5, f_frsize=4096, f_files=9, f_ffree=7)
    assert (found.capacity_bytes, found.available_bytes, found.used_bytes) == (40960, 20480, 16384)
    assert (found.inodes, found.inodes_free, found.inodes_used) == (9, 7, 2)


@pytest.mark.parametrize(
    "figures",
    [
        {"f_blocks": MOST, "f_bavail": MOST, "f_frsize": 1 << 31, "f_files": MOST, "f_ffree": 1},
        {"f_blocks": 1, "f_bfree": MOST, "f_frsize": 1 << 31, "f_ffree": MOST},
    ],
)
def test_any_figures_of_a_volume_fit_into_a_message(monkeypatch: pytest.MonkeyPatch, figures: dict[str, int]) -> None:
    found = of(monkeypatch, **figures)
    usages = VolumeUsages(pods=(PodVolumeUsage(pod_uid="u", time=0.0, volumes=(found,)),))
    assert codec.decode(codec.encode(usages), VolumeUsages) == usages
    assert min(found.used_bytes, found.inodes_used) >= 0


def test_raw_device_has_its_size_only(tmp_path: Path) -> None:
    disk, link = tmp_path / "disk", tmp_path / "link"
    disk.write_bytes(b"x" * 8192)
    link.symlink_to(disk)
    wanted = VolumeUsage(name="v", used_bytes=0, inodes_used=0, local=False, capacity_bytes=8192)
    assert usage.raw_device("v", str(link)) == wanted


def test_what_is_no_device_has_no_size(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="Illegal seek"):
        usage.raw_device("v", str(tmp_path / "fifo"))
    with pytest.raises(FileNotFoundError):
        usage.raw_device("v", str(tmp_path / "missing"))


@pytest.mark.parametrize("top", ["/tmp", "/r/pods/other"])
@pytest.mark.parametrize("plugin", ["volumes/kubernetes.io~nfs", f"{VOLUME_DEVICES}/{LOCAL_VOLUME}"])
def test_host_path_that_is_named_like_a_volume_is_not_measured(top: str, plugin: str) -> None:
    """A pod chooses that path, and opening a device may do something, as with /dev/watchdog."""
    paths = {"own": f"/r/pods/u/{plugin}/pv", "host": f"{top}/{plugin}/pv"}
    actual = {name: Actual(mounted=True, path=path) for name, path in paths.items()}
    pods: Any = {"u": SimpleNamespace(actual=actual)}
    subject = Metrics(None, None, None, pods, 60.0)  # type: ignore[arg-type]
    wanted = MeasureMount("u", "own", paths["own"], block=plugin.startswith(VOLUME_DEVICES))
    assert list(subject._mounts("u")) == [wanted]

"""Names of block devices, from a directory like /sys/dev/block."""

from pathlib import Path

import pytest

from actors._host import disks


def test_device_is_named_by_the_link_of_its_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "DIRECTORY", str(tmp_path))
    (tmp_path / "254:0").symlink_to("../../devices/pci0000:00/0000:00:02.0/virtio1/block/vda")
    assert disks.device_path("254:0") == "/dev/vda"
    assert disks.device_path("8:0") == ""

"""Mount tables with names that containers chose."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._cgroup.hierarchy import parse_mountinfo
from actors._host.files.mounts import mounts_under
from proto.common.machine import mountinfo
from supervisor.host.rootdir import around

HOSTILE = [b"a\fb", b"a\rb", b"\xff", "a\u2028b".encode(), "a\x85b".encode(), b"a\x1cb", b" - cgroup c rw,x"]
TABLE = b"""22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
no mount
30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:3 master:1 - cgroup2 cgroup2 rw,nsdelegate
31 22 0:27 / /a\\040\\134b rw - fuse.x\xff me rw
"""


def test_fields_of_a_table() -> None:
    root, cgroup, other = mountinfo.mounts(TABLE)
    assert root == mountinfo.Mount(22, "254:0", "/", False, "ext4", "rw")
    assert cgroup == mountinfo.Mount(30, "0:26", "/sys/fs/cgroup", True, "cgroup2", "rw,nsdelegate", slave=True)
    assert (other.mount_point, other.fs_type) == ("/a \\b", "fuse.x\udcff")
    assert mountinfo.escaped("/a \\b") == b"/a\\040\\134b"


@pytest.fixture(params=HOSTILE)
def mounted(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A bind mount of a directory with a hostile name, as a subPath is one."""
    source, point = bytes(tmp_path) + b"/" + request.param, tmp_path / "point"
    subprocess.run(["mkdir", source, point], check=True)
    subprocess.run(["mount", "--bind", source, point], check=True)
    yield point
    subprocess.run(["umount", point], check=True)


@pytest.mark.needs("mounts")
def test_all_readers_pass_over_names_that_containers_chose(mounted: Path) -> None:
    table = mountinfo.read()
    assert [one.mount_point for one in mounts_under(str(mounted))] == [str(mounted)]
    on, below = around(str(mounted.parent), table)
    assert [one.mount_point for one in below] == [str(mounted)]
    assert on.mount_point
    assert "x" not in parse_mountinfo(table).mounts

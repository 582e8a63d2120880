"""Reading the mount table."""

import time
from pathlib import Path

from actors._host.files.mounts import mounts_under

LINES = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
30 27 0:24 / /pods/a\\040b/v rw shared:5 master:1 - tmpfs tmpfs rw,size=4k
31 27 0:24 / /pods/a\\040b rw - ext4 /dev/vda rw
32 27 0:24 / /podsnot rw - ext4 /dev/vda rw
33 27 0:24 / /other/pods rw - ext4 /dev/vda rw
"""


def test_mounts_at_and_below_a_directory(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(LINES)
    expected = [(30, "/pods/a b/v", "tmpfs"), (31, "/pods/a b", "ext4")]
    for directory in ("/pods", "/pods/a b/"):
        found = mounts_under(directory, str(table))
        assert [(one.mount_id, one.mount_point, one.fs_type) for one in found] == expected
    assert mounts_under("/nothing", str(table)) == []
    assert len(mounts_under("/", str(table))) == 5


def test_a_table_of_five_thousand_lines_is_read_in_milliseconds(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    noise = "".join(
        f"{n} 27 0:24 / /run/containerd/{n}/rootfs rw,relatime shared:{n} - overlay overlay rw,lowerdir=/{n}\n"
        for n in range(5000)
    )
    table.write_text(noise + LINES)
    began = time.thread_time()
    for _ in range(10):
        assert len(mounts_under("/pods", str(table))) == 2
    assert (time.thread_time() - began) / 10 < 0.05

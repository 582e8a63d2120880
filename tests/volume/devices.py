"""Sources of volumes for tests: loop devices, and a program in place of an NFS client."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MOUNT = """#!/bin/sh
# Stands in for mount(8) with an NFS client: what mount.nfs would do with SERVER:PATH.
case "$*" in
*down:*) kill -STOP $$ ;;
*denied:*) shift $(($# - 2)); echo "mount.nfs: access denied by server while mounting $1"; exit 32 ;;
*"-t nfs"*) for target; do :; done; exec {real} -t tmpfs nodev "$target" ;;
esac
exec {real} "$@"
"""


def nfs_client(directory: Path) -> str:
    """A PATH on which mount(8) can mount exports of any server: each time an empty file system in memory."""
    real = subprocess.run(["which", "mount"], capture_output=True, text=True, check=True).stdout.strip()
    directory.mkdir()
    (directory / "mount").write_text(MOUNT.format(real=real))
    (directory / "mount").chmod(0o755)
    return f"{directory}:{os.environ['PATH']}"


@contextmanager
def loop_device(image: Path, size_bytes: int = 16 << 20) -> Iterator[str]:
    """A block device of its own, empty."""
    image.touch()
    os.truncate(image, size_bytes)
    made = subprocess.run(["losetup", "-f", "--show", str(image)], capture_output=True, text=True, check=True)
    device = made.stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


def loops_below(directory: Path | str) -> dict[str, str]:
    """Loop devices on files below a directory, and on which."""
    prefix = f"{os.path.realpath(directory)}/"
    found = {}
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):  # it may go meanwhile
            found[f"/dev/{path.parts[3]}"] = path.read_text().strip()
    return {device: file for device, file in found.items() if file.startswith(prefix)}

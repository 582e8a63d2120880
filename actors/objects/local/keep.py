"""Keeps the last good objects of broken files across restarts of the actor, in memory only.

RUN_DIR is a tmpfs on most machines (/run). Elsewhere nothing is kept, since Secrets must not be written to a disk; then
a broken file has no objects after a restart until it is mended.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

import msgspec

from actors._host.files import checkpoint
from actors.objects.parsing.load import Loaded
from actors.objects.policy import FileState
from proto.common.machine import mountinfo

NAME = "objects-last-good.json"
VERSION = 1
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})


def in_memory(directory: str) -> bool:
    """True when the directory's file system is in memory only. Raises OSError."""
    device = os.stat(directory).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    found = mountinfo.mounts(mountinfo.read())
    return any(mount.device == wanted and mount.fs_type in _IN_MEMORY for mount in found)


def save(run_dir: str, files: Mapping[str, FileState]) -> None:
    """Save the last good objects of broken files. Raises OSError."""
    path = os.path.join(run_dir, NAME)
    broken = {
        name: (state.objects, state.changed)
        for name, state in files.items()
        if state.error is not None and state.objects is not None
    }
    if not broken or not in_memory(run_dir):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return
    checkpoint.save(path, VERSION, broken, sync=False)


def load(run_dir: str) -> dict[str, FileState]:
    """Load the saved objects. Raises OSError."""
    plain = checkpoint.load(os.path.join(run_dir, NAME), VERSION, secret=True) or {}
    try:
        kept = msgspec.convert(plain, dict[str, tuple[tuple[Loaded, ...], float]])
    except msgspec.ValidationError:
        return {}  # written by another version
    return {name: FileState(objects, None, changed) for name, (objects, changed) in kept.items()}

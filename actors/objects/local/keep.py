"""The last good objects of files that are broken now, over a death of the actor: only in memory, never on a disk.

RUN_DIR is a tmpfs on most machines (/run); where it is not, nothing is kept, since Secrets would be written to a disk.
A broken file then has no objects after the actor was killed, until it is mended.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

import msgspec

from actors._host.files import checkpoint
from actors.objects.local.load import Loaded
from actors.objects.policy import FileState

NAME = "objects-last-good.json"
VERSION = 1
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})


def in_memory(directory: str) -> bool:
    """Whether a directory is in memory only."""
    device = os.stat(directory).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:
        lines = (line.split(" ") for line in table)
        return any(fields[2] == wanted and fields[fields.index("-") + 1] in _IN_MEMORY for fields in lines)


def save(run_dir: str, files: Mapping[str, FileState]) -> None:
    """Keep the last good objects of what is broken. Raises OSError."""
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
    """What was kept. Raises OSError."""
    plain = checkpoint.load(os.path.join(run_dir, NAME), VERSION) or {}
    try:
        kept = msgspec.convert(plain, dict[str, tuple[tuple[Loaded, ...], float]])
    except msgspec.ValidationError:
        return {}  # another version's
    return {name: FileState(objects, None, changed) for name, (objects, changed) in kept.items()}

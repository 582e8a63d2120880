"""Containers that containerd can neither run nor delete, and the way out of that.

A StartContainer whose caller is killed in the middle may leave a task in the shim that containerd's CRI plugin takes
for ended: it sends no signal to it, and deletes neither the container ("cannot delete running task") nor its sandbox,
until the shim is gone (seen in containerd 1.6). Not here: when to do so; a shim serves a whole sandbox.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from pathlib import Path

from actors._cri.errors import CriError
from actors._host.files.untrusted_files import read_regular

log = logging.getLogger(__name__)

MOST_BYTES = 128 * 1024
"""Of a command line."""


def is_stuck(error: CriError) -> bool:
    """Whether a removal failed for that reason."""
    return "cannot delete running task" in error.details


def end_shim(sandbox_id: str) -> bool:
    """Kill the sandbox's shim; containerd then ends and forgets what it served. False when there is none.

    Its command line carries the sandbox's ID, which is unique, and so no other process can be meant.
    """
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if not (directory / "comm").read_text().startswith("containerd-shim"):
                continue
            if sandbox_id.encode() in read_regular(directory / "cmdline", MOST_BYTES).split(b"\0"):
                log.warning(
                    "killing the shim %s of sandbox %s: it holds what cannot be deleted", directory.name, sandbox_id
                )
                os.kill(int(directory.name), signal.SIGKILL)
                return True
    return False

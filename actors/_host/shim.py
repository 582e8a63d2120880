"""Ends a sandbox's shim, for containers that containerd can neither run nor delete.

If the caller of StartContainer is killed during the call, a task may stay in the shim that containerd's CRI plugin
takes for ended. It sends no signal to the task. Until the shim is gone it deletes neither the container ("cannot delete
running task") nor its sandbox (seen in containerd 1.6 and 2.1). A shim serves a whole sandbox, so the caller decides.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from pathlib import Path

from actors._host.files.untrusted_files import read_regular

log = logging.getLogger(__name__)

MOST_BYTES = 128 * 1024
"""The most bytes that are read of a command line."""


def end_shim(sandbox_id: str) -> bool:
    """Kill the sandbox's shim; containerd then forgets its containers. False: there is no shim.

    The shim is found by the sandbox's ID in its command line, which is unique.
    """
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if not (directory / "comm").read_bytes().startswith(b"containerd-shim"):  # any process chooses its name
                continue
            if sandbox_id.encode() in read_regular(directory / "cmdline", MOST_BYTES).split(b"\0"):
                log.warning(
                    "killing the shim %s of sandbox %s: its containers cannot be deleted", directory.name, sandbox_id
                )
                os.kill(int(directory.name), signal.SIGKILL)
                return True
    return False

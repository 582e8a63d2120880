"""Paths of containers' logs. The pod's log directory and all below it may be a pod's work: no link there is followed.

A pod that may write to /var/log could have the log written to any file of the machine. The directories above the pod's
may be links, since an administrator may keep /var/log/pods on a disk of its own.
"""

from __future__ import annotations

import contextlib
import os

from actors.runtime.model.state import Container


def log_place(container: Container) -> str:
    """The path of the log, with a double slash where links end: ABOVE//POD/CONTAINER/0.log. Empty without a log."""
    path, beneath = container.record.log_path, container.config.log_path
    directory = path.removesuffix(beneath).rstrip("/")
    if not directory or beneath.startswith("/"):
        return path
    above, pod = os.path.split(directory)
    return f"{above}//{pod}/{os.path.normpath(beneath)}"


def make_directory(place: str) -> None:
    """Make the directories of a log. Raises OSError: ENOTDIR where a directory is a link."""
    above, _, beneath = place.rpartition("//")
    if not above:
        os.makedirs(os.path.dirname(place), mode=0o755, exist_ok=True)
        return
    os.makedirs(above, mode=0o755, exist_ok=True)
    here = os.open(above, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in filter(None, os.path.dirname(beneath).split("/")):
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=here)
            below = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = below
    finally:
        os.close(here)

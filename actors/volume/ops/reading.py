"""Reads a file that a container wrote into its volume. Blocks: runs in a helper process.

The content is hostile: links cannot lead out of the volume, only regular files are opened, and reads are bounded.
"""

from __future__ import annotations

import os
import stat

from actors.volume.steps.errors import VolumeError

_MAX_LINKS = 40


def read(volume: str, path: str, max_bytes: int) -> bytes:
    """Content of the file at `path` in the directory `volume`. Raises VolumeError, also beyond `max_bytes`."""
    try:
        descriptor = _open_inside(volume, path)
    except OSError as error:
        raise VolumeError(f"cannot open {path}: {error.strerror}") from error
    with open(descriptor, "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise VolumeError(f"{path} is larger than {max_bytes} bytes")
    return content


def _open_inside(volume: str, path: str) -> int:
    """Open `path` with `volume` as its root: links, also absolute ones, and `..` stay inside.

    Every component is opened relative to the one before, without following links. A component that is replaced by a
    link meanwhile is an error. Raises OSError, and VolumeError for anything but a regular file.
    """
    opened = [os.open(volume, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
    todo = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    links = 0
    try:
        while todo:
            part = todo.pop()
            if part == "..":
                if len(opened) > 1:
                    os.close(opened.pop())
                continue
            inner = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened[-1])
            if not stat.S_ISLNK(os.fstat(inner).st_mode):
                opened.append(inner)
                continue
            target = os.readlink("", dir_fd=inner)
            os.close(inner)
            links += 1
            if links > _MAX_LINKS:
                raise OSError(40, "too many levels of symbolic links")
            if target.startswith("/"):
                while len(opened) > 1:
                    os.close(opened.pop())
            todo += [one for one in reversed(target.split("/")) if one not in ("", ".")]
        if not stat.S_ISREG(os.fstat(opened[-1]).st_mode):
            raise VolumeError(f"{path} is not a regular file")  # opening a FIFO or device may block or have effects
        # Without waiting: a process of the container may hold a lease on the file.
        return os.open(f"/proc/self/fd/{opened[-1]}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        for descriptor in opened:
            os.close(descriptor)

"""Reads and writes small files; takes descriptors out of a packet."""

from __future__ import annotations

import _socket
import os
import sys

TYPE_CHECKING = False  # see loop.py
if TYPE_CHECKING:
    from typing import Any


def read_text(path: str) -> str:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(65536).decode("utf-8", "replace").replace("\0", " ").strip()
    except OSError:
        return ""


def start_time(pid: int) -> str:
    """Field 22 of /proc/PID/stat; 0 for an ended process."""
    fields = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else "0"


def write(path: str, text: str) -> None:
    """Write a file atomically."""
    try:
        fd = os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)
        os.rename(f"{path}.tmp", path)
    except OSError:
        pass  # no directory, or a full disk: the actor checks the process itself


def descriptors(ancillary: Any) -> list[int]:
    """The descriptors in a packet's ancillary data."""
    return [
        int.from_bytes(data[at : at + 4], sys.byteorder)
        for level, kind, data in ancillary
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS)
        for at in range(0, len(data) - 3, 4)
    ]

"""A terminal for a container: its own end is the standard files, the other end goes through the console socket."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Mapping
from typing import Any

from actors.runtime.helper import syscalls

_TIOCGPTN, _TIOCSPTLCK = 0x80045430, 0x40045431


def connect(path: str) -> socket.socket:
    """While the machine's files can be seen. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    return connection


def attach(connection: socket.socket, process: Mapping[str, Any], *, console: bool) -> None:
    """From the devpts that is seen now; this process leads its session. `console`: have /dev/console, too. OSError."""
    master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    fcntl.ioctl(master, _TIOCSPTLCK, struct.pack("i", 0))
    number = struct.unpack("i", fcntl.ioctl(master, _TIOCGPTN, b"\0\0\0\0"))[0]
    name = f"/dev/pts/{number}"
    own = os.open(name, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    size = process.get("consoleSize") or {}
    fcntl.ioctl(own, termios.TIOCSWINSZ, struct.pack("HHHH", size.get("height", 24), size.get("width", 80), 0, 0))
    if console:
        _mount_console(name)
    message = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [master]))]
    connection.sendmsg([name.encode()], message)
    connection.close()
    os.close(master)
    fcntl.ioctl(own, termios.TIOCSCTTY, 0)
    for fd in range(3):
        os.dup2(own, fd)
    os.close(own)


def take(fd: int) -> None:
    """Have the terminal that this process was given as its session's own. Raises OSError."""
    fcntl.ioctl(fd, termios.TIOCSCTTY, 0)


def _mount_console(name: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.close(os.open("/dev/console", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    fd = syscalls.open_tree(name, recursive=False)
    syscalls.move_mount(fd, "/dev/console")
    os.close(fd)

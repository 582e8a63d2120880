"""A terminal for a container: its own end is the standard files, the other end goes through the console socket."""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Mapping
from typing import Any, NamedTuple

from actors.runtime.helper.inside import Inside, open_within
from actors.runtime.helper.kernel import syscalls

_TIOCGPTN, _TIOCSPTLCK = 0x80045430, 0x40045431


def connect(path: str) -> socket.socket:
    """While the machine's files can be seen. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    return connection


class Terminal(NamedTuple):
    """One that was made: both its ends, and its name where it is seen."""

    master: int
    own: int
    name: str


def of_machine() -> Terminal:
    """One of this machine's. Raises OSError."""
    master, own = os.openpty()
    return Terminal(master, own, os.ttyname(own))


def of_container(devpts: int) -> Terminal:
    """One of this devpts, by the entries of that alone. Takes the descriptor. Raises OSError.

    The container's volumes and processes decide what is at /dev/ptmx and /dev/pts/N (CVE-2025-52565).
    """
    flags = os.O_RDWR | os.O_NOCTTY
    try:
        master = open_within(devpts, "ptmx", flags)
        fcntl.ioctl(master, _TIOCSPTLCK, struct.pack("i", 0))
        number = struct.unpack("i", fcntl.ioctl(master, _TIOCGPTN, b"\0\0\0\0"))[0]
        return Terminal(master, open_within(devpts, str(number), flags), f"/dev/pts/{number}")
    finally:
        os.close(devpts)


def attach(made: Terminal, connection: socket.socket, process: Mapping[str, Any]) -> None:
    """Send its other end away, and have it as the standard files; this process leads its session. Raises OSError."""
    size = process.get("consoleSize") or {}
    fcntl.ioctl(made.own, termios.TIOCSWINSZ, struct.pack("HHHH", size.get("height", 24), size.get("width", 80), 0, 0))
    message = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [made.master]))]
    connection.sendmsg([made.name.encode()], message)
    connection.close()
    os.close(made.master)
    fcntl.ioctl(made.own, termios.TIOCSCTTY, 0)
    for fd in range(3):
        os.dup2(made.own, fd)
    os.close(made.own)


def show_as_console(made: Terminal, inside: Inside) -> None:
    """Have it at the container's /dev/console, too. Raises OSError."""
    place = inside.place("/dev/console", is_directory=False)
    fd = syscalls.open_tree_of(made.own, made.name, recursive=False)
    syscalls.move_mount(fd, place, "/dev/console")
    os.close(fd)
    os.close(place)


def take(fd: int) -> None:
    """Have the terminal that this process was given as its session's own. Raises OSError."""
    fcntl.ioctl(fd, termios.TIOCSCTTY, 0)

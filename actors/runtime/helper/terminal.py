"""A container's terminal: the slave becomes its standard files, the master goes through the console socket."""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Mapping
from typing import Any, NamedTuple

from actors.runtime.helper.container_root import ContainerRoot, open_within
from actors.runtime.helper.kernel import syscalls

_TIOCGPTN, _TIOCSPTLCK = 0x80045430, 0x40045431


def connect(path: str) -> socket.socket:
    """Connect to the console socket while the machine's files are visible. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    return connection


class Terminal(NamedTuple):
    """A new terminal: master, slave, and the slave's path in the container."""

    master: int
    own: int
    name: str


def of_machine() -> Terminal:
    """Open a terminal of the machine. Raises OSError."""
    master, own = os.openpty()
    return Terminal(master, own, os.ttyname(own))


def of_container(devpts: int) -> Terminal:
    """Open a terminal of a devpts, by the entries of that file system alone. Closes `devpts`. Raises OSError.

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
    """Send the master away; make the slave standard files and controlling terminal. Raises OSError."""
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


def show_as_console(made: Terminal, container_root: ContainerRoot) -> None:
    """Mount the slave at the container's /dev/console. Raises OSError."""
    place = container_root.mount_point("/dev/console", is_directory=False)
    fd = syscalls.open_tree_of(made.own, made.name, recursive=False)
    syscalls.move_mount(fd, place, "/dev/console")
    os.close(fd)
    os.close(place)


def take(fd: int) -> None:
    """Make `fd` the controlling terminal of this session. Raises OSError."""
    fcntl.ioctl(fd, termios.TIOCSCTTY, 0)

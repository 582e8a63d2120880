"""Sends packets of any size between the actor and a helper over one SOCK_SEQPACKET pair. The sender never waits.

A packet too large for the socket goes into a memory file whose descriptor is sent. It is never on a disk, since it may
hold Secrets.
"""

from __future__ import annotations

import array
import os
import socket

_INLINE = 64 * 1024
_FD = array.array("i").itemsize


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a new channel."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(sock: socket.socket, packet: bytes) -> None:
    """Send a packet. Raises OSError when the other side is gone or its buffer is full."""
    if len(packet) <= _INLINE:
        sock.send(b"\0" + packet, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        return
    fd = os.memfd_create("volume", os.MFD_CLOEXEC)
    try:
        view = memoryview(packet)
        while view:
            view = view[os.write(fd, view) :]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        sock.sendmsg([b"\1"], rights, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    finally:
        os.close(fd)


def receive(sock: socket.socket, *, wait: bool) -> bytes | None:
    """The next packet; None when the other side is gone. Without `wait`, raises BlockingIOError when there is none."""
    flags = socket.MSG_CMSG_CLOEXEC | (0 if wait else socket.MSG_DONTWAIT)
    try:
        packet, rights, _, _ = sock.recvmsg(_INLINE + 1, socket.CMSG_SPACE(_FD), flags)
    except ConnectionResetError:
        return None  # killed before it read all that was sent
    if not packet:
        return None
    if packet[:1] == b"\0":
        return packet[1:]
    fd = array.array("i", rights[0][2][:_FD])[0]
    try:
        return os.pread(fd, os.fstat(fd).st_size, 0)
    finally:
        os.close(fd)

"""A ZeroMQ socket of an actor process: any thread sends, the I/O thread receives.

ZeroMQ allows a socket one thread at a time, so each socket has a lock. A send in the caller's own thread saves the way
through the I/O thread, which would be woken for each message.

The I/O thread waits for the socket's descriptor (ZMQ_FD) with epoll. The descriptor reports news from ZeroMQ's thread,
not messages. Each call on the socket takes the news in, and the descriptor is silent again. So a send looks whether
messages have arrived, and a receiver reads until there are none: otherwise messages could wait for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import zmq

_NOBLOCK, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
"""Numbers, because operators of the enumeration take longer than a send."""
_EVENTS, _POLLIN = int(zmq.EVENTS), int(zmq.POLLIN)


class SharedSocket:
    """Owns the socket. Usable from any thread."""

    def __init__(self, socket: zmq.Socket[bytes], arrived: Callable[[], None]) -> None:
        """`arrived` has the I/O thread call `receive` soon, though the descriptor may be silent."""
        self._socket = socket
        self._arrived = arrived
        self._lock = threading.Lock()
        self.fd = int(socket.get(zmq.FD))

    def send(self, *frames: bytes) -> bool:
        """Queue a message; False when the queue is full. Dropped after `close`, when the process ends."""
        with self._lock:
            if self._socket.closed:
                return True
            queued = self._queue(frames)
            news = self._has_arrived()
        if news:
            self._arrived()
        return queued

    def _queue(self, frames: tuple[bytes, ...]) -> bool:
        try:
            for frame in frames[:-1]:
                self._socket.send(frame, _MORE)
            self._socket.send(frames[-1], _NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self, most: int) -> list[list[bytes]]:
        """Messages that have arrived, as frames. After `most` of them the others' turn comes first."""
        taken: list[list[bytes]] = []
        with self._lock:
            while self._has_arrived():
                taken.append(self._socket.recv_multipart(_NOBLOCK))
                if len(taken) == most:
                    self._arrived()
                    break
        return taken

    def _has_arrived(self) -> bool:
        return bool(int(self._socket.get(_EVENTS)) & _POLLIN)

    def close(self) -> None:
        """Close the socket. What is queued is sent within its linger time."""
        with self._lock:
            self._socket.close()

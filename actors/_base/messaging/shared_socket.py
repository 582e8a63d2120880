"""A ZeroMQ socket of an actor process: any thread sends, the I/O thread receives.

ZeroMQ allows one thread at a time on a socket, so each socket has a lock. Senders send in their own thread, which does
not wake the I/O thread for each message.

The I/O thread waits for the socket's descriptor (ZMQ_FD) with epoll. The descriptor is edge-triggered: any call on the
socket, also a send, clears it, even if messages have arrived. So `look` checks for messages after a send, and
`receive` reads until there are none. Otherwise messages could wait for ever.

`look` takes longer than the send. The mailbox thread calls it once for all sends of a handler.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import zmq

_NOBLOCK, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
"""Numbers, because operators of the enumeration take longer than a send."""
_EVENTS, _POLLIN = int(zmq.EVENTS), int(zmq.POLLIN)


class SharedSocket:
    """Owns the socket. Usable from any thread."""

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        arrived: Callable[[], None],
        looks_later: Callable[[SharedSocket], bool] = lambda _: False,
    ) -> None:
        """`arrived` makes the I/O thread call `receive` soon, even if the descriptor is not ready.

        `looks_later` is called after each send. It returns True when it will call `look` itself, False to look now.
        """
        self._socket = socket
        self._arrived = arrived
        self._looks_later = looks_later
        self._lock = threading.Lock()
        self.fd = int(socket.get(zmq.FD))

    def send(self, *frames: bytes) -> bool:
        """Queue a message; False when the queue is full. Dropped after `close`, when the process ends."""
        with self._lock:
            if self._socket.closed:
                return True
            queued = self._queue(frames)
        if not self._looks_later(self):
            self.look()
        return queued

    def look(self) -> None:
        """Make the I/O thread receive the messages that have arrived, if there are some."""
        with self._lock:
            has_messages = not self._socket.closed and self._has_arrived()
        if has_messages:
            self._arrived()

    def _queue(self, frames: tuple[bytes, ...]) -> bool:
        try:
            for frame in frames[:-1]:
                self._socket.send(frame, _MORE)
            self._socket.send(frames[-1], _NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self, most: int) -> list[list[bytes]]:
        """Messages that have arrived, as frames; at most `most`, then other sockets come first."""
        taken: list[list[bytes]] = []
        with self._lock, contextlib.suppress(zmq.Again):
            while not self._socket.closed:
                if len(taken) == most:
                    self._arrived()
                    break
                taken.append(self._receive())
        return taken

    def _receive(self) -> list[bytes]:
        """One message. `recv_multipart` takes longer: it asks the socket after each frame whether more follow."""
        frame = self._socket.recv(_NOBLOCK, copy=False)
        frames = [frame.bytes]
        while frame.more:
            frame = self._socket.recv(_NOBLOCK, copy=False)
            frames.append(frame.bytes)
        return frames

    def _has_arrived(self) -> bool:
        return bool(int(self._socket.get(_EVENTS)) & _POLLIN)

    def close(self) -> None:
        """Close the socket. What is queued is sent within its linger time."""
        with self._lock:
            self._socket.close()

"""A ZeroMQ socket of an actor process: any thread sends, the I/O thread receives.

ZeroMQ allows a socket one thread at a time, so each socket has a lock. A send in the caller's own thread saves the way
through the I/O thread, which would be woken for each message.

The loop waits for the socket's descriptor (ZMQ_FD) with epoll. The descriptor reports news from ZeroMQ's thread, not
messages. Each call on the socket takes the news in, and the descriptor is silent again. So after a send a look follows
whether messages have arrived, and a receiver reads until there are none: otherwise messages could wait for ever.

The look takes longer than the send. The mailbox thread makes one for all sends of a message's handler.
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
        """`arrived` has the loop call `receive` soon, though the descriptor may be silent. `looks_later` has `look`
        called soon; False when it does not."""
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
        """Have messages that have arrived received."""
        with self._lock:
            news = not self._socket.closed and self._has_arrived()
        if news:
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
        """Messages that have arrived, as frames. After `most` of them the others' turn comes first."""
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

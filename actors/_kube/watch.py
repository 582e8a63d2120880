"""List and watch with a thread for each collection: all objects first, then their changes, until `stop`.

Level-triggered: `replaced` gets all objects, and again after each loss of the resource version (410), so that no
change is missed. `follow` does the same for many collections without a thread.
"""

from __future__ import annotations

import errno
import logging
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import urllib3

from actors._kube.connection.session import Session, read_all
from actors._kube.errors import ApiError, Unreachable
from actors._kube.reflector import LIST_S, MARGIN_S, SHORT_S, SILENT_S, WATCH_MAX_S, WATCH_MIN_S, Listener, Position

__all__ = ["Listener", "Watch", "lines"]

log = logging.getLogger(__name__)

LINE_BYTES = 64 * 1024
LONGEST_LINE_BYTES = 64 * 1024 * 1024
"""Limit of an event. Objects have a few MB at most."""


class Watch:
    """Follows one collection. `start` it once; `stop` ends the thread."""

    def __init__(self, session: Session, path: str, listener: Listener, query: dict[str, str] | None = None) -> None:
        """`query` has the selectors for list and watch."""
        self._session = session
        self._path = path
        self._position = Position(path, query)
        self._listener = listener
        self._stopped = threading.Event()
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Start in a new thread."""
        threading.Thread(target=self._run, name=f"watch {self._path}", daemon=True).start()

    def stop(self) -> None:
        """Stop. The listener is not called again."""
        self._stopped.set()
        sock = self._socket
        if sock is not None:
            # Not the response's close(), which waits for the present read.
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    @property
    def version(self) -> str:
        """The collection's resource version after the last call of the listener; in `replaced`, the list's."""
        return self._position.version or ""

    def _run(self) -> None:
        position = self._position
        while not self._stopped.is_set():
            try:
                if position.version is None:
                    self._list()
                self._follow()
            except ApiError as error:
                if self._stopped.is_set():
                    return
                position.lost(error)
                self._listener.failed(error)
                self._stopped.wait(position.pause_s(error, time.monotonic(), random.random()))

    def _list(self) -> None:
        content = self._session.call("GET", self._path, query=self._position.list_query(), timeout_s=LIST_S)
        items = self._position.listed(content)
        if not self._stopped.is_set():
            self._listener.replaced(items)

    def _follow(self) -> None:
        """One watch, from the present version to its end. Raises ApiError when it cannot start."""
        seconds = random.uniform(WATCH_MIN_S, WATCH_MAX_S)
        query = self._position.watch_query(seconds)
        began = time.monotonic()
        response = self._session.open("GET", self._path, query=query, deadline=began + LIST_S)
        self._socket = getattr(response.connection, "sock", None)
        try:
            if response.status >= 300:
                content = read_all(response, began + LIST_S)
                raise ApiError.of(response.status, content, response.headers.get("Retry-After"))
            if self._socket is not None:
                self._socket.settimeout(SILENT_S)
            seen = self._take_events(response, began + seconds + MARGIN_S)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(f"watch {self._path}: {error}") from error
        finally:
            self._socket = None
            response.close()
        if not seen and time.monotonic() - began < SHORT_S:
            raise Unreachable(f"watch {self._path}: it ended at once, without an event")

    def _take_events(self, response: urllib3.BaseHTTPResponse, deadline: float) -> int:
        seen = 0
        for line in lines(response, deadline):
            if self._stopped.is_set():
                break
            event = self._position.event(line)
            seen += 1
            if event.type == "BOOKMARK":
                self._listener.marked(event.object["metadata"]["resourceVersion"])
            else:
                self._listener.changed(event.type, event.object)
        return seen


def lines(response: urllib3.BaseHTTPResponse, deadline: float) -> Iterator[bytes]:
    """The lines of a body as they arrive. An incomplete last line is dropped."""
    rest = b""
    for part in response.stream(LINE_BYTES, decode_content=True):
        *whole, rest = (rest + part).split(b"\n")
        if len(rest) > LONGEST_LINE_BYTES:
            raise OSError(errno.EMSGSIZE, f"an event of more than {LONGEST_LINE_BYTES} bytes")
        yield from (line for line in whole if line.strip())
        if time.monotonic() > deadline:
            return

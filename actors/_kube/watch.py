"""List and watch: everything a collection holds, then its changes, for as long as the process lives.

A thread of its own per collection blocks on the connection and hands batches on. Level-triggered: `replaced` is all
there is, and comes again whenever the resource version is lost (410), so that a change nobody saw is never missed.
Source: client-go's Reflector; https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes.
"""

from __future__ import annotations

import logging
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import urllib3

from actors._kube.back_off import BackOff
from actors._kube.errors import ApiError, Gone, Unreachable
from actors._kube.session import Session, read_all

log = logging.getLogger(__name__)

LIST_S = 60.0
WATCH_MIN_S, WATCH_MAX_S = 300.0, 600.0
"""A watch is asked to end after a time between these, so that no node hangs on one server for ever."""
MARGIN_S = 30.0
"""A server that does not end it then is taken for gone."""
SHORT_S = 1.0
"""A watch that ends sooner without an event is a failure."""
LINE_BYTES = 64 * 1024


class Listener:
    """Whom it is told, in the watch's thread: methods that only hand on."""

    def replaced(self, items: list[dict[str, Any]]) -> None:
        """All there is; what is not in it is gone."""

    def changed(self, kind: str, item: dict[str, Any]) -> None:
        """ADDED, MODIFIED or DELETED."""

    def failed(self, error: ApiError) -> None:
        """It is tried again. For what an operator sees."""


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: dict[str, Any]


class Watch:
    """One collection. `start` once; `stop` ends the thread at its next sign of life."""

    def __init__(self, session: Session, path: str, listener: Listener, query: dict[str, str] | None = None) -> None:
        """`query`: selectors, for list and watch both."""
        self._session = session
        self._path = path
        self._query = query or {}
        self._listener = listener
        self._stopped = threading.Event()
        self._version: str | None = None
        """Where to go on from; None: list first."""
        self._list_from = "0"
        """Any state that a server has, as after a start; empty, the newest, once a version was too old."""
        self._back_off = BackOff()
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Begin, in a thread of its own."""
        threading.Thread(target=self._run, name=f"watch {self._path}", daemon=True).start()

    def stop(self) -> None:
        """End; nothing more is told."""
        self._stopped.set()
        sock = self._socket
        if sock is not None:
            # Not the response's close(), which waits for the read that is under way.
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                if self._version is None:
                    self._list()
                self._follow()
            except ApiError as error:
                if self._stopped.is_set():
                    return
                self._list_anew(error)
                self._listener.failed(error)
                self._stopped.wait(self._back_off.delay(time.monotonic(), random.random(), error.retry_after_s))

    def _list_anew(self, error: ApiError) -> None:
        """After a failure there is a list first: the server may not be the one it was, nor its etcd."""
        too_new = "Too large resource version" in error.message  # as a server says whose etcd was emptied
        self._list_from = "" if isinstance(error, Gone) or too_new else (self._version or self._list_from)
        self._version = None

    def _list(self) -> None:
        query = self._query | ({"resourceVersion": self._list_from} if self._list_from else {})
        content = self._session.call("GET", self._path, query=query, timeout_s=LIST_S)
        try:
            found = msgspec.json.decode(content)
        except msgspec.DecodeError as error:
            raise Unreachable(f"GET {self._path}: the list is no JSON: {error}") from error
        self._version = found["metadata"]["resourceVersion"]
        self._list_from = "0"
        kind = (found.get("kind") or "").removesuffix("List")
        items = [{"apiVersion": found.get("apiVersion", ""), "kind": kind} | item for item in found.get("items") or ()]
        if not self._stopped.is_set():
            self._listener.replaced(items)

    def _follow(self) -> None:
        """One watch, from the present version to its end. Raises ApiError when it could not be had."""
        seconds = random.uniform(WATCH_MIN_S, WATCH_MAX_S)
        query = self._query | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "",
            "timeoutSeconds": str(int(seconds)),
        }
        began = time.monotonic()
        response = self._session.open("GET", self._path, query=query, deadline=began + LIST_S)
        self._socket = getattr(response.connection, "sock", None)
        try:
            if response.status >= 300:
                content = read_all(response, began + LIST_S)
                raise ApiError.of(response.status, content, response.headers.get("Retry-After"))
            if self._socket is not None:
                # From now on it is silent while nothing happens.
                self._socket.settimeout(seconds + MARGIN_S)
            seen = self._take_events(response, began + seconds + MARGIN_S)
        except (urllib3.exceptions.HTTPError, OSError, msgspec.DecodeError) as error:
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
            event = msgspec.json.decode(line, type=_Event)
            if event.type == "ERROR":
                raise ApiError.of_status(event.object)
            seen += 1
            self._version = event.object["metadata"]["resourceVersion"]
            if event.type != "BOOKMARK":
                self._listener.changed(event.type, event.object)
        return seen


def lines(response: urllib3.BaseHTTPResponse, deadline: float) -> Iterator[bytes]:
    """The lines of a body as they arrive; what a broken connection leaves of the last one is dropped."""
    rest = b""
    for part in response.stream(LINE_BYTES, decode_content=True):
        *whole, rest = (rest + part).split(b"\n")
        yield from (line for line in whole if line.strip())
        if time.monotonic() > deadline:
            return

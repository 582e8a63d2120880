"""Requests and responses as handlers see them, and the parsing of request targets. No socket."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote_to_bytes

from actors._net.stream import Stream
from actors._net.streaming.remotecommand import listed

TEXT, JSON = "text/plain; charset=utf-8", "application/json"
_NOT_AT_ALL = re.compile(r"q\s*=\s*0(\.0*)?")


class User(NamedTuple):
    """An authenticated user, as in TokenReview's status."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


class BadRequest(ValueError):
    """The request is invalid. The message goes to the client."""


@dataclass
class Request:
    """One request. A handler reads the body when it needs it."""

    method: str
    path: str
    """Decoded and absolute, without `.`, `..` and empty segments."""
    query: dict[str, list[str]]
    headers: dict[str, str]
    """By name in lower case; the values of a repeated header are joined by commas."""
    head: bytes = b""
    """Request line and headers as received."""
    params: dict[str, str] = field(default_factory=dict)
    """The path's values of the route pattern's parameters."""
    redirect: str = ""
    """See Target.redirect."""
    user: User = ANONYMOUS
    read_body: Callable[[int], Awaitable[bytes]] | None = None
    """Reads the body, at most the given number of bytes. Raises BadRequest for a longer one."""

    def first(self, name: str, default: str = "") -> str:
        """A query parameter's first value."""
        return self.query.get(name, [default])[0]

    @property
    def has_body(self) -> bool:
        """True when the headers announce a body."""
        return "transfer-encoding" in self.headers or self.headers.get("content-length", "0") != "0"

    @property
    def takes_gzip(self) -> bool:
        """True when Accept-Encoding accepts gzip (RFC 9110, 12.5.3)."""
        for one in self.headers.get("accept-encoding", "").lower().split(","):
            coding, *parameters = (part.strip() for part in one.split(";"))
            if coding in ("gzip", "x-gzip"):
                return not any(_NOT_AT_ALL.fullmatch(parameter) for parameter in parameters)
        return False

    @property
    def is_upgrade(self) -> bool:
        """True when the request asks for another protocol on this connection."""
        return "upgrade" in self.headers.get("connection", "").lower() and bool(self.headers.get("upgrade"))

    @property
    def subprotocols(self) -> list[str]:
        """The WebSocket subprotocols that it offers; none for another upgrade."""
        if not self.is_upgrade or self.headers["upgrade"].lower() != "websocket":
            return []
        return listed([self.headers.get("sec-websocket-protocol", "")])


Body = bytes | AsyncGenerator[bytes, None]


@dataclass
class Response:
    """An answer. Its body is bytes, or a generator of parts that are sent as the client reads them."""

    status: int = 200
    body: Body = b""
    content_type: str = TEXT
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    """The number of bytes of a generator's parts; None when it is unknown. With fewer the connection is cut."""


@dataclass
class Upgraded:
    """The connection switches to another protocol, on which the runtime has agreed."""

    carry: Callable[[Stream, bytes], Coroutine[Any, None, None]]
    """Serves the client's connection until its end; the second argument is what followed the request."""


class Target(NamedTuple):
    """The parsed target of a request line."""

    path: str
    query: dict[str, list[str]]
    redirect: str
    """The clean path to redirect to, quoted, as Go's ServeMux does it; empty when the path is clean."""


MAX_PARAMETERS = 10_000
"""A command of `kubectl exec` has a parameter for each word."""


def parse_target(raw: bytes) -> Target:
    """The target of a request line. Raises BadRequest."""
    path_bytes, _, query = raw.partition(b"?")
    if not path_bytes.startswith(b"/"):
        raise BadRequest("the request target is no path")
    try:
        path = unquote_to_bytes(path_bytes).decode()
        found = parse_qs(query.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_PARAMETERS, errors="strict")
    except (UnicodeDecodeError, ValueError) as error:
        raise BadRequest("the request target is not valid") from error
    if any(ord(character) < 0x20 or character == "\x7f" for character in path):
        raise BadRequest("the path has control characters")
    shortest = clean(path)
    if shortest != path:
        return Target(shortest, found, quote(shortest) + (f"?{query.decode()}" if query else ""))
    return Target(path, found, "")


def clean(path: str) -> str:
    """The shortest form of an absolute path, with its final slash if it has one."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    slash = "/" if parts and path.endswith("/") else ""
    return "/" + "/".join(parts) + slash


def text(status: int, message: str, **headers: str) -> Response:
    """An answer in plain text."""
    return Response(status, message.encode(), headers=headers)

"""Requests and responses as handlers see them, and the parsing of request targets. No socket."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote_to_bytes

from actors._net.stream import Stream

TEXT, JSON = "text/plain; charset=utf-8", "application/json"
_NOT_AT_ALL = re.compile(r"q\s*=\s*0(\.0*)?")


class User(NamedTuple):
    """Who asks, as the API server knows users."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


class BadRequest(ValueError):
    """The request cannot be understood; the message is the client's to read."""


@dataclass
class Request:
    """One request. The body is read by who wants it."""

    method: str
    path: str
    """Decoded, absolute, without `.`, `..` and empty segments in it."""
    query: dict[str, list[str]]
    headers: dict[str, str]
    """By name in lower case; of a repeated one the values with commas between."""
    head: bytes = b""
    """Request line and headers as they came."""
    params: dict[str, str] = field(default_factory=dict)
    """What stands in the pattern's places."""
    redirect: str = ""
    """See Target."""
    user: User = ANONYMOUS
    read_body: Callable[[int], Awaitable[bytes]] | None = None
    """At most so many bytes; raises BadRequest for more."""

    def first(self, name: str, default: str = "") -> str:
        """A query parameter's first value."""
        return self.query.get(name, [default])[0]

    @property
    def has_body(self) -> bool:
        """Whether its headers announce one."""
        return "transfer-encoding" in self.headers or self.headers.get("content-length", "0") != "0"

    @property
    def takes_gzip(self) -> bool:
        """Whether its Accept-Encoding names gzip, and not to refuse it (RFC 9110, 12.5.3)."""
        for one in self.headers.get("accept-encoding", "").lower().split(","):
            coding, *parameters = (part.strip() for part in one.split(";"))
            if coding in ("gzip", "x-gzip"):
                return not any(_NOT_AT_ALL.fullmatch(parameter) for parameter in parameters)
        return False

    @property
    def is_upgrade(self) -> bool:
        """Whether it asks for another protocol on this connection."""
        return "upgrade" in self.headers.get("connection", "").lower() and bool(self.headers.get("upgrade"))


Body = bytes | AsyncGenerator[bytes, None]


@dataclass
class Response:
    """An answer: whole, or in parts as the client takes them."""

    status: int = 200
    body: Body = b""
    content_type: str = TEXT
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Upgraded:
    """The runtime has agreed to another protocol."""

    carry: Callable[[Stream, bytes], Coroutine[Any, None, None]]
    """Takes the client's connection over, with what came after its request, until either end has enough."""


class Target(NamedTuple):
    """What a request line asks for."""

    path: str
    query: dict[str, list[str]]
    redirect: str
    """Where to go instead, quoted, as Go's ServeMux has it: a path that is not in its shortest form. Empty: nowhere."""


MOST_PARAMETERS = 10_000
"""A command of `kubectl exec` has a parameter for each word."""


def parse_target(raw: bytes) -> Target:
    """The target of a request line. Raises BadRequest."""
    path_bytes, _, query = raw.partition(b"?")
    if not path_bytes.startswith(b"/"):
        raise BadRequest("the request target is no path")
    try:
        path = unquote_to_bytes(path_bytes).decode()
        found = parse_qs(query.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_PARAMETERS, errors="strict")
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
    """An answer in plain words."""
    return Response(status, message.encode(), headers=headers)

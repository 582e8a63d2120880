"""HTTP/1.1 as far as probes and hooks need it: one GET, one answer, no connection kept. Bytes in, decisions out."""

from __future__ import annotations

import re
from collections.abc import Sequence

from actors._net.outcome import MAX_BODY_BYTES, Outcome
from actors._net.target import Url
from proto.v1 import HTTPHeader

_MAX_HEAD_BYTES = 64 * 1024
_STATUS_LINE = re.compile(rb"HTTP/\d\.\d (\d{3})(?: [^\r\n]*)?\r?")
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 10
_MAX_INTERIM = 5
_UNSAFE = re.compile(r"[\r\n\0]+")
PROBE_AGENT = "kube-probe/1.36"
LIFECYCLE_AGENT = "kube-lifecycle/1.36"
"""User-Agent of probes and of lifecycle hooks."""


class BadResponse(ValueError):
    """What came is not HTTP; the text is what Go's client says."""


def request(url: Url, headers: Sequence[HTTPHeader], agent: str = PROBE_AGENT) -> bytes:
    """The bytes of the GET. User-Agent and Accept are the kubelet's unless given; an empty Accept sends none."""
    given = {header.name.lower() for header in headers}
    host = next((header.value for header in headers if header.name.lower() == "host" and header.value), url.authority)
    lines = [f"GET {url.path} HTTP/1.1", f"Host: {host}"]
    if "user-agent" not in given:
        lines.append(f"User-Agent: {agent}")
    if "accept" not in given:
        lines.append("Accept: */*")
    for header in headers:
        name = header.name.lower()
        if name in ("host", "connection") or (name in ("accept", "user-agent") and not header.value):
            continue
        lines.append(f"{header.name}: {header.value}")
    lines.append("Connection: close")
    return "".join(_UNSAFE.sub(" ", line) + "\r\n" for line in [*lines, ""]).encode("utf-8", "replace")


class Response:
    """An answer being read. `feed` and `end` say whether it is complete; a body over MAX_BODY_BYTES is cut there."""

    def __init__(self) -> None:
        self.status = 0
        self.location = ""
        self.body = b""
        self._head = b""
        self._length: int | None = None
        self._chunked = False
        self._interim = 0
        self._raw = bytearray()

    @property
    def has_head(self) -> bool:
        """Whether status and headers have arrived."""
        return self.status != 0

    @property
    def is_redirect(self) -> bool:
        """Whether it names another place to ask."""
        return self.status in _REDIRECTS and bool(self.location)

    def feed(self, data: bytes) -> bool:
        """More bytes. Raises BadResponse."""
        if self.has_head:
            return self._feed_body(data)
        self._head += data
        while True:
            head, found, rest = self._split_head()
            if not found:
                if len(self._head) > _MAX_HEAD_BYTES:
                    raise BadResponse(f"net/http: server response headers exceeded {_MAX_HEAD_BYTES} bytes; aborted")
                return False
            self._read_head(head)
            if self.status >= 200 or self.status == 101:
                self._head = b""
                return self._feed_body(rest)
            self.status, self._head = 0, rest  # an interim answer; the final one follows
            self._interim += 1
            if self._interim > _MAX_INTERIM:
                raise BadResponse("net/http: too many 1xx informational responses")

    def _split_head(self) -> tuple[bytes, bool, bytes]:
        line, newline, _ = self._head.partition(b"\n")
        if newline and not _STATUS_LINE.fullmatch(line):
            shown = line.rstrip(b"\r")[:200].decode("utf-8", "replace")
            raise BadResponse(f'net/http: HTTP/1.x transport connection broken: malformed HTTP response "{shown}"')
        for blank in (b"\r\n\r\n", b"\n\n"):
            head, found, rest = self._head.partition(blank)
            if found:
                return head, True, rest
        return b"", False, b""

    def _read_head(self, head: bytes) -> None:
        status_line, *lines = head.split(b"\n")
        match = _STATUS_LINE.fullmatch(status_line)
        assert match is not None  # _split_head has seen to it
        self.status = int(match[1])
        for line in lines:
            name, _, value = line.partition(b":")
            self._read_header(name.strip().lower(), value.strip().decode("latin-1"))

    def _read_header(self, name: bytes, value: str) -> None:
        if name == b"location":
            self.location = value
        elif name == b"transfer-encoding":
            self._chunked = value.lower().endswith("chunked")
        elif name == b"content-length":
            if not value.isdecimal():
                raise BadResponse(f'net/http: HTTP/1.x transport connection broken: bad Content-Length "{value[:100]}"')
            self._length = int(value)

    def _feed_body(self, data: bytes) -> bool:
        self._raw += data
        if self.status in (204, 304) or self.is_redirect:
            return True  # where a redirect leads is known; the text beside it is not worth waiting for
        if self._chunked:
            return self._read_chunks()
        self.body = bytes(self._raw[:MAX_BODY_BYTES])
        return len(self._raw) >= min(MAX_BODY_BYTES, MAX_BODY_BYTES if self._length is None else self._length)

    def _read_chunks(self) -> bool:
        while b"\n" in self._raw:
            line, _, rest = bytes(self._raw).partition(b"\n")
            try:
                size = int(line.partition(b";")[0], 16)
            except ValueError:
                raise BadResponse("invalid byte in chunk length") from None
            if size == 0 or len(self.body) + min(size, len(rest)) >= MAX_BODY_BYTES:
                self.body = (self.body + rest[:size])[:MAX_BODY_BYTES]
                return True
            if len(rest) < size + 2:  # the chunk's own line end comes with it
                return False
            self.body += rest[:size]
            del self._raw[: len(line) + 1 + size + 2]
        return False

    def end(self) -> bool:
        """The connection was closed. True when that completes the answer. Raises BadResponse when it breaks it off."""
        if not self.has_head:
            raise BadResponse("unexpected EOF" if self._head else "EOF")
        return not self._chunked and self._length is None


def redirect_of(response: Response, first_host: str, target: Url | None, hops: int) -> Url | Outcome | None:
    """What a complete answer means for going on: another URL to ask, the outcome of too many, or None for no redirect.

    Only redirects within the first host are followed; one that leads elsewhere proves the container alive.
    """
    if not response.is_redirect or target is None or target.host != first_host:
        return None
    return Outcome("failure", "stopped after 10 redirects") if hops >= _MAX_REDIRECTS else target


def judge(response: Response) -> Outcome:
    """The outcome of a complete answer that is not followed further."""
    if not 200 <= response.status < 400:
        return Outcome("failure", f"HTTP probe failed with statuscode: {response.status}")
    text = response.body.decode("utf-8", "replace")
    if response.status >= 300:
        return Outcome("warning", f"Probe terminated redirects, Response body: {text}")
    return Outcome("success", text)

"""The HTTP/1.1 of probes and hooks: one GET and its answer, without sockets.

h11 parses the answer. This module bounds it, because a hostile container may send it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import h11

from actors._net.probing.outcome import MAX_BODY_BYTES, Outcome
from actors._net.probing.target import BadLocation, Url, has_scheme, quoted, redirected
from proto.v1 import HTTPHeader

MAX_HEAD_BYTES = 64 * 1024
"""Limit of status lines and headers, interim answers included."""
MAX_FRAMED_BYTES = 256 * 1024
"""Limit of the framed body. Chunk sizes, extensions and trailers may take more bytes than the body."""
_MAX_INTERIM = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
MAX_REQUESTS = 10
"""Requests of one probe, the first included: nine redirects are followed, as by Go's client."""
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]+")
_NOT_SENT = frozenset({"host", "connection", "content-length", "transfer-encoding", "trailer"})
"""Headers of a manifest that are not sent as given: they frame the request, or Host is sent separately."""
PROBE_AGENT = "kube-probe/1.36"
LIFECYCLE_AGENT = "kube-lifecycle/1.36"
"""User-Agent of probes and of lifecycle hooks."""


class BadResponse(ValueError):
    """The answer is not HTTP or exceeds a limit. The text is that of Go's client where it is known."""


def request_headers(url: Url, headers: Sequence[HTTPHeader], agent: str = PROBE_AGENT) -> list[tuple[bytes, bytes]]:
    """The headers of the GET. User-Agent and Accept are the kubelet's unless given; an empty Accept sends none."""
    given = {header.name.lower() for header in headers}
    host = next((header.value for header in headers if header.name.lower() == "host" and header.value), url.authority)
    pairs = [("Host", host)]
    if "user-agent" not in given:
        pairs.append(("User-Agent", agent))
    if "accept" not in given:
        pairs.append(("Accept", "*/*"))
    for header in headers:
        name = header.name.lower()
        if name not in _NOT_SENT and (header.value or name not in ("accept", "user-agent")):
            pairs.append((header.name, header.value))
    pairs.append(("Connection", "close"))
    return [(_encoded(name), _encoded(value)) for name, value in pairs]


def _encoded(text: str) -> bytes:
    return _CONTROLS.sub(" ", text).strip().encode("utf-8", "replace")


class Exchange:
    """One request and its answer while it is read. Raises BadResponse for an invalid answer."""

    def __init__(self, url: Url, headers: Sequence[HTTPHeader], agent: str = PROBE_AGENT) -> None:
        self.status = 0
        self.headers: tuple[tuple[str, str], ...] = ()
        """Headers of the final answer: names in lower case, bytes as Latin-1."""
        self.body = b""
        """The first MAX_BODY_BYTES of the body."""
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=2 * MAX_HEAD_BYTES)
        self._url, self._given, self._agent = url, headers, agent
        self._start = b""
        self._received = self._interim = 0
        self._ended = False

    def request(self) -> bytes:
        """The bytes to send. Raises BadResponse for a header that HTTP does not allow."""
        headers = request_headers(self._url, self._given, self._agent)
        try:
            head = self._http.send(h11.Request(method="GET", target=self._url.path, headers=headers)) or b""
            return head + (self._http.send(h11.EndOfMessage()) or b"")
        except h11.LocalProtocolError as error:
            raise BadResponse(f"net/http: invalid request: {error}") from error

    @property
    def has_head(self) -> bool:
        """True when status and headers of the final answer have arrived."""
        return self.status != 0

    @property
    def location(self) -> str:
        """The Location of a redirect; empty for other answers."""
        if self.status not in _REDIRECTS:
            return ""
        value = next((value for name, value in self.headers if name == "location"), "")
        return value.encode("latin-1").decode("utf-8", "replace")

    def take(self, data: bytes) -> None:
        """Take received bytes; none means the end of the connection."""
        if not self._start:
            self._start = data[:256]
        self._received += len(data)
        self._ended = not data
        self._http.receive_data(data)

    def read(self) -> Literal["more", "head", "complete"]:
        """Parse the received bytes. Returns `head` once, after status and headers; `complete` at the body's end or
        limit; else `more`."""
        try:
            state = self._read()
        except h11.RemoteProtocolError as error:
            raise BadResponse(self._broken(error)) from error
        if state == "more" and not self.has_head and self._received > MAX_HEAD_BYTES:
            raise BadResponse(f"net/http: server response headers exceeded {MAX_HEAD_BYTES} bytes; aborted")
        if state == "more" and self._received > MAX_HEAD_BYTES + MAX_FRAMED_BYTES:
            raise BadResponse(f"the body's framing exceeded {MAX_FRAMED_BYTES} bytes")
        return state

    def _read(self) -> Literal["more", "head", "complete"]:
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                return "more"
            if isinstance(event, h11.Data):
                self.body += bytes(event.data[: MAX_BODY_BYTES - len(self.body)])
                if len(self.body) >= MAX_BODY_BYTES:
                    return "complete"
            elif isinstance(event, h11.Response):
                self._take_head(event)
                return "head"
            elif isinstance(event, h11.InformationalResponse):
                if event.status_code == 101:  # a switch of the protocol counts as the probe's answer
                    self._take_head(event)
                    return "head"
                self._interim += 1
                if self._interim > _MAX_INTERIM:
                    raise BadResponse("net/http: too many 1xx informational responses")
            else:
                return "complete"

    def _take_head(self, event: h11.Response | h11.InformationalResponse) -> None:
        self.status = event.status_code
        self.headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers)

    def _broken(self, error: h11.RemoteProtocolError) -> str:
        if self._ended:
            return "unexpected EOF" if self._start else "EOF"
        said = str(error)[:200]
        if self.has_head:
            return said
        line = self._start.partition(b"\n")[0].rstrip(b"\r")
        if not line.startswith(b"HTTP/"):
            said = f'malformed HTTP response "{line[:200].decode("utf-8", "replace")}"'
        return f"net/http: HTTP/1.x transport connection broken: {said}"


def redirect_of(url: Url, location: str, first_host: str) -> Url | None:
    """The URL of the next request after a redirect from `url`; None when the answer is final.

    Only redirects within the first host are followed: any other redirect proves the container alive.
    `location`: empty when the answer is no redirect. Raises BadResponse when Location is not a URL.
    """
    if not location:
        return None
    try:
        target = redirected(url, location)
    except BadLocation as error:
        raise BadResponse(f"failed to parse Location header {quoted(location)}: {error}") from error
    return target if target.host == first_host else None


def redirect_headers(headers: Sequence[HTTPHeader], location: str) -> Sequence[HTTPHeader]:
    """The given headers for the request after a redirect. As in Go, only a Location without a scheme keeps Host."""
    if has_scheme(location):
        return [header for header in headers if header.name.lower() != "host"]
    return headers


def with_referer(headers: Sequence[HTTPHeader], last: str, url: Url) -> Sequence[HTTPHeader]:
    """The headers for the request of `url`, to which an answer of the URL `last` redirected.

    A given Referer stays. Otherwise Go's client sends the last URL, except from https to http (RFC 9110, 10.1.3).
    """
    if last.startswith("https:") and url.scheme == "http":
        return headers
    given = next((header.value for header in headers if header.name.lower() == "referer"), "")
    others = [header for header in headers if header.name.lower() != "referer"]
    return [*others, HTTPHeader(name="Referer", value=given or last)]


def judge(answer: Exchange) -> Outcome:
    """The outcome of a complete, final answer."""
    if not 200 <= answer.status < 400:
        return Outcome("failure", f"HTTP probe failed with statuscode: {answer.status}")
    text = answer.body.decode("utf-8", "replace")
    if answer.status >= 300:
        return Outcome("warning", f"Probe terminated redirects, Response body: {text}")
    return Outcome("success", text)

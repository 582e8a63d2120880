"""Decisions about the requests of a URL with static pods: headers, redirects, and answers that are not used. Pure.

Differences to the kubelet's Go client are all safer. A redirect to another origin gets none of the configured headers,
not only no Authorization. A redirect from https to http is refused. An answer without a length is
refused too: a lost connection would look like its end, and a shorter list ends pods.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from actors.config.pods.manifest import MAX_LIST_BYTES

MAX_REDIRECTS = 10
"""The limit of Go's client."""
REDIRECTS = (301, 302, 303, 307, 308)
NOT_SENT = frozenset({"host", "content-length", "transfer-encoding", "trailer", "accept-encoding", "connection"})
"""Headers that belong to the client. Go's client leaves out the first four of a request's headers, too."""
_KEPT_CHARACTERS = "!$%&'()*+,/:;=?@[]~-._"


class FetchError(Exception):
    """An answer that cannot be used. The text is the reason, without secrets."""


class Fetch(NamedTuple):
    """One request: `target` is the path with the query."""

    scheme: str
    host: str
    port: int
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    """As latin-1 text. Secret."""
    redirects: int = 0

    def origin(self) -> tuple[str, str, int]:
        """The parts that decide whether headers are sent on."""
        return self.scheme, self.host.lower(), self.port

    def url(self) -> str:
        """The URL without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.target}"


def shown(url: str) -> str:
    """A URL for people: without user and password, and without the query, which may have a token."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "(a URL that cannot be parsed)"
    return f"{parts.scheme}://{host}{parts.path}" + ("?..." if parts.query else "")


def first(url: str, header: Mapping[str, tuple[str, ...]]) -> Fetch:
    """The first request. A user and password in the URL become an Authorization, unless the header has one."""
    parts = _split(url)
    sent = [
        (name, value.encode().decode("latin-1"))
        for name, values in header.items()
        if name.lower() not in NOT_SENT
        for value in values
    ]
    if parts.username is not None and all(name.lower() != "authorization" for name, _ in sent):
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        sent.append(("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"))
    return _fetch(parts)._replace(headers=tuple(sent))


def redirected(fetch: Fetch, location: str) -> Fetch:
    """The request after a redirect. Raises FetchError for a redirect that is not followed."""
    if fetch.redirects >= MAX_REDIRECTS:
        raise FetchError(f"redirected more than {MAX_REDIRECTS} times; give the final URL")
    if not location:
        raise FetchError("redirected without a Location; give the final URL")
    try:
        following = _fetch(_split(urljoin(fetch.url(), location)))._replace(redirects=fetch.redirects + 1)
    except (ValueError, FetchError):
        raise FetchError("redirected to something that is no http or https URL; give the final URL") from None
    if fetch.scheme == "https" and following.scheme == "http":
        raise FetchError(f"redirected from https to {shown(following.url())}, which anybody could answer; use https")
    same = following.origin() == fetch.origin()
    return following._replace(headers=fetch.headers if same else ())


def answer_problem(status: int, reason: str, header: Mapping[str, str]) -> str:
    """The reason why an answer is not read; empty for a good answer. Names in `header` are in lower case."""
    if status != 200:
        return f"the server answers {status} {reason[:60]!r}; it must be 200"
    encoding = header.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        return f"the answer is encoded as {encoding[:30]!r}, which was not asked for; serve it plain"
    length = header.get("content-length", "")
    if "chunked" in header.get("transfer-encoding", "").lower():
        return ""
    if not (length.isascii() and length.isdecimal()):
        return "the answer has no Content-Length and is not chunked, so that its end could be a lost connection"
    if len(length) > 15 or int(length) > MAX_LIST_BYTES:
        return f"the answer has more than {MAX_LIST_BYTES} bytes"
    return ""


def _split(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise FetchError("not an http or https URL")
    return parts


def _fetch(parts: SplitResult) -> Fetch:
    """Raises ValueError for a port that is no number."""
    target = quote(parts.path or "/", safe=_KEPT_CHARACTERS)
    if parts.query:
        target += "?" + quote(parts.query, safe=_KEPT_CHARACTERS)
    return Fetch(parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80), target)

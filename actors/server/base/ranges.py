"""The part of a file that a request wants: conditions, one byte range, and the headers of the answer. Pure.

Statuses are those of Go's http.FileServer, which serves /logs/ in the kubelet: https://pkg.go.dev/net/http#ServeContent.
It names no entity tags, either. A request for several ranges gets the whole file (RFC 9110, 14.2).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import formatdate, parsedate_to_datetime
from typing import NamedTuple

GZIP, BINARY, PLAIN = "application/x-gzip", "application/octet-stream", "text/plain; charset=utf-8"
SNIFFED_BYTES = 512
"""The first bytes of a file, from which `type_of` tells its type."""
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
"""As in https://mimesniff.spec.whatwg.org/#binary-data-byte."""
_RANGE = re.compile(r"bytes=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*", re.ASCII)
_LONGEST_DATE = 64
_YEAR_10000 = 253_402_300_800
"""Seconds. HTTP's dates have four digits for the year."""


class Part(NamedTuple):
    """An answer: status, first byte, number of bytes, headers. Without bytes unless the status is 200 or 206."""

    status: int
    start: int
    length: int
    headers: dict[str, str]


def part_of(asked: Mapping[str, str], size: int, modified_s: float) -> Part:
    """The part of a file of `size` bytes for the request's headers, which have lower case names.

    `modified_s` is the time of the last change in seconds since 1970; a time outside of HTTP's dates counts as unknown.
    """
    modified = int(modified_s) if 0 < modified_s < _YEAR_10000 else None
    headers = {"Accept-Ranges": "bytes"}
    if modified is not None:
        headers["Last-Modified"] = formatdate(modified, usegmt=True)
    if status := _condition(asked, modified):
        return Part(status, 0, 0, headers)
    wanted = asked.get("range", "")
    if not wanted or "," in wanted or not size or not _same(asked.get("if-range"), modified):
        return Part(200, 0, size, headers)
    found = _range(wanted, size)
    if found is None:
        return Part(416, 0, 0, {"Content-Range": f"bytes */{size}"})
    start, end = found
    return Part(206, start, end - start, headers | {"Content-Range": f"bytes {start}-{end - 1}/{size}"})


def type_of(first: bytes) -> str:
    """The type of a file that begins with these bytes; never a type that a browser runs, such as HTML."""
    if first.startswith(b"\x1f\x8b\x08"):
        return GZIP
    return BINARY if _BINARY.search(first) else PLAIN


def _condition(asked: Mapping[str, str], modified: int | None) -> int:
    """412 or 304 by the conditions of RFC 9110, 13.2.2; 0 to send the file."""
    unmodified_since, modified_since = _date(asked.get("if-unmodified-since")), _date(asked.get("if-modified-since"))
    if "if-match" in asked:
        if asked["if-match"].strip() != "*":
            return 412
    elif modified is not None and unmodified_since is not None and modified > unmodified_since:
        return 412
    if "if-none-match" in asked:
        return 304 if asked["if-none-match"].strip() == "*" else 0
    return 304 if modified is not None and modified_since is not None and modified <= modified_since else 0


def _same(condition: str | None, modified: int | None) -> bool:
    """True when If-Range is absent, or the date of the last change."""
    return condition is None or (modified is not None and _date(condition) == modified)


def _date(text: str | None) -> int | None:
    """Seconds since 1970; None for what is no date."""
    if text is None or len(text) > _LONGEST_DATE:
        return None
    try:
        found = parsedate_to_datetime(text)
        return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _range(wanted: str, size: int) -> tuple[int, int] | None:
    """Start and end of a range within `size` bytes; None for an invalid one, or one without bytes."""
    match = _RANGE.fullmatch(wanted)
    if match is None or not any(match.groups()):
        return None
    first, last = match.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
    return (start, end) if start < end else None

"""Parses the header WWW-Authenticate, and chooses one of the challenges in it: RFC 9110, 11.6.1."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_ORDER = ("bearer", "basic")
"""Known schemes, the preferred one first: a token service also takes a pull without credentials."""
# A word, and its value if it is a parameter. The look behind lets a search begin at words only: a header of 64 kB of
# letters took half a minute, with the GIL held.
_PART = re.compile(r'(?<![\w.~+/-])([A-Za-z][\w-]*)(?:[ \t]{0,9}=[ \t]{0,9}(?:"([^"]*)"|([^\s",]+))|(?=[\s,]|\Z))')


@dataclass(frozen=True, slots=True)
class Challenge:
    """One scheme, in lower case, and its own parameters by lower-case name."""

    scheme: str
    fields: Mapping[str, str] = field(default_factory=dict)


def parse(header: str) -> list[Challenge]:
    """The challenges of one header, which may join several by commas."""
    found: list[tuple[str, dict[str, str]]] = []
    for part in _PART.finditer(header):
        name, quoted, plain = part.groups()
        if quoted is None and plain is None:
            found.append((name.lower(), {}))
        elif found:
            found[-1][1].setdefault(name.lower(), plain if quoted is None else quoted)
    return [Challenge(scheme, fields) for scheme, fields in found]


def choose(headers: Iterable[str], *, with_user: bool) -> Challenge | None:
    """The challenge to answer; None when there is no known one. Basic needs a user.

    A server may send one header for each scheme, or one header for all, in any order.
    """
    known: dict[str, Challenge] = {}
    for header in headers:
        for challenge in parse(header):
            known.setdefault(challenge.scheme, challenge)
    return next((known[scheme] for scheme in _ORDER if scheme in known and (with_user or scheme != "basic")), None)

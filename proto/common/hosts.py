"""Checks the Host header on ports that ask for no credentials, against DNS rebinding. Pure: no name is looked up.

A browser lets a web page read everything of the page's own origin. The owner of that origin's DNS name can point the
name at this machine after the page is loaded. The Host header still carries the foreign name then.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

_WILDCARDS = ("", "0.0.0.0", "::")


def misdirected(host: str | None, listens_on: str, names: Iterable[str]) -> str:
    """The reason to refuse a request with this Host header; empty to serve it.

    Served are localhost, loopback addresses, the address `listens_on` and `names`. On a wildcard address every IP
    address is served: rebinding needs a name. A request without the header is served: browsers always send it.
    """
    if host is None:
        return ""
    name = _without_port(host.strip()).lower().removesuffix(".")
    address = _packed(name)
    if address is None:
        known = {one.lower() for one in ("localhost", *names) if one}
        taken = name in known
    else:
        loopback = address[:1] == b"\x7f" if len(address) == 4 else address == _packed("::1")
        taken = loopback or listens_on in _WILDCARDS or address == _packed(listens_on)
    if taken:
        return ""
    others = ", ".join(["localhost", *sorted({one for one in names if one})])
    return f"this port does not answer to the host {name[:100]!r}: use {others} or the address it listens on"


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() and ":" not in name else host


def _packed(text: str) -> bytes | None:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_pton(family, text)
        except (OSError, ValueError):
            continue
    return None

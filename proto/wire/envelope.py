"""The envelope: what the two frames of every message are. See proto/README.md, "Frames".

Frame 1 is the header, a msgpack array in the order of `Header`'s fields; frame 2 is the body, a msgpack map.
"""

from __future__ import annotations

import enum

import msgspec

VERSION = 1
"""Raised when the header or the meaning of a kind changes. Both sides of a socket come from one installation, so there
is no negotiation: another version is an error that says so."""

MAX_BODY_BYTES = 512 * 1024 * 1024
"""Upper bound of one body: a SET or a list carries every pod of a node, 110 of them by default, and one may have 3 MiB
as a manifest (1.5 MiB in etcd), all of it environment if its author likes. A frame takes only what is in it."""


class Kind(enum.IntEnum):
    """What a frame is for."""

    TELL = 0
    ASK = 1
    REPLY = 2
    ERROR = 3


class Header(msgspec.Struct, frozen=True, array_like=True):
    """Frame 1. `source` is the sender's actor name (`supervisor` and `console` for those two).

    `incarnation`: the sender's; 0 for senders without one. `correlation`: the ask's number, chosen by the asker, echoed
    in the answer; 0 in a TELL. `sent_ns`: CLOCK_MONOTONIC at sending, for queue times (one clock on one machine).
    """

    version: int
    kind: int
    type: str
    source: str
    incarnation: int
    correlation: int
    sent_ns: int

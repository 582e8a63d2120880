"""The envelope: the header of a message, its kinds, and the limits. See proto/README.md, "Frames".

A message has two frames. Frame 1 is the header, a msgpack array in the order of `Header`'s fields. Frame 2 is the body,
a msgpack map.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

VERSION = 1
"""Protocol version. Increase it when the header or the meaning of a kind changes.

Both sides of a socket come from one installation. So versions are not negotiated: another version is an error.
"""

MAX_BODY_BYTES = 512 * 1024 * 1024
"""Upper bound of a body. A SET or a list has every pod of a node, by default 110.

A pod can have 3 MiB as a manifest (1.5 MiB in etcd). A frame takes no more memory than its content.
"""

TRACEPARENT = "^00-[0-9a-f]{32}-[0-9a-f]{16}-01$"
"""The context of a sampled span (https://www.w3.org/TR/trace-context/)."""


class Kind(enum.IntEnum):
    """The kind of a message."""

    TELL = 0
    ASK = 1
    REPLY = 2
    ERROR = 3


class Header(msgspec.Struct, frozen=True, array_like=True):
    """Frame 1. `source` is the sender's actor name (`supervisor` and `console` for those two).

    `incarnation`: the sender's; 0 for senders without one. `correlation`: the ask's number, chosen by the asker, echoed
    in the answer; in a TELL the receiver's incarnation that the sender knows, 0 for none. `sent_ns`: CLOCK_MONOTONIC at
    sending, for queue times (one clock on one machine). `trace`: the traceparent (W3C) of the sender's span, only in
    messages of a sampled trace.
    """

    version: int
    kind: int
    type: str
    source: str
    incarnation: int
    correlation: int
    sent_ns: int
    trace: Annotated[str, msgspec.Meta(pattern=TRACEPARENT)] = ""

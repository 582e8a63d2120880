"""Limits of remote consoles, and the check of a request. Pure."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from proto.agent import console_roles, registry
from proto.agent.remote_console import SUBSCRIBE, TAP, WORLD
from proto.common.machine.listening import plain
from proto.common.token_bucket import TokenBucket
from proto.wire import codec
from proto.wire.envelope import Header, Kind
from proto.wire.errors import ProtocolError, Refused
from proto.wire.message import Message, type_named

MOST_CONNECTIONS = 32
MOST_UNKNOWN = 16
"""Connections that have not shown their key yet."""
MOST_UNKNOWN_PER_SOURCE = 8
"""The same of one address, so that others get through while it opens connections without end. All of one key fit."""
MOST_PER_KEY = 8
HANDSHAKE_S = 5.0
IDLE_S = 3600.0
MOST_FRAME_BYTES = 64 * 1024
MOST_UNREAD_BYTES = 256 * 1024
"""Bytes of a client without a whole message: a message with endless frames ends its connection."""
MOST_QUEUED_BYTES = 16 << 20
"""Answers that a client has not read. Beyond it the connection ends."""
MOST_ANSWER_BYTES = 8 << 20
MOST_ASKS = 8
"""Requests of one connection that wait for their answer."""
MOST_STREAMS = 32
MOST_DROPPED = 10_000
"""Stream messages that a slow client loses, until its connection ends."""
ASK_S = 70.0
PROFILE_S = 620.0
BYTES_PER_S, BYTES_BURST = 256 * 1024, 1 << 20
REQUESTS_PER_S, REQUESTS_BURST = 50.0, 200
ACCEPTS_PER_S, ACCEPTS_BURST = 20.0, 64
_NOT_FORWARDED = frozenset({"remote_console"})


def source_of(host: str) -> str:
    """The client's address; of IPv6 the network, since one machine has as many addresses as it likes."""
    address = ipaddress.ip_address(plain(host))
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(ipaddress.IPv6Network((int(address), 64), strict=False))


def displaced(unknown: Mapping[int, str], newcomer: str, total: int) -> int | None:
    """The connection without a key that ends for a newcomer; None when there is room, or nothing to end.

    `unknown` has the sources of connections without a key by number, oldest first. A source at its own limit loses its
    oldest. Else the source with the most connections loses its oldest, so that it keeps no other client out.
    """
    held = Counter(unknown.values())
    if held[newcomer] >= MOST_UNKNOWN_PER_SOURCE:
        return next(number for number, source in unknown.items() if source == newcomer)
    if len(unknown) < MOST_UNKNOWN and total < MOST_CONNECTIONS:
        return None
    return max(unknown, key=lambda number: held[unknown[number]], default=None)  # max takes the first, the oldest


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that may be forwarded; `stream` for a subscription."""

    target: str
    header: Header
    message: Message | None
    stream: str = ""


class Invalid(Exception):
    """A message that is no request. The text is for the log."""


def parse(frames: list[bytes]) -> tuple[str, Header, bytes]:
    """Target, header and body. Raises Invalid."""
    if len(frames) != 3:
        raise Invalid(f"{len(frames)} frames, expected target, header and body")
    try:
        target = frames[0][:64].decode()
        header = codec.decode_header(frames[1])
    except (UnicodeDecodeError, ProtocolError) as error:
        raise Invalid(str(error)) from error
    if header.kind not in (Kind.ASK, Kind.TELL):
        raise Invalid(f"kind {header.kind} is no request")
    return target, header, frames[2]


def check(target: str, header: Header, body: bytes, role: str) -> Asked:
    """The typed request, if the role may send it. Raises Refused and ProtocolError."""
    if header.type == SUBSCRIBE:
        name = target.removeprefix(TAP)
        if target != WORLD and (name == target or name not in registry.NAMES):
            raise Refused("NotFound", f"cannot follow {target!r}: there is no such stream", retry=False)
        if role not in console_roles.ROLES:
            raise Refused("Forbidden", console_roles.refusal(role, SUBSCRIBE), retry=False)
        return Asked(target, header, None, target)
    if target in _NOT_FORWARDED or (target != "supervisor" and target not in registry.NAMES):
        raise Refused("NotFound", f"cannot reach {target!r}: there is no such actor for consoles", retry=False)
    if not console_roles.allows(role, header.type):
        raise Refused("Forbidden", console_roles.refusal(role, header.type), retry=False)
    return Asked(target, header, codec.decode(body, type_named(target, header.type)))


def timeout_s(asked: Asked) -> float:
    """The deadline of an answer."""
    return PROFILE_S if asked.header.type == "Profile" else ASK_S


@dataclass(slots=True)
class ByteBudget:
    """Bytes that a client may send now: a rate with a burst."""

    tokens: float = BYTES_BURST
    at: float = 0.0

    def wait_s(self, now: float) -> float:
        """Seconds until it may send again; 0: now."""
        if self.at:
            self.tokens = min(float(BYTES_BURST), self.tokens + (now - self.at) * BYTES_PER_S)
        self.at = now
        return 0.0 if self.tokens > 0 else -self.tokens / BYTES_PER_S + 0.01

    def took(self, count: int) -> None:
        """Count bytes."""
        self.tokens -= count


@dataclass(slots=True)
class Rates:
    """The budgets of one connection."""

    incoming: ByteBudget = field(default_factory=ByteBudget)
    requests: TokenBucket = field(default_factory=lambda: TokenBucket(REQUESTS_PER_S, REQUESTS_BURST))

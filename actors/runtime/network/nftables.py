"""The part of nftables that address translation needs: one table, replaced atomically, without the program nft.

A statement pairs the text of nft(8) with the kernel's expressions, so that rules can be read, compared and named in
errors. IPv4. https://wiki.nftables.org, linux/netfilter/nf_tables.h.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
from typing import NamedTuple

from actors.runtime.network import wire
from actors.runtime.network.wire import attribute, big_endian, nested, text

PREROUTING, OUTPUT, POSTROUTING = 0, 3, 4
"""Hooks."""
RAW, DSTNAT, SRCNAT = -300, -100, 100
"""Priorities."""
PROTOCOLS = {"tcp": 6, "udp": 17, "sctp": 132}
ABSENT = (errno.ENOENT, errno.EINVAL, errno.EOPNOTSUPP, errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT)
"""Errors of a kernel for a missing object or feature."""
_NFTABLES = 10 << 8
_NEWTABLE, _GETTABLE, _DELTABLE, _NEWCHAIN, _NEWRULE = (_NFTABLES | number for number in (0, 1, 2, 3, 6))
_BATCH_BEGIN, _BATCH_END = 16, 17
_IN_SUBSYSTEM = struct.pack("!BBH", socket.AF_UNSPEC, 0, 10)
_IPV4 = struct.pack("!BBH", socket.AF_INET, 0, 0)
_REG_VERDICT, _REG_1, _REG_2 = 0, 1, 2
_EQ, _NEQ = 0, 1
_JUMP, _DROP = -3, 0
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_SADDR_AT, _DADDR_AT, _DPORT_AT = 12, 16, 2
_IIFNAME, _OIFNAME, _L4PROTO = 6, 7, 16
_NAME_BYTES = 16
_CT_STATUS, _IPS_DST_NAT = 2, 0x20
_FIB_ADDRTYPE, _FIB_DADDR, _RTN_LOCAL = 3, 2, 2
_DNAT = 1


class Statement(NamedTuple):
    """A part of a rule: nft's text, and the kernel's expressions."""

    text: str
    expressions: bytes


class Rule(NamedTuple):
    """A rule in the chain of that name."""

    chain: str
    statements: tuple[Statement, ...]

    def __str__(self) -> str:
        return " ".join(statement.text for statement in self.statements)


class Chain(NamedTuple):
    """A chain at a hook, of `type` nat or filter; without a type it is for jumps."""

    name: str
    type: str = ""
    hook: int = 0
    priority: int = 0


class Table(NamedTuple):
    """A table with all its chains and rules."""

    name: str
    chains: tuple[Chain, ...]
    rules: tuple[Rule, ...]


def replace(table: Table) -> None:
    """Replace a table atomically. Raises OSError, which names the refused object."""
    name = text(1, table.name)
    steps = [("nf_tables", _NEWTABLE, wire.CREATE, name), ("", _DELTABLE, 0, name), ("", _NEWTABLE, wire.CREATE, name)]
    for chain in table.chains:
        what = f"chain {chain.name}" + (f" of type {chain.type}" if chain.type else "")
        steps.append((what, _NEWCHAIN, wire.CREATE, _chain(table.name, chain)))
    for rule in table.rules:
        steps.append((f"rule {rule}", _NEWRULE, wire.CREATE | 0x800, _rule(table.name, rule)))  # NLM_F_APPEND
    try:
        _commit([(kind, flags, payload) for _, kind, flags, payload in steps])
    except wire.Refused as error:
        what = steps[error.at - 1][0] if 0 < error.at <= len(steps) else "nf_tables"
        raise OSError(error.errno, f"{error.strerror} ({what})") from error


def delete(name: str) -> None:
    """Delete a table. Idempotent. Raises OSError."""
    try:
        _commit([(_DELTABLE, 0, text(1, name))])
    except OSError as error:
        if error.errno not in ABSENT:
            raise


def exists(name: str) -> bool:
    """Return True when the table exists; False also without kernel support. Raises OSError."""
    try:
        wire.request(wire.NETFILTER, _GETTABLE, 0, _IPV4 + text(1, name))
    except OSError as error:
        if error.errno in ABSENT:
            return False
        raise
    return True


def iifname(name: str) -> Statement:
    """Packets that came in by this link."""
    return Statement(f"iifname {name}", _meta(_IIFNAME) + _compare(name.encode().ljust(_NAME_BYTES, b"\0")))


def oifname(name: str) -> Statement:
    """Packets that go out by this link."""
    return Statement(f"oifname {name}", _meta(_OIFNAME) + _compare(name.encode().ljust(_NAME_BYTES, b"\0")))


def saddr(network: str, *, but: bool = False) -> Statement:
    """Packets from this network; with `but`, from all others."""
    return Statement(f"ip saddr {'!= ' if but else ''}{network}", _within(_SADDR_AT, network, _NEQ if but else _EQ))


def daddr(network: str, *, but: bool = False) -> Statement:
    """Packets to this network; with `but`, to all others."""
    return Statement(f"ip daddr {'!= ' if but else ''}{network}", _within(_DADDR_AT, network, _NEQ if but else _EQ))


def to_the_machine() -> Statement:
    """Packets to an address of the machine."""
    data = big_endian(1, _REG_1) + big_endian(2, _FIB_ADDRTYPE) + big_endian(3, _FIB_DADDR)
    return Statement("fib daddr type local", _expression("fib", data) + _compare(struct.pack("=I", _RTN_LOCAL)))


def dport(protocol: str, port: int) -> Statement:
    """Packets to this port; `protocol` is tcp, udp or sctp."""
    expressions = _meta(_L4PROTO) + _compare(bytes([PROTOCOLS[protocol]]))
    expressions += _payload(_TRANSPORT_HEADER, _DPORT_AT, 2) + _compare(struct.pack("!H", port))
    return Statement(f"{protocol} dport {port}", expressions)


def translated() -> Statement:
    """Packets of a connection with a translated target."""
    data = big_endian(1, _REG_1) + big_endian(2, _CT_STATUS)
    status = _expression("ct", data) + _and(struct.pack("=I", _IPS_DST_NAT))
    return Statement("ct status dnat", status + _compare(bytes(4), _NEQ))


def dnat(address: str, port: int) -> Statement:
    """Send packets to this address and port instead."""
    registers = _immediate(_REG_1, ipaddress.ip_address(address).packed) + _immediate(_REG_2, struct.pack("!H", port))
    data = big_endian(1, _DNAT) + big_endian(2, socket.AF_INET) + big_endian(3, _REG_1) + big_endian(5, _REG_2)
    return Statement(f"dnat to {address}:{port}", registers + _expression("nat", data))


def masquerade() -> Statement:
    """Give packets the machine's source address."""
    return Statement("masquerade", _expression("masq", b""))


def jump(chain: str) -> Statement:
    """Continue in that chain, then return."""
    return Statement(f"jump {chain}", _verdict(big_endian(1, _JUMP) + text(2, chain)))


def drop() -> Statement:
    """Drop packets."""
    return Statement("drop", _verdict(big_endian(1, _DROP)))


def _expression(name: str, data: bytes) -> bytes:
    return nested(1, text(1, name), nested(2, data))


def _meta(key: int) -> bytes:
    return _expression("meta", big_endian(1, _REG_1) + big_endian(2, key))


def _payload(base: int, offset: int, length: int) -> bytes:
    data = big_endian(1, _REG_1) + big_endian(2, base) + big_endian(3, offset) + big_endian(4, length)
    return _expression("payload", data)


def _compare(value: bytes, how: int = _EQ) -> bytes:
    return _expression("cmp", big_endian(1, _REG_1) + big_endian(2, how) + nested(3, attribute(1, value)))


def _and(mask: bytes) -> bytes:
    data = big_endian(1, _REG_1) + big_endian(2, _REG_1) + big_endian(3, len(mask))
    data += nested(4, attribute(1, mask)) + nested(5, attribute(1, bytes(len(mask))))
    return _expression("bitwise", data)


def _within(offset: int, network: str, how: int) -> bytes:
    parsed = ipaddress.ip_network(network)
    expressions = _payload(_NETWORK_HEADER, offset, 4)
    if parsed.prefixlen < 32:
        expressions += _and(parsed.netmask.packed)
    return expressions + _compare(parsed.network_address.packed, how)


def _immediate(register: int, value: bytes) -> bytes:
    return _expression("immediate", big_endian(1, register) + nested(2, attribute(1, value)))


def _verdict(verdict: bytes) -> bytes:
    return _expression("immediate", big_endian(1, _REG_VERDICT) + nested(2, nested(2, verdict)))


def _chain(table: str, chain: Chain) -> bytes:
    payload = text(1, table) + text(3, chain.name)
    if chain.type:
        payload += nested(4, big_endian(1, chain.hook), big_endian(2, chain.priority)) + text(7, chain.type)
    return payload


def _rule(table: str, rule: Rule) -> bytes:
    expressions = b"".join(statement.expressions for statement in rule.statements)
    return text(1, table) + text(2, rule.chain) + nested(4, expressions)


def _commit(steps: list[tuple[int, int, bytes]]) -> None:
    """Send all steps as one batch; the last one is acknowledged. Raises OSError."""
    messages = [wire.message(_BATCH_BEGIN, 0, _IN_SUBSYSTEM, 0)]
    for at, (kind, flags, payload) in enumerate(steps, 1):
        last = wire.ACK if at == len(steps) else 0
        messages.append(wire.message(kind, flags | last, _IPV4 + payload, at))
    wire.batch(wire.NETFILTER, [*messages, wire.message(_BATCH_END, 0, _IN_SUBSYSTEM, len(messages))])

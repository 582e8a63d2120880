"""Roles, the check of a request, ZAP answers and budgets, without a socket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.remote_console import limits
from actors.remote_console.limits import ByteBudget, Invalid
from proto.agent import console_roles, registry
from proto.wire import codec
from proto.wire.envelope import Kind
from proto.wire.errors import ProtocolError, Refused
from proto.wire.message import types_for


def header(name: str, kind: Kind = Kind.ASK) -> bytes:
    return codec.encode_header(kind, name, "console", 0, 1)


@pytest.mark.parametrize(
    ("role", "request_", "allowed"),
    [
        ("read", "ListPods", True),
        ("read", "RestartActor", False),
        ("read", "GetObjects", False),
        ("operate", "RestartActor", True),
        ("operate", "CallRuntime", False),
        ("operate", "Evaluate", False),
        ("debug", "Evaluate", True),
        ("", "Ping", False),
        ("root", "Ping", False),
    ],
)
def test_role_decides_by_the_requests_type(role: str, request_: str, allowed: bool) -> None:
    assert console_roles.allows(role, request_) is allowed


def test_every_request_of_a_role_exists() -> None:
    known = {name for actor in (*registry.NAMES, "supervisor") for name in types_for(actor)}
    assert known >= console_roles.OPERATE | console_roles.ALWAYS_DEBUG
    assert known >= console_roles.READ


def test_secrets_are_behind_debug() -> None:
    assert {console_roles.required(name) for name in ("GetObjects", "GetToken", "CallRuntime", "ReadVolumeFile")} == {
        "debug"
    }


@pytest.mark.parametrize(
    ("target", "name", "role", "error"),
    [
        ("pleg", "Ping", "", Refused),
        ("nobody", "Ping", "debug", Refused),
        ("remote_console", "Ping", "debug", Refused),
        ("pleg", "NoSuch", "debug", ProtocolError),
        ("tap:nobody", "Subscribe", "read", Refused),
        ("tap:", "Subscribe", "read", Refused),
        ("world", "Subscribe", "", Refused),
        ("../control", "Subscribe", "debug", Refused),
    ],
)
def test_wrong_request_is_refused(target: str, name: str, role: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        limits.check(target, codec.decode_header(header(name)), b"\x80", role)


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_any_frames_are_a_request_or_invalid(frames: list[bytes]) -> None:
    try:
        target, head, body = limits.parse(frames)
        limits.check(target, head, body, "debug")
    except (Invalid, Refused, ProtocolError):
        return


@given(st.lists(st.integers(0, 100_000), max_size=50))
def test_byte_budget_never_exceeds_rate_and_burst(sizes: list[int]) -> None:
    budget, now, sent = ByteBudget(), 1.0, 0
    for size in sizes:
        now += budget.wait_s(now)
        budget.took(size)
        sent += size
    assert sent <= limits.BYTES_BURST + (now - 1.0) * limits.BYTES_PER_S + 100_000


@pytest.mark.parametrize(
    ("hosts", "newcomer", "total", "expected"),
    [
        ("", "a", 0, None),
        ("abcdefghijklmno", "p", 15, None),
        ("abcdefghijklmnop", "q", 16, 0),
        ("abbcdefghijklmno", "p", 16, 1),
        ("abbbbbbbb", "b", 9, 1),
        ("abbbbbbbb", "a", 9, None),
        ("abbbbbbbbccccccc", "d", 16, 1),
        ("ab", "c", limits.MOST_CONNECTIONS, 0),
        ("", "a", limits.MOST_CONNECTIONS, None),
    ],
)
def test_newcomer_takes_the_place_of_who_has_most(hosts: str, newcomer: str, total: int, expected: int | None) -> None:
    assert limits.displaced(dict(enumerate(hosts)), newcomer, total) == expected


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
    ],
)
def test_source_of_ipv6_is_its_network(host: str, source: str) -> None:
    assert limits.source_of(host) == source


def test_answer_that_is_too_large_is_an_error() -> None:
    from actors.remote_console.gateway import answer_frames  # noqa: PLC0415
    from proto.agent.actor import StackTraces  # noqa: PLC0415

    head, body = answer_frames(StackTraces(text="x" * (limits.MOST_ANSWER_BYTES + 1)), 5)
    assert codec.decode_header(head).kind == Kind.ERROR
    assert b"TooLarge" in body

"""Unary gRPC calls on HTTP/2: frames out and in, whatever the pieces they come in."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors._net import unary
from actors._net.unary import MOST_FRAME, PREFACE, WINDOW, Broken, UnaryCalls, frame

PATH = "/runtime.v1.RuntimeService/Exec"
OPENING = b"\x88\x5f"
"""Header blocks are not read: any bytes do."""


def message(content: bytes, *, compressed: int = 0) -> bytes:
    return struct.pack(">BI", compressed, len(content)) + content


def answer(stream: int, content: bytes) -> bytes:
    return (
        frame(unary.HEADERS, unary.END_HEADERS, stream, OPENING)
        + frame(unary.DATA, 0, stream, message(content))
        + frame(unary.HEADERS, unary.END_HEADERS | unary.END_STREAM, stream, b"\xbe")
    )


class Calls(UnaryCalls):
    def __init__(self) -> None:
        self.sent: list[bytes] = []
        super().__init__(self.sent.append)

    def asked(self, request: bytes = b"request") -> int:
        stream = self.ask(PATH, request, 10.0)
        assert stream is not None
        return stream


def frames(data: bytes) -> list[tuple[int, int, int, bytes]]:
    found = []
    while data:
        size = int.from_bytes(data[:3], "big")
        found.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + size]))
        data = data[9 + size :]
    return found


def test_the_first_bytes_are_the_preface_and_settings() -> None:
    (first,) = Calls().sent
    assert first.startswith(PREFACE)
    assert [(kind, flags, stream) for kind, flags, stream, _ in frames(first.removeprefix(PREFACE))] == [
        (unary.SETTINGS, 0, 0)
    ]


def test_a_request_is_its_headers_and_one_message() -> None:
    calls = Calls()
    assert [calls.asked(), calls.asked(b"")] == [1, 3]
    (headers, data), (_, empty) = frames(calls.sent[1]), frames(calls.sent[2])
    assert headers[:3] == (unary.HEADERS, unary.END_HEADERS, 1)
    for word in (PATH, "application/grpc", "trailers", "10000m"):
        assert bytes((len(word),)) + word.encode() in headers[3]
    assert data == (unary.DATA, unary.END_STREAM, 1, message(b"request"))
    assert empty == (unary.DATA, unary.END_STREAM, 3, message(b""))


@given(st.lists(st.integers(1, 40)))
def test_answers_come_in_any_pieces_and_in_any_order(sizes: list[int]) -> None:
    calls = Calls()
    first, second = calls.asked(), calls.asked()
    data = frame(unary.SETTINGS, 0, 0, struct.pack(">HI", 3, 100)) + answer(second, b"2") + answer(first, b"1")
    over: list[tuple[int, bytes | None]] = []
    for size in sizes:
        over += calls.take(data[:size])
        data = data[size:]
    assert over + calls.take(data) == [(second, b"2"), (first, b"1")]


@pytest.mark.parametrize(
    "said",
    [
        frame(unary.HEADERS, unary.END_HEADERS | unary.END_STREAM, 1, OPENING),
        frame(unary.RST_STREAM, 0, 1, b"\0\0\0\x07"),
        frame(unary.DATA, 0, 1, message(b"packed", compressed=1)) + frame(unary.HEADERS, unary.END_STREAM, 1),
        frame(unary.DATA, 0, 1, message(b"cut")[:-1]) + frame(unary.HEADERS, unary.END_STREAM, 1),
        frame(unary.DATA, 0, 1, message(b"two") * 2) + frame(unary.HEADERS, unary.END_STREAM, 1),
    ],
    ids=["trailers only", "reset", "compressed", "cut short", "two messages"],
)
def test_a_call_without_a_message_ends_without_an_answer(said: bytes) -> None:
    calls = Calls()
    assert calls.asked() == 1
    assert calls.take(said) == [(1, None)]
    assert calls.take(answer(1, b"late")) == [], "it is over"


def test_what_the_server_wants_to_know_it_is_told() -> None:
    calls = Calls()
    calls.take(frame(unary.SETTINGS, 0, 0) + frame(unary.PING, 0, 0, b"12345678"))
    calls.take(frame(unary.SETTINGS, unary.ACK, 0) + frame(unary.PING, unary.ACK, 0, b"12345678"))
    assert calls.sent[1:] == [frame(unary.SETTINGS, unary.ACK, 0), frame(unary.PING, unary.ACK, 0, b"12345678")]


def test_one_that_is_given_up_is_reset_once_and_its_answer_is_nobodys() -> None:
    calls = Calls()
    calls.give_up(calls.asked())
    calls.give_up(1)
    assert frames(b"".join(calls.sent[2:])) == [(unary.RST_STREAM, 0, 1, b"\0\0\0\x08")]
    assert calls.take(answer(1, b"late")) == []


def test_no_more_is_sent_than_the_server_takes() -> None:
    calls = Calls()
    assert calls.ask(PATH, bytes(MOST_FRAME), 1.0) is None
    sent = 0
    while calls.ask(PATH, bytes(10_000), 1.0) is not None:
        sent += 10_005
    assert WINDOW - 10_005 < sent <= WINDOW
    calls.take(frame(unary.WINDOW_UPDATE, 0, 1, b"\0\0\xff\xff"))
    assert calls.ask(PATH, bytes(10_000), 1.0) is None, "that was for another stream"
    calls.take(frame(unary.WINDOW_UPDATE, 0, 0, b"\0\0\xff\xff"))
    assert calls.ask(PATH, bytes(10_000), 1.0) is not None
    calls.take(frame(unary.SETTINGS, 0, 0, struct.pack(">HI", unary.INITIAL_WINDOW_SIZE, 9_000)))
    assert calls.ask(PATH, bytes(10_000), 1.0) is None


def test_the_server_gets_room_again_for_what_it_has_sent() -> None:
    calls = Calls()
    for _ in range(20):
        stream = calls.asked()
        assert calls.take(answer(stream, bytes(5_000))) == [(stream, bytes(5_000))]
    updates = [
        int.from_bytes(payload, "big")
        for sent in calls.sent[1:]
        for kind, _, stream, payload in frames(sent)
        if kind == unary.WINDOW_UPDATE and stream == 0
    ]
    assert 100_100 - WINDOW < sum(updates) <= 100_100


@pytest.mark.parametrize(
    "said",
    [
        frame(unary.GOAWAY, 0, 0, bytes(8)),
        frame(unary.PUSH_PROMISE, 0, 1, bytes(4)),
        frame(unary.DATA, unary.PADDED, 1, b"\0"),
        frame(unary.SETTINGS, 0, 0, b"odd"),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
    ids=["goaway", "push", "padded", "settings", "http 1"],
)
def test_what_is_not_understood_ends_the_connection(said: bytes) -> None:
    calls = Calls()
    calls.asked()
    with pytest.raises(Broken):
        calls.take(said)


def test_an_answer_without_end_is_none() -> None:
    calls = Calls()
    calls.asked()
    with pytest.raises(Broken):
        calls.take(frame(unary.DATA, 0, 1, bytes(MOST_FRAME)) * 100)


@given(st.binary(max_size=200))
def test_nothing_but_broken_comes_out_of_any_bytes(said: bytes) -> None:
    calls = Calls()
    calls.asked()
    try:
        calls.take(said)
    except Broken:
        return

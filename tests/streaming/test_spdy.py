"""SPDY frames as Kubernetes' streaming uses them, and how a command's end is told."""

from __future__ import annotations

import json
import struct
import zlib

import pytest

from actors._net.streaming.spdy import (
    DICTIONARY,
    MAX_CONTROL,
    WHOLE_DATA,
    Accepted,
    Data,
    GoneAway,
    Opened,
    Pinged,
    ProtocolError,
    Reset,
    Session,
)
from supervisor.cli.streams.transport.connection import StreamingError
from supervisor.cli.streams.transport.remote import exit_code_of


def test_a_stream_is_opened_with_its_headers_by_an_odd_number() -> None:
    session = Session()
    reader = zlib.decompressobj()
    for number, headers in ((1, {"StreamType": "error"}), (3, {"streamtype": "data", "port": "80"})):
        found, frame = session.open(headers)
        assert found == number
        first, second, stream, associated = struct.unpack_from(">IIII", frame)
        assert (first, second >> 24, second & 0xFFFFFF) == (0x80030001, 0, len(frame) - 8)
        assert (stream, associated) == (number, 0)
        block = reader.decompress(frame[18:])
        (count,) = struct.unpack_from(">I", block)
        words, at = [], 4
        for _ in range(2 * count):
            (length,) = struct.unpack_from(">I", block, at)
            words.append(block[at + 4 : at + 4 + length].decode())
            at += 4 + length
        assert dict(zip(words[::2], words[1::2], strict=True)) == {k.lower(): v for k, v in headers.items()}


def test_frames_are_parsed_from_any_pieces() -> None:
    received = (
        struct.pack(">III", 0x80030002, 4, 5)
        + Session.data(5, b"hello")
        + struct.pack(">II", 0x80030004, 4) + b"\0" * 4
        + struct.pack(">III", 0x80030006, 4, 77)
        + Session.data(5, b"", end=True)
        + Session.reset(7)
        + struct.pack(">IIII", 0x80030007, 8, 0, 0)
    )  # fmt: skip
    wanted = [
        Accepted(5), Data(5, b"hello", False), Pinged(struct.pack(">III", 0x80030006, 4, 77)), Data(5, b"", True),
        Reset(7), GoneAway(),
    ]  # fmt: skip
    for size in (1, 3, 8, 1000):
        session = Session()
        found = [event for at in range(0, len(received), size) for event in session.feed(received[at : at + size])]
        assert found == wanted


def test_server_reads_headers_with_and_without_the_dictionary() -> None:
    assert zlib.adler32(DICTIONARY) == 0xE3C6A7C2, "the specification's"
    for packer in (zlib.compressobj(), zlib.compressobj(zdict=DICTIONARY)):
        server = Session()
        for number in (1, 3):
            words = [b"streamType", b"error", b"x", b"\xc3\xbc"]
            block = struct.pack(">I", 2) + b"".join(struct.pack(">I", len(word)) + word for word in words)
            packed = packer.compress(block) + packer.flush(zlib.Z_SYNC_FLUSH)
            frame = struct.pack(">IIIIBB", 0x80030001, 10 + len(packed), number, 0, 0, 0) + packed
            assert server.feed(frame) == [Opened(number, {"streamtype": "error", "x": "ü"}, False)]


def test_client_parses_replies_to_its_streams() -> None:
    client, server = Session(), Session()
    for _ in range(3):
        number, frame = client.open({"streamtype": "data"})
        assert server.feed(frame) == [Opened(number, {"streamtype": "data"}, False)]
        assert client.feed(server.accept(number)) == [Accepted(number)]
    assert client.feed(server.go_away()) == [GoneAway()]


def test_headers_that_cannot_be_read_end_the_session() -> None:
    bomb = zlib.compress(struct.pack(">II", 1, 10_000_000) + b"\0" * 10_000_000)
    short = zlib.compress(struct.pack(">II", 1, 10))
    for packed in (b"", b"no zlib at all", bomb, short, zlib.compress(struct.pack(">I", 0xFFFFFFFF))):
        with pytest.raises(ProtocolError):
            Session().feed(struct.pack(">IIIIBB", 0x80030001, 10 + len(packed), 1, 0, 0, 0) + packed)


def status(**fields: object) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (status(status="Success"), 0),
        (status(status="Failure", details={"causes": [{"reason": "ExitCode", "message": "7"}]}), 7),
    ],
)
def test_the_exit_code_is_in_the_outcome(outcome: bytes, code: int) -> None:
    assert exit_code_of(outcome) == code


@pytest.mark.parametrize(
    "outcome", [b"", b"no json", status(status="Failure", message="no such file"), status(status="x")]
)
def test_any_other_outcome_is_an_error_with_the_runtimes_text(outcome: bytes) -> None:
    with pytest.raises(StreamingError):
        exit_code_of(outcome)


def test_large_frame_becomes_several_events_with_the_end_last() -> None:
    session, content = Session(), bytes(range(256)) * 20_000
    assert len(content) > WHOLE_DATA
    frame = Session.data(1, content, end=True) + Session.data(3, b"next")
    found = [event for at in range(0, len(frame), 70_000) for event in session.feed(frame[at : at + 70_000])]
    parts = [event for event in found if isinstance(event, Data)]
    assert b"".join(one.content for one in parts if one.stream == 1) == content
    assert [one.end for one in parts] == [False] * (len(parts) - 2) + [True, False]
    assert parts[-1] == Data(3, b"next", False)
    assert max(len(one.content) for one in parts) <= 70_000


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">II", 0x80030001, MAX_CONTROL + 1),
        struct.pack(">II", 0x80020001, 10) + b"\0" * 10,
        b"HTTP/1.1 400 Bad Request\r\n\r\n".replace(b"HTTP", b"\x80TTP"),
        struct.pack(">II", 0x80030006, 2) + b"\0\0",
    ],
)
def test_invalid_control_frame_ends_the_session(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        Session().feed(frame)


def test_the_answer_to_a_ping_is_not_answered() -> None:
    client, server = Session(), Session()
    for _ in range(3):
        (asked,) = server.feed(client.ping())
        assert isinstance(asked, Pinged)
        assert client.feed(asked.answer) == []
    (asked,) = client.feed(struct.pack(">III", 0x80030006, 4, 2))
    assert isinstance(asked, Pinged), "one of the server's"

"""The files of the flight recorder: read back, and read after any damage."""

import struct
import zlib

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from proto.agent import recording, registry
from proto.agent.recording import FRAME, HEAD, Kind

COOKIE = b"c00kie!!"


def file(frames: int, ring: int = 4096) -> bytes:
    """A file with frames numbered from 1 in its ring."""
    content = bytearray(recording.head("probe", 3, 77, COOKIE, (0, ring), (1_000_000_000, 50.0)) + bytes(ring))
    at = HEAD.size
    for number in range(1, frames + 1):
        one = recording.frame(COOKIE, number, number * 1_000_000_000, Kind.PEER, msgpack.packb(["Started", b"x" * 50]))
        if at + len(one) > HEAD.size + ring:
            at = HEAD.size
        content[at : at + len(one)] = one
        at += len(one)
    return bytes(content)


def test_frames_are_read_in_order_with_their_times() -> None:
    (one,) = recording.read(file(5))
    assert (one.actor, one.incarnation, one.pid) == ("probe", 3, 77)
    assert [frame.number for frame in one.frames] == [1, 2, 3, 4, 5]
    assert one.at(one.frames[2]) == 52.0
    assert (one.lost, one.damaged) == (0, 0)


def test_newest_frames_stay_when_the_ring_wraps() -> None:
    (one,) = recording.read(file(500))
    assert one.frames[-1].number == 500
    assert len(one.frames) > 20


def test_a_torn_frame_does_not_count() -> None:
    whole = file(3)
    at = whole.index(COOKIE, whole.index(COOKIE, HEAD.size) + 1)
    torn = whole[: at + 60] + bytes(8) + whole[at + 68 :]
    (one,) = recording.read(torn)
    assert [frame.number for frame in one.frames] == [1, 3]
    assert one.lost == 1


def test_content_of_a_message_is_never_a_frame() -> None:
    forged = recording.frame(b"guessed!", 99, 0, Kind.CRASH, msgpack.packb(["x", "y", "z", "f"]))
    packed = recording.frame(COOKIE, 1, 0, Kind.PEER, msgpack.packb(["Note", forged]))
    content = recording.head("probe", 1, 1, COOKIE, (0, 2048), (0, 0.0)) + packed[60:] + bytes(1000)
    (one,) = recording.read(content)
    assert one.frames == ()


def test_export_reads_back_as_the_same_recordings() -> None:
    before = recording.read(file(4)) + recording.read(file(200))
    after = recording.read(recording.export(before))
    assert [(one.actor, one.frames) for one in after] == [(one.actor, one.frames) for one in before]


@given(st.binary(max_size=2000), st.integers(0, 5000))
def test_reader_survives_garbage(garbage: bytes, at: int) -> None:
    whole = file(12)
    for content in (garbage, recording.MAGIC + garbage, whole[:at] + garbage + whole[at + len(garbage) :]):
        for one in recording.read(content):
            assert len(one.frames) <= 12
            assert one.lost >= 0


@given(st.binary(max_size=300))
def test_payload_that_is_not_msgpack_is_counted(payload: bytes) -> None:
    covered = FRAME.pack(COOKIE, 1, 0, len(payload), 3, 0)[:-4]
    frame = covered + struct.pack("<I", zlib.crc32(payload, zlib.crc32(covered))) + payload
    (one,) = recording.read(recording.head("x", 1, 1, COOKIE, (len(frame), 0), (0, 0.0)) + frame)
    assert len(one.frames) + one.damaged == 1


def test_files_of_two_incarnations_of_all_actors_fit_the_bound() -> None:
    for mebibytes in (1, 8, 64):
        assert sum(2 * recording.bytes_of(name, mebibytes) for name in registry.NAMES) <= mebibytes << 20
    assert recording.bytes_of("probe", 0) == 0

"""The files of the flight recorder: their format, and a reader that survives any content.

RUN_DIR/recorder/NAME-INCARNATION.rec has the last messages of one incarnation. Its head is followed by two sections:
the start (settings and checkpoints, never overwritten) and a ring (everything later, the newest over the oldest). An
exported file has several recordings one after the other, each with its frames in a start section and no ring.

A frame begins with the recording's random cookie, so that no message's content is ever taken for a frame. Its CRC-32
covers head and payload, so a frame that was torn by a kill or overwritten in part does not count. Payloads are msgpack.
"""

from __future__ import annotations

import enum
import re
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgpack

from proto.agent import registry

DIRECTORY = "recorder"
DEFAULT_MIB = 8
MAX_MIB = 64
MAGIC = b"nvrec\x00\x00\x01"
"""The last byte is the version of the format."""
HEAD = struct.Struct("<8s8sIIIIQd40sI")
"""Magic, cookie, bytes of start and ring, incarnation, pid, monotonic ns and Unix seconds of the start, actor, CRC."""
FRAME = struct.Struct("<8sQQIB3xI")
"""Cookie, number from 1, monotonic ns, bytes of the payload, kind, CRC."""
_COVERED = struct.Struct("<8sQQIB3x")
"""The same without the CRC."""
_KIND_AT = 28
"""The kind's place in a frame."""
MAX_FILE_BYTES = 256 << 20
_NAME = re.compile(r"(?P<name>[a-z][a-z0-9_]{0,31})-(?P<incarnation>\d{1,10})\.rec")

_WEIGHTS = {"pod_workers": 6, "pleg": 3, "status": 3, "volume": 2, "probe": 2}
"""Shares of the actors that receive most; the others have one."""
_WEIGHT_OF_ALL = sum(_WEIGHTS.get(name, 1) for name in registry.NAMES)


class Kind(enum.IntEnum):
    """The kinds of frames, each with its payload."""

    START = 0
    """{settings, seed}: the settings as JSON without secrets, and the seed of `random`."""
    CHECKPOINT = 1
    """[path, data]: a checkpoint that was read, as JSON; nil for none."""
    MESSAGE = 2
    """[header, body]: a received message's frames. Body nil: left out, because it is secret or too large."""
    PEER = 3
    """[type, body]: an event of the event stream."""
    ANSWER = 4
    """[target, request, digest, error, body]: the answer to an ask. Error: nil, or [class, arguments]."""
    CRI = 5
    """[rpc, digest, error, response]: the runtime's answer. Error: nil, or [code, details]."""
    BLOCKING = 6
    """[function, error, known, value]: the end of blocking work. Values other than numbers are not known."""
    CRASH = 7
    """[class, text, file, function]: the exception that ended the process, and the place that raised it."""


_CRASH = bytes([Kind.CRASH])


class Frame(NamedTuple):
    """One recorded event."""

    number: int
    time_ns: int
    kind: Kind
    payload: Any


class Recording(NamedTuple):
    """One incarnation's frames, oldest first."""

    actor: str
    incarnation: int
    pid: int
    started_ns: int
    started_at: float
    """Unix seconds at `started_ns`."""
    frames: tuple[Frame, ...]
    damaged: int
    """Frames whose content cannot be read."""

    @property
    def lost(self) -> int:
        """The number of frames between the first and the last that were overwritten or torn."""
        return self.frames[-1].number - self.frames[0].number + 1 - len(self.frames) if self.frames else 0

    def at(self, frame: Frame) -> float:
        """The frame's time in Unix seconds."""
        return self.started_at + (frame.time_ns - self.started_ns) / 1e9


def bytes_of(actor: str, mebibytes: int) -> int:
    """The size of one incarnation's file. The files of two incarnations of every actor fill the bound."""
    share = (mebibytes << 20) * _WEIGHTS.get(actor, 1) // (2 * (_WEIGHT_OF_ALL + 1))
    return share & ~4095


def path_of(run_dir: str, actor: str, incarnation: int) -> Path:
    """The file of one incarnation."""
    return Path(run_dir, DIRECTORY, f"{actor}-{incarnation}.rec")


def files(run_dir: str, actor: str = "") -> list[Path]:
    """The recordings in a run directory, by actor and incarnation."""
    try:
        names = [(match, path) for path in Path(run_dir, DIRECTORY).iterdir() if (match := _NAME.fullmatch(path.name))]
    except OSError:
        return []
    found = [(match["name"], int(match["incarnation"]), path) for match, path in names]
    return [path for name, _, path in sorted(found) if actor in ("", name)]


def head(
    actor: str, incarnation: int, pid: int, cookie: bytes, sizes: tuple[int, int], began: tuple[int, float]
) -> bytes:
    """The head of a file with a start and a ring of these sizes, begun at this monotonic and Unix time."""
    fields = (MAGIC, cookie, *sizes, incarnation, pid, *began, actor.encode()[:40])
    packed = HEAD.pack(*fields, 0)[:-4]
    return packed + struct.pack("<I", zlib.crc32(packed))


def frame(cookie: bytes, number: int, time_ns: int, kind: int, payload: bytes) -> bytes:
    """One frame."""
    covered = _COVERED.pack(cookie, number, time_ns, len(payload), kind)
    return covered + zlib.crc32(payload, zlib.crc32(covered)).to_bytes(4, "little") + payload


def read(content: bytes) -> list[Recording]:
    """The recordings in a file. Never raises: what cannot be read is left out."""
    found = []
    at = 0
    while (at := content.find(MAGIC, at)) >= 0:
        one, end = _recording(content, at)
        if one is None:
            at += 1
            continue
        found.append(one)
        at = end
    return found


def has_crash(content: bytes) -> bool:
    """True when the file has a crash, which is the last frame of its process. Reads nothing else, for a quick start."""
    cookie = content[8:16]
    at = HEAD.size
    while cookie and (at := content.find(cookie, at)) >= 0:
        if content[at + _KIND_AT : at + _KIND_AT + 1] == _CRASH and _size(content, at, len(content)) > 0:
            return True
        at += FRAME.size
    return False


def export(recordings: Iterable[Recording]) -> bytes:
    """A file with these recordings."""
    parts = []
    for number, one in enumerate(recordings):
        cookie = struct.pack("<Q", zlib.crc32(f"{one.actor}-{one.started_ns}-{number}".encode()) << 32 | one.pid)
        frames = [
            frame(cookie, each.number, each.time_ns, each.kind, msgpack.packb(each.payload)) for each in one.frames
        ]
        sizes, began = (sum(map(len, frames)), 0), (one.started_ns, one.started_at)
        parts += [head(one.actor, one.incarnation, one.pid, cookie, sizes, began), *frames]
    return b"".join(parts)


def _recording(content: bytes, at: int) -> tuple[Recording | None, int]:
    """The recording whose head is at this place, and its end; None without a whole head."""
    packed = content[at : at + HEAD.size]
    if len(packed) < HEAD.size or zlib.crc32(packed[:-4]) != int.from_bytes(packed[-4:], "little"):
        return None, at
    _, cookie, start, ring, incarnation, pid, began_ns, began_at, name, _ = HEAD.unpack(packed)
    begin = at + HEAD.size
    end = min(begin + start + ring, len(content))
    frames, damaged = _frames(content, begin, end, cookie)
    actor = name.rstrip(b"\x00").decode(errors="replace")
    return Recording(actor, incarnation, pid, began_ns, began_at, frames, damaged), max(end, begin)


def _frames(content: bytes, begin: int, end: int, cookie: bytes) -> tuple[tuple[Frame, ...], int]:
    found: dict[int, Frame] = {}
    damaged = 0
    at = begin
    while (at := content.find(cookie, at, end)) >= 0:
        size = _size(content, at, end)
        if size < 0:
            at += 1  # torn, or partly overwritten
            continue
        _, number, time_ns, _, kind, _ = FRAME.unpack_from(content, at)
        try:
            payload = msgpack.unpackb(content[at + FRAME.size : at + size], strict_map_key=True)
            found[number] = Frame(number, time_ns, Kind(kind), payload)
        except Exception:  # msgpack raises a dozen types for malformed bytes
            damaged += 1
        at += size
    return tuple(found[number] for number in sorted(found)), damaged


def _size(content: bytes, at: int, end: int) -> int:
    """The size of the frame at this place; -1 unless it is whole."""
    if at + FRAME.size > end:
        return -1
    length: int = FRAME.unpack_from(content, at)[3]
    stop = at + FRAME.size + length
    if stop > end:
        return -1
    checksum = zlib.crc32(content[at + FRAME.size : stop], zlib.crc32(content[at : at + _COVERED.size]))
    return stop - at if checksum == FRAME.unpack_from(content, at)[5] else -1

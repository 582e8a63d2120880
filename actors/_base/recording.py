"""The flight recorder of an actor process: writes what the actor receives to RUN_DIR/recorder.

The format is in proto/agent/recording.py. The file is mapped into memory, and its content survives any death of the
process. A full disk costs the recording, never the actor. Secrets are removed before the write (`redaction`).
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import random
import threading
import time
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from actors._base import redaction
from proto.agent import recording
from proto.agent.recording import Kind
from proto.agent.settings import Settings
from proto.wire import codec
from proto.wire.message import Message

log = logging.getLogger(__name__)

START_PART = 4
"""The start takes at most one of so many parts of the file."""
LARGEST_PART = 8
"""A frame larger than one of so many parts of the ring is written without its body."""

WINDOW = 16 << 10
"""Bytes of the file that are allocated, and in the process's memory, at a time."""

_encode = msgspec.msgpack.Encoder().encode
current: Recorder | None = None
"""The recorder of this process; None when it is off."""


class MappedFile:
    """A file that is written without a system call for each write. For one thread at a time.

    Space is allocated before it is written: a write to a hole of a full file system would end the process with SIGBUS.
    The process keeps the pages of one window; the others are in the page cache only.
    """

    def __init__(self, path: Path, size: int) -> None:
        """Create it. Raises OSError."""
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)
        os.ftruncate(self._fd, size)
        self._size = size
        self._map = mmap.mmap(self._fd, size)
        self._allocated: set[int] = set()
        self._window = -WINDOW
        """The first byte of the window that was written last."""

    def write(self, at: int, content: bytes) -> None:
        """Write at an offset. Raises OSError on a full disk."""
        end = at + len(content)
        if not self._window <= at <= end <= self._window + WINDOW:
            self._enter(at, end)
        self._map[at:end] = content

    def _enter(self, at: int, end: int) -> None:
        """Allocate the windows of these bytes, and give back the window before."""
        windows = range(at // WINDOW * WINDOW, end, WINDOW)
        for window in windows:
            if window not in self._allocated:
                os.posix_fallocate(self._fd, window, min(WINDOW, self._size - window))
                self._allocated.add(window)
        self._map.madvise(mmap.MADV_DONTNEED)
        self._window = windows[-1]


class Recorder:
    """One incarnation's file. All methods may be called from any thread, and raise nothing."""

    def __init__(self, path: Path, actor: str, incarnation: int, size: int) -> None:
        """Create the file. Raises OSError."""
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self._file = MappedFile(path, size)
        self.path = path
        self._lock = threading.Lock()
        self._cookie = os.urandom(8)
        self._number = 0
        self._start_at = recording.HEAD.size
        self._ring_at = self._ring = size // START_PART
        self._end = size
        self._most_bytes = (size - self._ring) // LARGEST_PART
        began = (time.monotonic_ns(), time.time())
        sizes = (self._ring - recording.HEAD.size, size - self._ring)
        self._file.write(0, recording.head(actor, incarnation, os.getpid(), self._cookie, sizes, began))

    def _write(self, kind: Kind, payload: Any) -> None:
        """Write a frame to the ring."""
        try:
            packed = _encode(payload)
            if len(packed) > self._most_bytes:
                packed = _encode(_without_body(payload))
            size = recording.FRAME.size + len(packed)
            with self._lock:
                self._number = number = self._number + 1
                if self._ring_at + size > self._end >= self._ring + size:
                    self._ring_at = self._ring
                if self._ring_at + size <= self._end:
                    frame = recording.frame(self._cookie, number, time.monotonic_ns(), kind, packed)
                    self._file.write(self._ring_at, frame)
                    self._ring_at += size
        except Exception as error:  # a recorder's failure must not become its actor's
            self._give_up(error)

    def _write_start(self, kind: Kind, payload: Any) -> None:
        """Write a frame to the start section, if it has room for it."""
        try:
            packed = _encode(payload)
            size = recording.FRAME.size + len(packed)
            with self._lock:
                self._number += 1
                if self._start_at + size <= self._ring:
                    frame = recording.frame(self._cookie, self._number, time.monotonic_ns(), kind, packed)
                    self._file.write(self._start_at, frame)
                    self._start_at += size
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        global current  # noqa: PLW0603
        if current is self:
            current = None
            log.error("cannot write %s: %s; this process records nothing more", self.path, error)

    def begin(self, settings: Settings, seed: int) -> None:
        """Record the start."""
        shown = msgspec.json.encode(redaction.settings(settings))
        self._write_start(Kind.START, {"settings": shown, "seed": seed})

    def checkpoint(self, path: str, data: Any | None) -> None:
        """Record a checkpoint that was read."""
        shown = None if data is None else msgspec.json.encode(redaction.plain(data))
        self._write_start(Kind.CHECKPOINT, [path, shown])

    def message(self, head: bytes, body: bytes, message: Message) -> None:
        """Record a received message."""
        if not redaction.is_recorded(type(message)):
            return
        try:
            shown = redaction.message_body(message, body)
        except Exception:  # of another shape: it may have secrets anywhere
            shown = None
        self._write(Kind.MESSAGE, [head, shown])

    def peer(self, event: Message) -> None:
        """Record an event of the event stream."""
        self._write(Kind.PEER, [type(event).__name__, codec.encode(event)])

    def answer(self, target: str, request: Message, digest: int, body: bytes) -> None:
        """Record the answer to an ask."""
        try:
            hide = redaction.answer_of(request)
            shown = body if hide is None else hide(body)
        except Exception:  # an answer of another shape: it may have secrets anywhere
            shown = None
        self._write(Kind.ANSWER, [target, type(request).__name__, digest, None, shown])

    def failure(self, target: str, request: Message, digest: int, error: Exception) -> None:
        """Record the failure of an ask."""
        arguments = [getattr(error, "reason", ""), str(error), getattr(error, "retry", True)]
        self._write(Kind.ANSWER, [target, type(request).__name__, digest, [type(error).__name__, *arguments], None])

    def runtime(self, rpc: str, digest: int, response: bytes) -> None:
        """Record the runtime's answer."""
        try:
            shown: bytes | None = redaction.response(rpc, response)
        except Exception:  # not a message of that type
            shown = None
        self._write(Kind.CRI, [rpc, digest, None, shown])

    def runtime_failure(self, rpc: str, digest: int, code: str, details: str) -> None:
        """Record the failure of a CRI call."""
        self._write(Kind.CRI, [rpc, digest, [code, details], None])

    def blocking(self, name: str, value: Any, error: BaseException | None) -> None:
        """Record the end of blocking work. The content of files stays out: only numbers and None are recorded."""
        if error is not None:
            self._write(
                Kind.BLOCKING, [name, [type(error).__name__, getattr(error, "errno", None), str(error)], True, None]
            )
            return
        known = value is None or isinstance(value, bool | int | float)
        self._write(Kind.BLOCKING, [name, None, known, value if known else None])

    def crash(self, error: BaseException) -> None:
        """Record the exception that ends the process."""
        self._write(Kind.CRASH, list(described(error)))


def described(error: BaseException) -> tuple[str, str, str, str]:
    """An exception's class, text, and the file and function that raised it."""
    kind = type(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = ("/".join(frames[-1].filename.rsplit("/", 3)[-3:]), frames[-1].name) if frames else ("", "")
    return (f"{kind.__module__}.{kind.__qualname__}", str(error)[:4096], *place)


def digest(content: bytes) -> int:
    """A number that tells requests apart; 0 while the recorder is off."""
    return zlib.crc32(content) if current is not None else 0


def replay_line(actor: str) -> str:
    """A line for a death record: the command that replays this process; empty while the recorder is off."""
    recorder = current
    return f"Replay: supervisor replay {actor} {recorder.path}\n\n" if recorder is not None else ""


def start(settings: Settings, actor: str, incarnation: int) -> None:
    """Start the recorder of this process, unless the settings switch it off. Removes recordings that are not kept."""
    global current  # noqa: PLW0603
    size = recording.bytes_of(actor, settings.recorder_mib)
    if size < recording.HEAD.size * START_PART * LARGEST_PART:
        return
    _remove_old(settings.run_dir, actor)
    path = recording.path_of(settings.run_dir, actor, incarnation)
    try:
        current = Recorder(path, actor, incarnation, size)
    except OSError as error:
        log.error("cannot write %s: %s; this process records nothing", path, error.strerror)
        return
    seed = int.from_bytes(os.urandom(4), "little")
    random.seed(seed)  # a replay makes the same choices
    current.begin(settings, seed)


def _remove_old(run_dir: str, actor: str) -> None:
    """Keep the newest recording that ends with a crash, or else the newest one."""
    present = recording.files(run_dir, actor)
    crashed = [path for path in present if _crashed(path)]
    kept = (crashed or present)[-1:]
    for path in present:
        if path not in kept:
            with contextlib.suppress(OSError):
                path.unlink()


def _crashed(path: Path) -> bool:
    try:
        return recording.has_crash(path.read_bytes())
    except OSError:
        return False


def record_blocking(name: str, work: Callable[[], Any]) -> Any:
    """Call `work`, which may block, and record its end. Return its result, or raise its exception."""
    recorder = current
    if recorder is None:
        return work()
    try:
        value = work()
    except BaseException as error:
        recorder.blocking(name, None, error)
        raise
    recorder.blocking(name, value, None)
    return value


def _without_body(payload: Any) -> Any:
    """A payload that fits: byte strings of more than 256 bytes are left out."""
    return [None if isinstance(part, bytes) and len(part) > 256 else part for part in payload]

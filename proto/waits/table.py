"""The table of one process's waits in a memory-mapped file: its layout, its writer and its reader.

A reader needs nothing of the writer, which may be stopped, hung or dead. Each slot has a checksum and a sequence
number, which is odd while it is written. Writing takes no system call, except when the file grows. Pages are allocated
before they are written: a write to a hole of a full file system would end the process with SIGBUS.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from proto.waits.record import Wait

MAGIC = b"nvwaits1"
PAGE = 4096
SLOT = 1024
SLOTS = 2048
"""Most waits of a process at once: 2 MiB. Further ones are counted and not kept."""
RUNNING_SLOT = 0
"""The slot of the message in the handler, which `take` never returns."""
MAX_FILE = PAGE + SLOT * SLOTS
_FIRST_PAGES = 2
"""The head and four slots. Each growth doubles it."""
_HEAD = struct.Struct("<8sIIQQ64s")
"""Magic, pid, ID of the mailbox thread (0: unknown yet), incarnation, start time of the process in clock ticks, name of
the actor."""
_THREAD_AT = 12
_COUNTS = struct.Struct("<IIQQ")
"""Slots in use so far (from the first), mailbox depth, messages handled, waits not kept. At offset `_COUNTS_AT`."""
_COUNTS_AT = 128
_SLOT_HEAD = struct.Struct("<IHHI")
"""Sequence number, length of the body (0: free), 0, checksum of the body."""
_BODY = SLOT - _SLOT_HEAD.size
_SHORT = 120
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Wait)


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A process's waits, as read."""

    name: str
    incarnation: int
    pid: int
    start_time: int
    """In clock ticks from boot. With the pid it identifies the process."""
    waits: tuple[Wait, ...] = ()
    mailbox: int = 0
    """Messages in the mailbox at the last arrival."""
    mailbox_thread: int = 0
    """The ID of its thread; 0: unknown yet."""
    handled: int = 0
    lost: int = 0
    """Waits that found no free slot, or did not fit in theirs."""
    torn: int = 0
    """Slots whose writer stopped in the middle."""


class Slots:
    """The writer. Usable from any thread. `RUN_DIR/waits/NAME` is replaced at each start."""

    def __init__(self, path: Path, name: str, incarnation: int, start_time: int) -> None:
        """Raises OSError when the file cannot be made. The former incarnation's goes then, too, and leaves its room."""
        new = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            self._make(new, path, name, incarnation, start_time)
        except OSError:
            path.unlink(missing_ok=True)
            self._make(new, path, name, incarnation, start_time)
        self._lock = threading.Lock()
        self._free: list[int] = []
        self._mailbox = self._handled = self._lost = 0
        self._used = RUNNING_SLOT + 1
        self._write_counts()

    def _make(self, new: Path, path: Path, name: str, incarnation: int, start_time: int) -> None:
        with suppress(FileNotFoundError):
            new.unlink()
        self._fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.ftruncate(self._fd, MAX_FILE)
            self._allocated = _FIRST_PAGES * PAGE
            os.posix_fallocate(self._fd, 0, self._allocated)
            self._map = mmap.mmap(self._fd, MAX_FILE)
            self._map.madvise(mmap.MADV_RANDOM)  # else the first access maps 64 KiB
            _HEAD.pack_into(self._map, 0, MAGIC, os.getpid(), 0, incarnation, start_time, name.encode()[:64])
            new.rename(path)
        except BaseException:
            os.close(self._fd)
            with suppress(OSError):
                new.unlink()
            raise

    def set_mailbox_thread(self, thread: int) -> None:
        """Note the ID of the mailbox thread."""
        struct.pack_into("<I", self._map, _THREAD_AT, thread)

    def take(self) -> int:
        """The number of a free slot; -1 when there is none."""
        with self._lock:
            if self._free:
                return self._free.pop()
            if self._used < SLOTS and self._grow(PAGE + (self._used + 1) * SLOT):
                self._used += 1
                self._write_counts()
                return self._used - 1
            self._lost += 1
            self._write_counts()
            return -1

    def _grow(self, size: int) -> bool:
        if size <= self._allocated:
            return True
        wanted = min(MAX_FILE, max(size, 2 * self._allocated))
        try:
            os.posix_fallocate(self._fd, self._allocated, wanted - self._allocated)
        except OSError:
            return False
        self._allocated = wanted
        return True

    def write(self, slot: int, wait: Wait) -> None:
        """Put a wait into a slot. Long texts are cut. A wait that is still too large empties the slot, and is counted.

        One thread at a time for each slot."""
        body = _encoder.encode(wait)
        if len(body) > _BODY:
            body = _encoder.encode(_shortened(wait))
        if len(body) > _BODY:  # it would overwrite the next slot
            self.clear(slot)
            with self._lock:
                self._lost += 1
                self._write_counts()
            return
        at = PAGE + slot * SLOT
        sequence = _SLOT_HEAD.unpack_from(self._map, at)[0] | 1
        _SLOT_HEAD.pack_into(self._map, at, sequence, 0, 0, 0)
        self._map[at + _SLOT_HEAD.size : at + _SLOT_HEAD.size + len(body)] = body
        _SLOT_HEAD.pack_into(self._map, at, (sequence + 1) & 0xFFFFFFFF, len(body), 0, zlib.crc32(body))

    def clear(self, slot: int) -> None:
        """Empty a slot, and keep it."""
        at = PAGE + slot * SLOT
        sequence = _SLOT_HEAD.unpack_from(self._map, at)[0]
        _SLOT_HEAD.pack_into(self._map, at, (sequence + 2) & 0xFFFFFFFE, 0, 0, 0)

    def free(self, slot: int) -> None:
        """Empty a slot and let it be taken again."""
        self.clear(slot)
        with self._lock:
            self._free.append(slot)

    def arrived(self, mailbox: int) -> None:
        """Note the mailbox's depth."""
        self._mailbox = min(mailbox, 0xFFFFFFFF)
        self._write_counts()

    def handling(self, mailbox: int) -> None:
        """Note that a message leaves the mailbox, and its depth."""
        self._handled += 1
        self.arrived(mailbox)

    def _write_counts(self) -> None:
        _COUNTS.pack_into(self._map, _COUNTS_AT, self._used, self._mailbox, self._handled, self._lost)

    def close(self) -> None:
        """Unmap the file, which stays."""
        self._map.close()
        os.close(self._fd)


def _shortened(wait: Wait) -> Wait:
    texts = {name: _cut(getattr(wait, name)) for name in ("target", "what", "error")}
    ask = None if wait.ask is None else (_cut(wait.ask[0]), *wait.ask[1:])
    return msgspec.structs.replace(wait, waiter=_cut(wait.waiter, 2 * _SHORT), uid=_cut(wait.uid, 64), ask=ask, **texts)


def _cut(text: str, most: int = _SHORT) -> str:
    return text.encode(errors="replace")[:most].decode(errors="ignore")


def read(path: Path) -> Table | None:
    """The table in a file; None when there is none, or its head is not one of ours."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        first = os.pread(fd, PAGE, 0)
        if len(first) < PAGE or first[:8] != MAGIC:
            return None
        used = min(SLOTS, _COUNTS.unpack_from(first, _COUNTS_AT)[0])
        slots = os.pread(fd, used * SLOT, PAGE)
    except OSError:
        return None
    finally:
        os.close(fd)
    return _parsed(first, slots)


class Mailbox(NamedTuple):
    """A process's mailbox, as read."""

    pid: int
    thread: int
    """The ID of its thread; 0: unknown yet."""
    waiting: int
    """Messages at the last arrival or departure."""
    handles: bool
    """A message is in its handler."""


def read_mailbox(path: Path) -> Mailbox | None:
    """The mailbox in a table, without its waits; None as in `read`."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        found = os.pread(fd, PAGE + (RUNNING_SLOT + 1) * SLOT, 0)
    except OSError:
        return None
    finally:
        os.close(fd)
    if len(found) < PAGE + (RUNNING_SLOT + 1) * SLOT or found[:8] != MAGIC:
        return None
    sequence, length, _, _ = _SLOT_HEAD.unpack_from(found, PAGE + RUNNING_SLOT * SLOT)
    _, pid, thread, *_ = _HEAD.unpack_from(found)
    _, waiting, *_ = _COUNTS.unpack_from(found, _COUNTS_AT)
    return Mailbox(pid, thread, waiting, handles=bool(length or sequence & 1))


def _parsed(first: bytes, slots: bytes) -> Table | None:
    _, pid, thread, incarnation, start_time, name = _HEAD.unpack_from(first)
    _, mailbox, handled, lost = _COUNTS.unpack_from(first, _COUNTS_AT)
    try:
        text = name.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        return None
    found = list(_waits(slots))
    return Table(
        name=text,
        incarnation=incarnation,
        pid=pid,
        start_time=start_time,
        waits=tuple(one for one in found if one is not None),
        mailbox=mailbox,
        mailbox_thread=thread,
        handled=handled,
        lost=lost,
        torn=found.count(None),
    )


def _waits(slots: bytes) -> Iterator[Wait | None]:
    """The wait of each used slot; None for a slot that is not whole."""
    for at in range(0, len(slots) - SLOT + 1, SLOT):
        sequence, length, _, checksum = _SLOT_HEAD.unpack_from(slots, at)
        if length == 0 and not sequence & 1:
            continue
        body = slots[at + _SLOT_HEAD.size : at + _SLOT_HEAD.size + length]
        if sequence & 1 or len(body) != length or zlib.crc32(body) != checksum:
            yield None
            continue
        try:
            yield _decoder.decode(body)
        except (msgspec.MsgspecError, RecursionError):
            yield None


def read_all(run_dir: Path) -> dict[str, Table]:
    """The tables of every actor in a run directory, by name."""
    try:
        names = sorted(name for name in os.listdir(run_dir / "waits") if not name.startswith("."))
    except OSError:
        return {}
    tables = ((name, read(run_dir / "waits" / name)) for name in names)
    return {name: table for name, table in tables if table is not None and table.name == name}

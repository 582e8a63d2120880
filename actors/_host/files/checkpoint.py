"""Saves and loads checkpoints: small files with the state that an actor cannot rebuild from elsewhere after a crash.

A file holds one value. It is written atomically and checked when read. Callers decide what to keep and when. They keep
nothing that the runtime or a peer can report.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import zlib
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec

from proto.common import untrusted
from proto.wire.errors import ActorError

T = TypeVar("T")
log = logging.getLogger(__name__)

MOST_BYTES = 64 << 20
"""Largest checkpoint that is read: a hundred times the largest one seen, and harmless to the reader's memory."""


class Unusable(Exception):
    """A checkpoint is there and whole, and this agent cannot use it: another version wrote it."""


class Damaged(Unusable):
    """A file that no agent can use: it is cut off, or holds something else."""


class _Writers:
    """The threads that write one path: one at a time, and a write that was asked for earlier replaces no later one.

    A write that is past its deadline goes on in its thread, beside the next one.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.newest = 0


on_load: Callable[[str, Any | None], None] | None = None
"""Called with each checkpoint that was read, unless it has secrets."""
_writers: WeakValueDictionary[str, _Writers] = WeakValueDictionary()
_writers_lock = threading.Lock()
_numbers = itertools.count(1)
RETRY_S = 10.0
"""Between a failed write and the next try."""
_NOTHING = object()
"""Equal to no data."""


class _File(msgspec.Struct):
    """The file's JSON. `checksum` is the CRC-32 of the bytes of `data` as written."""

    version: int
    checksum: int
    data: msgspec.Raw


class Owner(Protocol):
    """The part of an actor that is used here."""

    def blocking(self, timeout_s: float, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        """See `Actor`."""

    def after(self, delay_s: float, function: Callable[[], None]) -> object:
        """See `MailboxActor`."""

    def spawn(self, coroutine: Coroutine[Any, None, T], name: str) -> object:
        """See `MailboxActor`."""


class Writes:
    """The writes of a file in pool threads of its owner. A failure is logged once, until a write succeeds.

    While the newest write has failed, `again` is called every RETRY_S in the owner's thread, to write once more. It
    waits for a write that hangs: each further one would take a thread from the pool.
    """

    def __init__(self, owner: Owner, path: str, loss: str, again: Callable[[], object], *, deadline_s: float) -> None:
        """`loss` says what a restart without the newest data does, for the log."""
        self._owner, self._path, self._loss, self._again = owner, path, loss, again
        self._deadline_s = deadline_s
        self.failed = False
        """True when the newest write failed."""
        self._number = 0
        self._hangs: Callable[[], bool] = lambda: False
        self._is_due = False

    @property
    def hangs(self) -> bool:
        """True while a write that is past its deadline goes on in its thread."""
        return self._hangs()

    async def run(self, write: Callable[[], None]) -> bool:
        """Call `write()` in a pool thread, and wait for at most `deadline_s`. True when it is done.

        An OSError and a passed deadline give False.
        """
        self._number += 1
        number, ended = self._number, threading.Event()

        def write_file() -> None:
            try:
                write()
            finally:
                ended.set()

        try:
            await self._owner.blocking(self._deadline_s, write_file)
        except (OSError, ActorError) as error:
            if not isinstance(error, OSError):
                self._hangs = lambda: not ended.is_set()
            if number == self._number:  # else a newer write tells whether the data is there
                self.has_failed(error)
            return False
        if number == self._number:
            self.has_succeeded()
        return True

    def has_failed(self, error: Exception) -> None:
        """Note the failure of a write by the owner itself. From any thread."""
        if not self.failed:
            log.error("cannot write %s: %s; %s; trying again", self._path, error, self._loss)
        self.failed = True
        self._try_later()

    def has_succeeded(self) -> None:
        """Note the success of a write of the newest data by the owner itself. From any thread."""
        if self.failed:
            log.info("%s is written again", self._path)
        self.failed = False

    def _try_later(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._owner.after(RETRY_S, self._try)

    def _try(self) -> None:
        self._is_due = False
        if self.failed and self._hangs():
            self._try_later()
        elif self.failed:
            self._again()


class CheckpointFile:
    """An actor's checkpoint at `path`, written by coroutines of that actor.

    `deadline_s` is the longest wait for a write, and `sync` as in `save`. `loss` says what a restart without the
    newest data does, for the log.
    """

    def __init__(
        self, owner: Owner, path: str, version: int, loss: str, *, deadline_s: float, sync: bool = False
    ) -> None:
        self._owner, self.path, self._version, self._sync = owner, path, version, sync
        self._writes = Writes(owner, path, loss, self._save_again, deadline_s=deadline_s)
        self._newest: tuple[object, Any] = (None, None)
        """The turn and the data of the newest write, until that is done."""
        self._asked: Any = _NOTHING
        """The last argument of `save_changed`."""

    @property
    def failed(self) -> bool:
        """True when the newest write failed."""
        return self._writes.failed

    def load(self) -> Any | None:
        """See `load`."""
        return load(self.path, self._version)

    def write(self, data: Any) -> None:
        """Write it now; blocks. Raises OSError."""
        save(self.path, self._version, data, sync=self._sync)

    def holds(self, data: Any) -> None:
        """Note what the file has, as it was read: `save_changed` need not write that."""
        self._asked = data

    async def save_changed(self, data: Any) -> None:
        """Write it as `save` does, unless it was the last that was asked for. Keeps `data`, which must not change.

        A value that holds again after a failure is written too: else the retry would write the one in between.
        """
        if data != self._asked:
            self._asked = data
            await self._save(data)

    async def save(self, data: Any) -> bool:
        """Write it; True when that is done. After a failure it is written as `Writes` says, unless newer data is."""
        self._asked = _NOTHING
        return await self._save(data)

    async def _save(self, data: Any) -> bool:
        path = Path(self.path)
        turn = _turn(path)
        self._newest = turn, data
        done = await self._writes.run(lambda: _save_in_turn(turn, path, self._version, data, sync=self._sync))
        if done and self._newest[0] is turn:
            self._newest = (None, None)
        return done

    def _save_again(self) -> None:
        self._owner.spawn(self._save(self._newest[1]), "save_again")


def save(path: str | os.PathLike[str], version: int, data: Any, *, sync: bool = True) -> None:
    """Replace the checkpoint at `path` by `data`, any value that msgspec encodes as JSON. Creates directories.

    A kill at any moment leaves the old or the new file whole. `sync` extends that to a power cut and may take tens of
    milliseconds; state that ends with the node's boot does not need it. Blocks: call it through `Actor.blocking`.
    Of several threads with the same path the latest caller's data stays. Raises OSError.
    """
    target = Path(path)
    _save_in_turn(_turn(target), target, version, data, sync=sync)


def _turn(target: Path) -> tuple[int, _Writers]:
    with _writers_lock:
        return next(_numbers), _writers.setdefault(str(target), _Writers())


def _save_in_turn(turn: tuple[int, _Writers], target: Path, version: int, data: Any, *, sync: bool) -> None:
    number, writers = turn
    with writers.lock:
        if number > writers.newest:
            _replace(target, version, data, sync=sync)
            writers.newest = number


def _replace(target: Path, version: int, data: Any, *, sync: bool) -> None:
    body = msgspec.json.encode(data)
    content = msgspec.json.encode(_File(version=version, checksum=zlib.crc32(body), data=msgspec.Raw(body)))
    # A fixed name, so that files of killed processes are overwritten instead of piling up.
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        try:
            write_file(temporary, content, sync=sync)
        except FileNotFoundError:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(temporary, content, sync=sync)
        temporary.replace(target)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()  # a full disk needs the room
        raise
    if sync:
        sync_directory(target.parent)


def load(path: str | os.PathLike[str], version: int, *, secret: bool = False) -> Any | None:
    """Return the data of the checkpoint at `path` as plain JSON values; None when there is no valid one.

    With `secret` it has Secrets, which stay out of the flight recorder.

    A missing file is not logged. An unreadable, damaged or too large file, or another version, is logged. `read` is for
    a checkpoint whose loss destroys something.
    """
    try:
        return read(path, version, secret=secret)
    except OSError as error:
        log.warning("cannot read the checkpoint %s: %s; starting without it", path, error)
    except Unusable as error:
        log.warning("cannot use the checkpoint %s: %s; starting without it", path, error)
    return None


def read(path: str | os.PathLike[str], version: int, *, secret: bool = False) -> Any | None:
    """Return the data as `load` does; None only when there is no file.

    Raises Damaged, Unusable for another version, and OSError. An OSError, as of the disk or a full table of open files,
    says nothing about the content.
    """
    data = None
    try:
        data = _load(Path(path), version)
    finally:
        if on_load is not None and not secret:
            on_load(os.fspath(path), data)
    return data


def _load(target: Path, version: int) -> Any | None:
    try:
        content = untrusted.read_file(target, MOST_BYTES)
    except FileNotFoundError:
        return None
    return _checked(content, version)


def _checked(content: bytes, version: int) -> Any:
    try:
        file = untrusted.decode_json(content, _File)
        if file.version != version:
            raise Unusable(f"it has version {file.version}, this agent reads version {version}")
        if zlib.crc32(file.data) != file.checksum:
            raise Damaged("its checksum does not match")
        return untrusted.decode_json(file.data)
    except msgspec.DecodeError as error:
        raise Damaged(str(error)) from None


def write_file(path: str | os.PathLike[str], content: bytes, flags: int = os.O_TRUNC, *, sync: bool = False) -> None:
    """Write all of `content` to a file of mode 0600. `flags`: O_TRUNC or O_APPEND. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Put the directory's entries on the disk, where its file system can."""
    with contextlib.suppress(OSError):  # some file systems refuse it; the rename is done
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

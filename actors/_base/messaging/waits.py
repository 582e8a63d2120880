"""Writes this process's wait records, and carries the subject that waits, as tracing carries the trace.

The records are in RUN_DIR/waits/NAME (`proto.waits`). Others read them while this process is stopped, hung or dead.
Without a table, as in unit tests, nothing is written.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from proto.common.machine import procfs
from proto.waits.record import RUNNING, AskId, Kind, Wait
from proto.waits.table import RUNNING_SLOT, Slots

log = logging.getLogger(__name__)


class Subject(NamedTuple):
    """The waiter: a subject of `proto.waits.record`, the UID of its pod, and the ask in whose handler it waits."""

    name: str
    uid: str = ""
    ask: AskId | None = None


SUBJECT: ContextVar[Subject | None] = ContextVar("subject", default=None)
"""The subject of the running task or handler, in its thread. None: the actor itself."""

_slots: Slots | None = None
_itself = Subject("actor/")


def open_table(run_dir: str, name: str, incarnation: int, pid: int) -> None:
    """Make this process's table. A process without one works, too."""
    global _slots, _itself  # noqa: PLW0603 - of this process, as in tracing
    _itself = Subject(f"actor/{name}")
    path = Path(run_dir, "waits", name)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _slots = Slots(path, name, incarnation, procfs.start_time(pid))
    except OSError as error:
        log.error("cannot record waits in %s: %s; `supervisor why` will not see those of %s", path, error, name)


def table() -> Slots | None:
    """Return this process's table; None without one."""
    return _slots


class Waiting:
    """A recorded wait. `end` may be called from any thread, and again."""

    __slots__ = ("_slot", "_table", "wait")

    def __init__(self, wait: Wait) -> None:
        self.wait = wait
        self._table = _slots
        self._slot = -1 if _slots is None else _slots.take()
        if self._slot >= 0 and _slots is not None:
            _slots.write(self._slot, wait)

    def change(self, **fields: Any) -> None:
        """Replace fields of the record."""
        self.wait = msgspec.structs.replace(self.wait, **fields)
        if self._slot >= 0 and self._table is not None:
            self._table.write(self._slot, self.wait)

    def end(self, *_: object) -> None:
        """Remove the record. Takes and ignores a future, so that it can be its callback."""
        slot, self._slot = self._slot, -1
        if slot >= 0 and self._table is not None:
            self._table.free(slot)


def begin(
    kind: Kind,
    target: str = "",
    what: str = "",
    *,
    subject: Subject | None = None,
    timeout_s: float = 0.0,
    since: float = 0.0,
    **fields: Any,
) -> Waiting:
    """Record a wait of `subject`, by default the current one. Takes some 3 microseconds.

    `since`: its start, by default now. `fields`: further ones of the record, such as `error`.
    """
    who = subject or SUBJECT.get() or _itself
    now = time.monotonic()
    return Waiting(
        Wait(
            kind=kind,
            waiter=who.name,
            target=target,
            what=what,
            since=since or now,
            deadline=now + timeout_s if timeout_s else 0.0,
            uid=who.uid,
            ask=who.ask,
            **fields,
        )
    )


@contextmanager
def waiting(
    kind: Kind,
    target: str = "",
    what: str = "",
    *,
    subject: Subject | None = None,
    timeout_s: float = 0.0,
    **fields: Any,
) -> Iterator[Waiting]:
    """Record a wait within the block. `fields`: as of `begin`."""
    one = begin(kind, target, what, subject=subject, timeout_s=timeout_s, **fields)
    try:
        yield one
    finally:
        one.end()


def on_behalf_of(subject: Subject) -> None:
    """Further waits of this task, and of tasks that it starts, are of this subject. The ask stays."""
    outer = SUBJECT.get()
    SUBJECT.set(subject if outer is None else subject._replace(ask=outer.ask))


class Running:
    """The message in the actor's handler: a slot of its own. Used in the mailbox thread only."""

    def __init__(self) -> None:
        self._thread = 0

    def begin(self, what: str, ask: AskId | None, mailbox: int) -> None:
        """A message leaves the mailbox. The record has the thread's ID as its number."""
        if _slots is not None:
            _slots.handling(mailbox)
            now = time.monotonic()
            if not self._thread:
                self._thread = threading.get_native_id()
                _slots.set_mailbox_thread(self._thread)
            record = Wait(
                kind="handler", waiter=_itself.name, target=RUNNING, what=what, since=now, ask=ask, number=self._thread
            )
            _slots.write(RUNNING_SLOT, record)

    def end(self) -> None:
        """Its handler has returned."""
        if _slots is not None:
            _slots.clear(RUNNING_SLOT)


class Standing:
    """Waits that last over several steps, by key. A wait that is reported again keeps its start."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Waiting] = {}

    def put(self, key: Hashable, subject: Subject, kind: Kind, what: str, **fields: Any) -> None:
        """Report a wait: its text, and `target`, `next_try`, `error` or `first`.

        Another kind under the key is another wait.
        """
        known = self._known.get(key)
        if known is not None and known.wait.kind == kind and known.wait.waiter == subject.name:
            if any(getattr(known.wait, name) != value for name, value in {"what": what, **fields}.items()):
                known.change(what=what, **fields)
            return
        self.drop(key)
        self._known[key] = begin(kind, what=what, subject=subject, **fields)

    def drop(self, key: Hashable) -> None:
        """The wait is over, if there is one."""
        known = self._known.pop(key, None)
        if known is not None:
            known.end()

    def keep(self, keys: set[Any]) -> None:
        """Every wait but these is over."""
        for key in self._known.keys() - keys:
            self.drop(key)

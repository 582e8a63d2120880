"""The events actor: records events of pods, the node and the agent's processes, and answers queries for them.

Actors send it events and never wait for it. Like client-go's broadcaster it drops and counts new events while `QUEUED`
are waiting. Events are kept for an hour, in memory and in ROOT_DIR/nodevisor/events.log. With a kubeconfig they are
sent to the API server, too (`sending`).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from actors._base import Actor, Future, handles
from actors._base.actor import ActorContext
from actors._base.messaging.bus import Delivery
from actors._host.files import paths
from actors.events import agent, journal
from actors.events.entry import SUPERVISION, Entry, event_name, to_api
from actors.events.policy import Correlator
from actors.events.store import TTL_S, Store
from proto.agent.supervisor import Note
from proto.pods.events import Events as Answer
from proto.pods.events import ListEvents, RecordEvent
from proto.v1 import ObjectReference
from proto.wire.errors import AskTimeout

if TYPE_CHECKING:
    from actors.events.sending import Sender

log = logging.getLogger(__name__)

QUEUED = 1000
"""client-go's maxQueuedEvents."""
READ_DEADLINE_S = 5.0
WRITE_DEADLINE_S = 30.0
WRITE_PERIOD_S = 0.2
"""Time between two writes: the events that a SIGKILL can lose. The first write after a quiet time is at once."""
WRITE_RETRY_S = 30.0
SMALLEST_REWRITE = 1024 * 1024
"""Smallest file size that is rewritten. Later the limit is twice the size after the last rewrite."""
LONGEST_WAIT_S = 60.0
EXPIRY_PERIOD_S = 60.0


class Events(Actor):
    """State: `store`, the events, and `correlator`, the past that decides about the next one."""

    name = "events"
    blocking_threads = 1

    def __init__(self, context: ActorContext) -> None:
        super().__init__(context)
        self.store = Store()
        self.correlator = Correlator()
        self._held_back = 0
        self._queued, self._taken = 0, 0  # one writer each: the I/O thread, the mailbox thread
        self._waiting: list[Future[None]] = []
        self._incarnations: dict[str, int] = {}
        self._expiry_due = False
        self._path = os.path.join(paths.checkpoints_dir(self.settings.root_dir), "events.log")
        self._life = journal.Life(agent=agent.identity(self.bus.supervisor_pidfd), incarnation=self.bus.incarnation)
        self._last_life: journal.Life | None = None
        self._sender: Sender | None = None
        self._unwritten: list[journal.Line] = [self._life]
        self._rewrite = False
        self._writing = False
        self._file_bytes, self._rewrite_at = 0, SMALLEST_REWRITE

        self._bound_queue()

    def _bound_queue(self) -> None:
        # Set in the constructor, before the first message can come.
        deliver = self.bus.deliver

        def bounded(delivery: Delivery) -> None:
            if isinstance(delivery.message, RecordEvent):
                if self._queued - self._taken >= QUEUED:
                    self.bus.dropped["event_queue_full"] += 1
                    return
                self._queued += 1
            deliver(delivery)

        self.bus.deliver = bounded
        self.bus.on_note = lambda note: self.post(self.when_ready, self._noted, note)

    # Start

    async def rebuild(self) -> None:
        """Load the file. When the disk does not answer, start without it."""
        try:
            lines, whole = await self.blocking(READ_DEADLINE_S, journal.read, self._path)
        except (OSError, AskTimeout) as error:
            log.error("cannot read %s: %s; starting without earlier events", self._path, error)
            lines, whole = [], False
        sent: int | None = None
        for line in lines:
            match line:
                case journal.Life():
                    self._last_life = line
                case journal.Sent(revision=revision):
                    sent = revision
                case journal.Changed(entry=entry):
                    self.store.load(entry)
        self.store.expire(time.time_ns())
        self._prepare_sending(sent)
        self.correlator.restore(list(self.store.entries.values()))
        self._rewrite = not whole or len(lines) > 2 * len(self.store.entries) + 100

    def _prepare_sending(self, sent: int | None) -> None:
        # Events from the time before the first kubeconfig are not sent.
        if self.settings.kubeconfig:
            from actors.events.sending import Sender  # noqa: PLC0415 - the API's client is for nodes of a cluster only

            self._sender = Sender(self, self.store, self.store.revision if sent is None else sent, self._keep_sent)
            self._keep_sent(self._sender.sent)

    def _keep_sent(self, revision: int) -> None:
        if self._unwritten and isinstance(self._unwritten[-1], journal.Sent):
            self._unwritten.pop()
        self._unwritten.append(journal.Sent(revision=revision))
        if self.ready:
            self._write_soon()

    def on_ready(self) -> None:
        """Record a start of the agent, or a restart of this actor alone."""
        self._set_expiry()
        before = self._last_life
        if before is None or before.agent != self._life.agent:
            for kind, reason, message in agent.starting():
                self._observe(self._entry(ObjectReference(kind="Node"), kind, reason, message, time.time_ns()))
        elif before.incarnation != self._life.incarnation:
            text = f"#{self._life.incarnation} is in service after #{before.incarnation}"
            self._supervision(self.name, Note(level="info", actor=self.name, text=text, reason="Started"))
        self._write_soon()
        self._wake_sender()

    def _wake_sender(self) -> None:
        if self._sender is not None:
            self._sender.wake()

    def on_shutdown(self) -> None:
        """Write the events that the last write did not include."""
        if self._unwritten and not self._rewrite:
            try:
                journal.append(self._path, journal.encode(self._unwritten))
            except OSError as error:
                log.error("cannot write %s: %s", self._path, error)

    # Recording

    @handles(RecordEvent)
    def on_record(self, message: RecordEvent) -> None:
        """Record an event; every actor sends them."""
        self._taken += 1
        entry = self._entry(message.involved, message.type, message.reason, message.message, message.time_ns)
        self._observe(replace(entry, annotations=message.annotations))

    def on_peer_started(self, name: str, incarnation: int) -> None:
        """Record an actor's restart. The first incarnation seen here is no event."""
        before = self._incarnations.get(name)
        self._incarnations[name] = incarnation
        if before is not None and before != incarnation:
            text = f"#{incarnation} is in service"
            self._supervision(name, Note(level="info", actor=name, text=text, reason="Started"))

    def _noted(self, note: Note) -> None:
        self._supervision(note.actor, note)
        if note.reason == "Degraded" and note.actor not in self._incarnations:  # it has never been in service
            text = f"{note.actor}: {note.text}"
            self._observe(
                self._entry(ObjectReference(kind="Node"), "Warning", "KubeletSetupFailed", text, time.time_ns())
            )

    def _supervision(self, actor: str, note: Note) -> None:
        involved = ObjectReference(kind="Actor", name=actor)
        kind = "Normal" if note.level == "info" else "Warning"
        entry = self._entry(involved, kind, note.reason or "Supervision", note.text, time.time_ns())
        self._observe(replace(entry, component=SUPERVISION))

    def _entry(self, involved: ObjectReference, kind: Any, reason: str, message: str, time_ns: int) -> Entry:
        if involved.kind == "Node":  # the kubelet uses the node's name as its UID, too
            name = self.settings.node_name
            involved = replace(involved, name=name, uid=name)
        name = event_name(involved.name or "", time_ns)
        return Entry(
            name=name, involved=involved, type=kind, reason=reason, message=message, first_ns=time_ns, last_ns=time_ns
        )

    def _observe(self, new: Entry) -> None:
        while new.name in self.store.entries:  # two events in one nanosecond
            new = replace(new, name=new.name + "0")
        entry = self.correlator.observe(new)
        if entry is None:
            self._held_back += 1
            return
        entry = self.store.put(entry, time.time_ns())
        self._unwritten.append(journal.Changed(entry=entry))
        self._write_soon()
        self._wake_sender()
        self._set_expiry()
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.set(None)

    # Queries

    @handles(ListEvents)
    async def on_list(self, request: ListEvents) -> Answer:
        """Return the events changed after a revision. Waits up to `wait_s` when there are none."""
        self.store.expire(time.time_ns())
        if request.wait_s > 0 and self.store.revision <= request.after:
            changed: Future[None] = Future()
            self._waiting.append(changed)
            timer = self.after(min(request.wait_s, LONGEST_WAIT_S), self._stop_waiting, changed)
            await changed
            timer.cancel()
        host = self.settings.node_name
        events = tuple(to_api(entry, host) for entry in self.store.since(request.after))
        return Answer(events=events, revision=self.store.revision)

    def _stop_waiting(self, changed: Future[None]) -> None:
        if changed in self._waiting:
            self._waiting.remove(changed)
        changed.set(None)

    def describe(self) -> dict[str, Any]:
        """Return the numbers of kept and dropped events, watchers and cache entries."""
        return {
            "kept": len(self.store.entries),
            "revision": self.store.revision,
            "held_back": self._held_back,
            "remembered": self.correlator.sizes(),
            "watchers": len(self._waiting),
            "file_bytes": self._file_bytes,
            "unwritten": self._writing,
            **({"sending": self._sender.describe()} if self._sender is not None else {}),
        }

    # Age

    def _set_expiry(self) -> None:
        if not self._expiry_due and self.store.entries:
            self._expiry_due = True
            oldest = next(iter(self.store.entries.values()))
            in_s = oldest.revision / 1e6 + TTL_S - time.time()
            self.after(max(EXPIRY_PERIOD_S, in_s), self._expire)

    def _expire(self) -> None:
        self._expiry_due = False
        self.store.expire(time.time_ns())
        self._set_expiry()

    # Disk

    def _write_soon(self) -> None:
        if not self._writing:
            self._writing = True
            self.spawn(self._write(), "write")

    async def _write(self) -> None:
        """Write until the file is current. A failure is logged once and repaired by a rewrite."""
        while self._unwritten or self._rewrite:
            content = journal.encode(self._unwritten)
            self._unwritten = []
            write = journal.append
            if self._rewrite or self._file_bytes + len(content) > self._rewrite_at:
                content = journal.encode(self._all_lines())
                write = journal.rewrite
            ended = threading.Event()
            try:
                await self.blocking(WRITE_DEADLINE_S, _write_then, write, self._path, content, ended)
            except (OSError, AskTimeout) as error:
                await self._cannot_write(error, ended)
                continue
            self._file_bytes = len(content) + (self._file_bytes if write is journal.append else 0)
            if write is journal.rewrite:
                self._rewrite, self._rewrite_at = False, max(SMALLEST_REWRITE, 2 * len(content))
            await self.sleep(WRITE_PERIOD_S)
        self._writing = False

    def _all_lines(self) -> list[journal.Line]:
        sent = [journal.Sent(revision=self._sender.sent)] if self._sender is not None else []
        return [self._life, *sent, *(journal.Changed(entry=entry) for entry in self.store.entries.values())]

    async def _cannot_write(self, error: BaseException, ended: threading.Event) -> None:
        if not self._rewrite:
            log.error("cannot write %s: %s; keeping events in memory", self._path, error)
        self._rewrite = True
        await self.sleep(WRITE_RETRY_S)
        while not ended.is_set():  # a hanging disk blocks one thread, not one per try
            await self.sleep(WRITE_RETRY_S)


def _write_then(write: Any, path: str, content: bytes, ended: threading.Event) -> None:
    try:
        write(path, content)
    finally:
        ended.set()


ACTOR = Events

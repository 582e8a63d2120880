"""Sandboxes and containers in memory, each with its lock, their reserved names, and the listeners of CRI events.

An operation on one container holds that container's lock. The tables have a lock of their own, held for moments.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Generic, TypeVar

from actors.runtime.model.errors import AtEnd, RpcError, not_found, unmet
from actors.runtime.model.records import ContainerRecord, SandboxRecord, Started
from actors.runtime.model.user_mapping import PodUsers, mapping_of
from actors.runtime.selinux.labels import level_of
from proto.cri import api_pb2 as pb

MOST_EVENTS = 1000
"""Queued for each listener. A client that reads too slowly is dropped; it lists again when it reconnects."""


class Sandbox:
    """One pod sandbox."""

    def __init__(self, record: SandboxRecord) -> None:
        self.record = record
        self.config = pb.PodSandboxConfig.FromString(record.config)
        self.lock = threading.RLock()
        self.unsaved = False
        """True when the record in memory is newer than on the disk, which was full."""

    @property
    def state(self) -> pb.PodSandboxState.ValueType:
        """Ready until it is stopped."""
        return pb.SANDBOX_NOTREADY if self.record.stopped else pb.SANDBOX_READY

    @property
    def users(self) -> PodUsers | None:
        """The users of a pod with a user namespace of its own."""
        ids = mapping_of(self.config.linux.security_context.namespace_options)
        return None if ids is None else PodUsers(ids, self.record.namespaces["user"])

    @property
    def key(self) -> str:
        """Unique name: one sandbox exists for each attempt of a pod."""
        metadata = self.config.metadata
        return f"{metadata.name}_{metadata.namespace}_{metadata.uid}_{metadata.attempt}"


class End:
    """The end of a container, which calls wait for. Safe from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reached = False

    def set(self) -> None:
        """Wake all that wait."""
        with self._changed:
            self._reached = True
            self._changed.notify_all()

    def is_set(self) -> bool:
        """Return True after the end."""
        return self._reached

    def wait(self, seconds: float, at_end: AtEnd = lambda _: None) -> bool:
        """Return True at the end, False after `seconds`. Raises RpcError CANCELLED when the call is over before."""
        over: list[bool] = []

        def stop_waiting() -> None:
            with self._changed:
                over.append(True)
                self._changed.notify_all()

        if at_end(stop_waiting) is False:
            stop_waiting()
        with self._changed:
            self._changed.wait_for(lambda: self._reached or over, seconds)
            if over and not self._reached:
                raise RpcError("CANCELLED", "the client no longer waits for the container's end")
            return self._reached


class Container:
    """One container."""

    def __init__(self, record: ContainerRecord) -> None:
        self.record = record
        self.config = pb.ContainerConfig.FromString(record.config)
        self.lock = threading.RLock()
        self.unsaved = False
        """True when the record in memory is newer than on the disk, which was full."""
        self.started: Started | None = None
        self.starting = False
        """True while StartContainer is under way."""
        self.stop_signalled = False
        """True after the stop signal: another StopContainer changes the grace period and sends no second signal."""
        self.ended = End()
        """Set when the end is on record."""
        if record.finished is not None:
            self.ended.set()

    @property
    def state(self) -> pb.ContainerState.ValueType:
        """CRI's state, from the record and the monitor's files."""
        if self.record.finished is not None:
            return pb.CONTAINER_EXITED
        return pb.CONTAINER_CREATED if self.started is None else pb.CONTAINER_RUNNING

    @property
    def key(self) -> str:
        """Unique name: one container exists for each attempt in a sandbox."""
        return f"{self.config.metadata.name}_{self.record.sandbox_id}_{self.config.metadata.attempt}"

    def require_running(self) -> None:
        """Raise RpcError FAILED_PRECONDITION unless the container runs."""
        if self.state != pb.CONTAINER_RUNNING:
            state = pb.ContainerState.Name(self.state)
            raise unmet(f"container {self.record.id} is not running: it is in state {state}")


T = TypeVar("T", Sandbox, Container)


class Table(Generic[T]):
    """All sandboxes, or all containers, by ID. Safe from any thread."""

    def __init__(self, kind: str, lock: threading.Lock, names: dict[str, str]) -> None:
        """`lock` protects the table and `names`, the ID that has reserved each name."""
        self._kind, self._lock, self._names = kind, lock, names
        self._entries: dict[str, T] = {}

    def add(self, entry: T) -> None:
        """Add an entry and reserve its name."""
        with self._lock:
            self._names[entry.key] = entry.record.id
            self._entries[entry.record.id] = entry

    def drop(self, entry: T) -> None:
        """Remove an entry and free its name."""
        with self._lock:
            self._entries.pop(entry.record.id, None)
            self._names.pop(entry.key, None)

    def find(self, id_: str) -> T | None:
        """Find an entry by ID, or by the first 8 or more characters when they are unique."""
        with self._lock:
            if (entry := self._entries.get(id_)) is not None or len(id_) < 8:
                return entry
            found = [entry for known, entry in self._entries.items() if known.startswith(id_)]
        return found[0] if len(found) == 1 else None

    def get(self, id_: str) -> T:
        """Find an entry as `find` does. Raises RpcError NOT_FOUND."""
        if (found := self.find(id_)) is None:
            raise not_found(self._kind, id_)
        return found

    def all(self) -> list[T]:
        """All entries, oldest first."""
        with self._lock:
            return list(self._entries.values())


class State:
    """Tables of sandboxes and containers, and their reserved names. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self.sandboxes: Table[Sandbox] = Table("pod sandbox", self._lock, self._names)
        self.containers: Table[Container] = Table("container", self._lock, self._names)

    def reserve(self, key: str, id_: str) -> None:
        """Reserve a name. Raises RpcError ALREADY_EXISTS."""
        with self._lock:
            if (holder := self._names.setdefault(key, id_)) != id_:
                raise RpcError("ALREADY_EXISTS", f"the name {key!r} is reserved for {holder}")

    def release(self, key: str) -> None:
        """Free a reserved name."""
        with self._lock:
            self._names.pop(key, None)

    def containers_of(self, sandbox_id: str) -> list[Container]:
        """The containers of one sandbox, oldest first."""
        return [one for one in self.containers.all() if one.record.sandbox_id == sandbox_id]

    def levels_in_use(self) -> set[str]:
        """SELinux levels of all sandboxes and containers on record: volumes of an ended pod still have its level."""
        found = [one.record.labels for one in self.sandboxes.all()]
        found += [one.record.labels for one in self.containers.all()]
        return {level_of(label) for labels in found for label in labels}

    def layers_in_use(self) -> set[str]:
        """Names of the layers that containers use, as root file systems and as volumes."""
        records = [container.record for container in self.containers.all()]
        volumes = {layer for record in records for volume in record.volumes for layer in volume.layers}
        return volumes | {layer for record in records for layer in record.layers}


class EventListener:
    """An iterator over container events for one client, in order."""

    def __init__(self) -> None:
        self._queue: queue.Queue[pb.ContainerEventResponse | None] = queue.Queue()
        self.closed = False

    def put(self, event: pb.ContainerEventResponse) -> None:
        """Queue an event, or cut the client off when MOST_EVENTS wait."""
        if self._queue.qsize() >= MOST_EVENTS:
            self.close()
        if not self.closed:
            self._queue.put(event)

    def close(self) -> None:
        """End the iteration after the queued events. Safe from any thread."""
        self.closed = True
        self._queue.put(None)

    def __iter__(self) -> Iterator[pb.ContainerEventResponse]:
        while (event := self._queue.get()) is not None:
            yield event


class EventHub:
    """Distributes container events to the listeners."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[EventListener] = []

    def publish(self, event: pb.ContainerEventResponse) -> None:
        """Send an event to all listeners."""
        event.created_at = time.time_ns()
        with self._lock:
            self._listeners = [listener for listener in self._listeners if not listener.closed]
            for listener in self._listeners:
                listener.put(event)

    def listen(self) -> EventListener:
        """A listener for events from now on."""
        listener = EventListener()
        with self._lock:
            self._listeners.append(listener)
        return listener

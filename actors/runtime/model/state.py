"""Sandboxes and containers in memory, each with its lock, their reserved names, and the listeners of CRI events.

An operation on one container holds that container's lock. The tables have a lock of their own, held for moments.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import TypeVar

from actors.runtime.model.errors import RpcError, not_found, unmet
from actors.runtime.model.records import ContainerRecord, SandboxRecord, Started
from proto.cri import api_pb2 as pb

T = TypeVar("T")
MOST_EVENTS = 1000
"""Queued for each listener. A client that reads too slowly is dropped; it lists again when it reconnects."""


class Sandbox:
    """One pod sandbox."""

    def __init__(self, record: SandboxRecord) -> None:
        self.record = record
        self.config = pb.PodSandboxConfig.FromString(record.config)
        self.lock = threading.RLock()

    @property
    def state(self) -> pb.PodSandboxState.ValueType:
        """Ready until it is stopped."""
        return pb.SANDBOX_NOTREADY if self.record.stopped else pb.SANDBOX_READY

    @property
    def key(self) -> str:
        """Unique name: one sandbox exists for each attempt of a pod."""
        told = self.config.metadata
        return f"{told.name}_{told.namespace}_{told.uid}_{told.attempt}"


class Container:
    """One container."""

    def __init__(self, record: ContainerRecord) -> None:
        self.record = record
        self.config = pb.ContainerConfig.FromString(record.config)
        self.lock = threading.RLock()
        self.started: Started | None = None
        self.stop_signalled = False
        """True after the stop signal: another StopContainer changes the grace period and sends no second signal."""
        self.ended = threading.Event()
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


class State:
    """Tables of sandboxes, containers and reserved names. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sandboxes: dict[str, Sandbox] = {}
        self._containers: dict[str, Container] = {}
        self._names: dict[str, str] = {}

    def reserve(self, key: str, id_: str) -> None:
        """Reserve a name. Raises RpcError ALREADY_EXISTS."""
        with self._lock:
            if (holder := self._names.setdefault(key, id_)) != id_:
                raise RpcError("ALREADY_EXISTS", f"the name {key!r} is reserved for {holder}")

    def release(self, key: str) -> None:
        """Free a reserved name."""
        with self._lock:
            self._names.pop(key, None)

    def add_sandbox(self, sandbox: Sandbox) -> None:
        """Add a sandbox and reserve its name."""
        with self._lock:
            self._names[sandbox.key] = sandbox.record.id
            self._sandboxes[sandbox.record.id] = sandbox

    def add_container(self, container: Container) -> None:
        """Add a container and reserve its name."""
        with self._lock:
            self._names[container.key] = container.record.id
            self._containers[container.record.id] = container

    def drop_sandbox(self, sandbox: Sandbox) -> None:
        """Remove a sandbox and free its name."""
        with self._lock:
            self._sandboxes.pop(sandbox.record.id, None)
            self._names.pop(sandbox.key, None)

    def drop_container(self, container: Container) -> None:
        """Remove a container and free its name."""
        with self._lock:
            self._containers.pop(container.record.id, None)
            self._names.pop(container.key, None)

    def find_sandbox(self, id_: str) -> Sandbox | None:
        """Find a sandbox by ID, or by the first 8 or more characters when they are unique."""
        with self._lock:
            return self._sandboxes.get(id_) or _by_start(self._sandboxes, id_)

    def find_container(self, id_: str) -> Container | None:
        """Find a container by ID, or by the first 8 or more characters when they are unique."""
        with self._lock:
            return self._containers.get(id_) or _by_start(self._containers, id_)

    def sandbox(self, id_: str) -> Sandbox:
        """Get a sandbox as `find_sandbox` does. Raises RpcError NOT_FOUND."""
        if (found := self.find_sandbox(id_)) is None:
            raise not_found("pod sandbox", id_)
        return found

    def container(self, id_: str) -> Container:
        """Get a container as `find_container` does. Raises RpcError NOT_FOUND."""
        if (found := self.find_container(id_)) is None:
            raise not_found("container", id_)
        return found

    def sandboxes(self) -> list[Sandbox]:
        """All sandboxes, oldest first."""
        with self._lock:
            return list(self._sandboxes.values())

    def containers(self, sandbox_id: str = "") -> list[Container]:
        """All containers, or those of one sandbox."""
        with self._lock:
            return [one for one in self._containers.values() if not sandbox_id or one.record.sandbox_id == sandbox_id]

    def layers_in_use(self) -> set[str]:
        """Names of the layers that containers use, as root file systems and as volumes."""
        records = [container.record for container in self.containers()]
        volumes = {layer for record in records for volume in record.volumes for layer in volume.layers}
        return volumes | {layer for record in records for layer in record.layers}


def _by_start(table: dict[str, T], start: str) -> T | None:
    found = [one for id_, one in table.items() if len(start) >= 8 and id_.startswith(start)]
    return found[0] if len(found) == 1 else None


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

"""The device manager: connects device plugins and gives their devices to containers.

Plugins come and go at any time. Assigned devices are in the checkpoint before an answer. A plugin that is away, hangs
or dies lets its pods wait; they are not rejected.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from actors._base import Actor
from actors._cri.errors import CriError
from actors._plugins.watcher import NotRegisteredError
from actors.resources.devices import answers, numa
from actors.resources.devices.allocation import Allocation
from actors.resources.devices.answers import BadAnswerError
from actors.resources.devices.directory import Directory, is_socket
from actors.resources.devices.holdings import Holding, Holdings
from actors.resources.devices.inventory import Inventory
from actors.resources.devices.plugin import LIST_BACKOFF, LIST_PAUSE_S, MEET_S, Connection
from actors.resources.devices.unread import Unread
from actors.resources.model.hints import Hint, Hints
from actors.resources.model.plugin_bounds import error_text, rest_s
from actors.resources.model.provider import NotYetError
from proto.common.safe_text import clipped
from proto.plugins import deviceplugin_pb2 as pb
from proto.resources.grants import Grant
from proto.v1 import Container, Pod
from proto.wire.errors import ActorError, AskTimeout

log = logging.getLogger(__name__)

DISK_S = 10.0
EXPIRY_S = 10.0
LOOK_S = 0.1
MOST_RESOURCES = 128
SUPERSEDED = "another plugin of this resource has registered meanwhile"


class DeviceManager:
    """A Provider. All methods run in the actor's mailbox thread unless their docstring differs."""

    def __init__(
        self, actor: Actor, directory: Directory, numa_nodes: Sequence[int], changed: Callable[[], None]
    ) -> None:
        """`changed` is called when resources, their capacity, or the readiness of a plugin change."""
        self._actor, self.directory, self._numa_nodes, self._changed = actor, directory, numa_nodes, changed
        self.inventory = Inventory()
        self.holdings = Holdings()
        self._connections: dict[str, Connection] = {}
        self._meeting: dict[str, Connection] = {}
        self._needs_pre_start: dict[str, bool] = {}
        self.unread = Unread()
        self._allocation = Allocation(self.inventory, self.holdings, self._connections, self._save, self.unread)
        self._writes = 0
        self._is_saving = self._save_again = False
        self._awaits = False
        """A look for plugins that are away is planned."""

    # Start

    def load(self) -> None:
        """Read the checkpoint. Blocks; call it before the actor is ready. Raises OSError."""
        found, registered = self.directory.read_checkpoint()
        for one in found:
            self.holdings.put(_checked(one))
        self.inventory.restore(sorted({*registered, *self.holdings.resources()}), time.monotonic())

    def start(self) -> None:
        """Take off the Node what plugins that stay away offered."""
        self._await_absent()

    # Plugins

    def check_room(self, name: str, waiting: Iterable[str]) -> None:
        """Raise NotRegisteredError for a resource too many. `waiting`: resources whose plugin is not connected yet."""
        others = {*waiting, *self._meeting, *self.inventory.resources} - {name}
        if not self.inventory.knows(name) and len(others) >= MOST_RESOURCES:
            raise NotRegisteredError(f"there are {MOST_RESOURCES} resources of device plugins already")

    async def meet(self, name: str, endpoint: str) -> None:
        """Connect the plugin behind a socket; it replaces the resource's plugin once it answers.

        Raises NotRegisteredError.
        """
        before = self._meeting.pop(name, None)
        if before is not None:
            before.close()
        self._meeting[name] = connection = Connection(name, endpoint, self._list_arrived, self._stream_ended)
        try:
            await self._appeared(endpoint)
            options = await connection.options()
        except (CriError, ActorError) as error:
            connection.close()
            if self._meeting.get(name) is not connection:
                raise NotRegisteredError(SUPERSEDED) from error
            del self._meeting[name]
            raise NotRegisteredError(_not_met(error)) from error
        if self._meeting.get(name) is not connection:
            raise NotRegisteredError(SUPERSEDED)
        del self._meeting[name]
        self._met(connection, options)

    def _met(self, connection: Connection, options: Any) -> None:
        resource = connection.resource
        before = self._connections.get(resource)
        if before is not None:
            before.close()
        self._connections[resource] = connection
        connection.prefers = options.get_preferred_allocation_available
        self._needs_pre_start[resource] = options.pre_start_required
        self.inventory.connect(resource)
        log.info("the device plugin of %s is registered, at %s", resource, connection.socket)
        connection.watch()

    def leave(self, name: str, endpoint: str) -> None:
        """The socket of a plugin has gone from plugins_registry. A repeat changes nothing."""
        connection = self._connections.get(name)
        if connection is not None and connection.socket == endpoint:
            self._disconnected(connection, "its socket in plugins_registry has gone")

    async def _appeared(self, socket: str) -> None:
        """Wait for the socket, as a plugin may listen only after its registration was answered. Raises ActorError."""
        deadline = time.monotonic() + MEET_S
        while not await self._actor.blocking(DISK_S, is_socket, socket):
            if time.monotonic() > deadline:
                raise AskTimeout(f"{socket} is not a socket")
            await self._actor.sleep(LOOK_S)

    def _list_arrived(self, connection: Connection) -> None:
        # In the stream's thread.
        self._actor.post(self._list_due, connection, name="device_list")

    def _stream_ended(self, connection: Connection, reason: str) -> None:
        # In the stream's thread.
        self._actor.post(self._disconnected, connection, reason, name="device_plugin_ended")

    def _list_due(self, connection: Connection) -> None:
        """Take the latest list, later if lists come without rest."""
        self._actor.after(max(0.0, connection.next_list - time.monotonic()), self._take_list, connection)

    def _take_list(self, connection: Connection) -> None:
        began = time.thread_time()
        self._read_list(connection)
        due = rest_s(time.thread_time() - began, len(self._connections), LIST_PAUSE_S)
        connection.next_list = max(connection.next_list, time.monotonic() + due)

    def _read_list(self, connection: Connection) -> None:
        response, resource = connection.take_list(), connection.resource
        if self._connections.get(resource) is not connection:
            return  # the plugin was replaced
        try:
            devices = answers.read_devices(response)
        except BadAnswerError as error:
            self._disconnected(connection, str(error))
            return
        problem = self.inventory.problem(resource, devices)
        if problem:
            self._disconnected(connection, problem)
            return
        if not self.inventory.update(resource, devices):
            return
        now = time.monotonic()
        delay_s, connection.list_history = LIST_BACKOFF.next_delay(connection.list_history, now, lambda: 0.0)
        connection.next_list = now + delay_s
        healthy = len(self.inventory.resources[resource].healthy)
        log.info("the device plugin of %s has %d devices, %d of them healthy", resource, len(devices), healthy)
        self._save_soon()
        self._changed()

    def _disconnected(self, connection: Connection, reason: str) -> None:
        connection.close()
        resource = connection.resource
        if self._connections.get(resource) is not connection:
            return
        del self._connections[resource]
        self.inventory.disconnect(resource, time.monotonic())
        self._await_absent()
        log.warning("the device plugin of %s is away: %s", resource, error_text(reason))
        self._save_soon()
        self._changed()

    def _await_absent(self) -> None:
        """Look periodically while a plugin is away, and only then: each look wakes the process."""
        if not self._awaits and self.inventory.any_away():
            self._awaits = True
            self._actor.after(EXPIRY_S, self._expire)

    def _expire(self) -> None:
        self._awaits = False
        gone = self.inventory.expire(time.monotonic())
        self._await_absent()
        if gone:
            log.warning("the Node offers none of %s any more: no device plugin has come back", ", ".join(sorted(gone)))
            self._save_soon()
            self._changed()

    # Reports

    def resources(self) -> tuple[str, ...]:
        """Names of the resources of all device plugins, including plugins that are away."""
        every = self.inventory.resources.keys() | self.inventory.removed | self.holdings.resources()
        return tuple(sorted(every))

    def describe(self) -> dict[str, Any]:
        """Each resource with its devices, for a console."""
        return {
            name: {
                "connected": one.connected,
                "devices": len(one.devices),
                "healthy": len(one.healthy),
                "in_use": len(self.holdings.in_use(name)),
            }
            for name, one in sorted(self.inventory.resources.items())
        }

    # Provider

    def container_hints(self, pod: Pod, container: Container) -> Hints:
        """See Provider."""
        uid = pod.metadata.uid
        found: dict[str, list[Hint] | None] = {}
        for name, count in self._allocation.requests(pod, container).items():
            held = self.holdings.get(uid, container.name, name)
            found[name] = self._hints(
                name,
                count,
                frozenset() if held is None else held.ids,
                self.holdings.reusable(pod, container, name),
            )
        return found

    def pod_hints(self, pod: Pod) -> Hints:
        """See Provider."""
        return {
            name: self._hints(name, count, numa.pod_held(self.holdings, pod, name), frozenset())
            for name, count in numa.pod_requests(pod).items()
            if self._allocation.is_managed(name)
        }

    def _hints(self, name: str, count: int, held: frozenset[str], reusable: frozenset[str]) -> list[Hint] | None:
        resource = self.inventory.resources.get(name)
        if resource is None or not resource.listed:
            return None  # `allocate` lets the pod wait
        in_use = self.holdings.in_use(name)
        return numa.hints(resource, self._numa_nodes, count, held=held, in_use=in_use, reusable=reusable)

    async def allocate(self, pod: Pod, container: Container, affinity: Hint) -> None:
        """See Provider. Chooses devices at once; `finish` then has their plugins allocate them."""
        self._allocation.choose(pod, container, affinity)

    async def finish(self, pod: Pod) -> None:
        """After `allocate` for all containers: call the plugins. Other pods may be admitted meanwhile.

        Raises AllocationError, NotYetError.
        """
        await self._allocation.finish(pod, (*pod.spec.init_containers, *pod.spec.containers))

    async def prepare(self, pod: Pod, container: Container) -> None:
        """Before a start of the container: call PreStartContainer of plugins that ask for it.

        Raises NotYetError, or AllocationError for a container whose devices cannot be assigned.
        """
        await self._allocation.complete(pod, container)
        for name in self._allocation.requests(pod, container):
            held = self.holdings.get(pod.metadata.uid, container.name, name)
            # As in the kubelet, a container starts again while a plugin is away that has not asked for the call.
            if held is None or not self._needs_pre_start.get(name):
                continue
            connection, ids = self._connections.get(name), sorted(held.ids)
            if connection is None:
                raise NotYetError(f"the device plugin of {name} is away, which has to prepare the container's start")
            await self._pre_start(connection, ids)

    async def _pre_start(self, connection: Connection, ids: Sequence[str]) -> None:
        try:
            await connection.pre_start_container(ids)
        except CriError as error:
            text = error_text(error.grpc_text())
            raise NotYetError(f"device plugin PreStartContainer rpc failed with err: {text}") from error

    def grant(self, pod: Pod, container: Container) -> Grant:
        """See Provider. Of two plugins that grant one variable, path or annotation, the first resource counts."""
        parts = [_grant(one.response) for one in self.holdings.of_container(pod.metadata.uid, container.name)]
        return Grant(
            environment=_first(parts, lambda part: part.environment),
            devices=tuple(_first(parts, lambda part: {one.container_path: one for one in part.devices}).values()),
            mounts=tuple(_first(parts, lambda part: {one.container_path: one for one in part.mounts}).values()),
            annotations=_first(parts, lambda part: part.annotations),
            cdi_devices=tuple(dict.fromkeys(name for part in parts for name in part.cdi_devices)),
        )

    def release(self, pod_uid: str) -> None:
        """See Provider."""
        if self.holdings.release(pod_uid) | self.unread.release(pod_uid):
            self._save_soon()

    def retain(self, pod_uids: Collection[str]) -> None:
        """See Provider."""
        if self.holdings.retain(pod_uids) | self.unread.retain(pod_uids):
            self._save_soon()

    # Checkpoint

    async def _save(self) -> None:
        self._writes += 1
        held = tuple(one for one in self.holdings if one.chosen_for is None)
        registered = self.inventory.registered()
        await self._actor.blocking(DISK_S, self.directory.write_checkpoint, self._writes, held, registered)

    def _save_soon(self) -> None:
        """Write it after a write under way: of many changes meanwhile one write has all."""
        self._save_again = not self.unread.lasts
        if self._save_again and not self._is_saving:
            self._is_saving = True
            self._actor.spawn(self._save_changes(), "device checkpoint")

    async def _save_changes(self) -> None:
        try:
            while self._save_again:
                self._save_again = False
                await self._try_to_save()
        finally:
            self._is_saving = False

    async def _try_to_save(self) -> None:
        try:
            await self._save()
        except (OSError, ActorError) as error:
            log.error("cannot write the checkpoint of devices: %s; the next change writes it", error)


def _not_met(error: CriError | ActorError) -> str:
    """The kubelet's error of a plugin that does not answer, or why its socket cannot be used."""
    if isinstance(error, CriError):
        return f"failed to get device plugin options: {error_text(error.grpc_text())}"
    return clipped(str(error))


def _first(parts: Sequence[Grant], items: Callable[[Grant], Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in parts:
        for key, value in items(part).items():
            found.setdefault(key, value)
    return found


def _grant(response: bytes) -> Grant:
    return answers.read_grant(pb.ContainerAllocateResponse.FromString(response))


def _checked(holding: Holding) -> Holding:
    """The holding, to be allocated again if its response in the file cannot be used."""
    try:
        _grant(holding.response)
    except (DecodeError, BadAnswerError) as error:
        log.warning(
            "cannot use the saved grant of %s for pod %s: %s; the devices are allocated again",
            holding.resource,
            holding.pod_uid,
            error,
        )
        return Holding(holding.pod_uid, holding.container, holding.resource, holding.by_node, b"", earlier_boot=True)
    return holding

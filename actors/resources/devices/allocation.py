"""Assigns devices to containers in two steps, so that a slow plugin delays its own pod only.

`choose` takes free devices at once, in the pod's turn of admission. `finish` asks the plugins (GetPreferredAllocation,
Allocate), and other pods are admitted meanwhile. No other pod gets the chosen devices.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from actors._base.keyed_locks import KeyedLocks
from actors._cri.errors import CriError
from actors.resources.devices import answers, policy
from actors.resources.devices.answers import BadAnswerError
from actors.resources.devices.holdings import Holding, Holdings
from actors.resources.devices.inventory import Inventory
from actors.resources.devices.plugin import Connection
from actors.resources.devices.unread import Unread
from actors.resources.model.hints import ANY, Hint
from actors.resources.model.plugin_bounds import error_text
from actors.resources.model.provider import NotYetError, failing
from proto.v1 import Container, Pod
from proto.wire.errors import ActorError

MOST_ANSWER = 256 * 1024
"""Bytes of an answer for one container. A variable for execve has half of it at most."""
MOST_COST = 4 << 20
"""Of all holdings: the checkpoint's checksum takes 0.3 s of CPU time for them."""
HUNG_S = 30.0
"""A plugin whose call did not end is not called for this time."""


class Allocation:
    """The devices of containers. All methods run in the actor's mailbox thread."""

    def __init__(
        self,
        inventory: Inventory,
        holdings: Holdings,
        connections: Mapping[str, Connection],
        save: Callable[[], Awaitable[Any]],
        unread: Unread,
    ) -> None:
        """`connections`: by resource. `save` writes the checkpoint; it raises OSError and ActorError."""
        self._inventory, self._holdings, self._connections, self._save = inventory, holdings, connections, save
        self._unread = unread
        self._locks: KeyedLocks[str] = KeyedLocks()
        """By pod UID: one call to a plugin at a time."""

    def choose(self, pod: Pod, container: Container, affinity: Hint) -> None:
        """Take free devices for a container that has none yet. Raises AllocationError and NotYetError."""
        for name, count in self.requests(pod, container).items():
            held = self._holdings.get(pod.metadata.uid, container.name, name)
            if held is None:
                if self._unread.problem:
                    raise NotYetError(self._unread.problem)
                ids = policy.complete(self._choice(pod, container, name, count, affinity))
                by_node = self._inventory.by_node(name, ids)
                self._holdings.put(Holding(pod.metadata.uid, container.name, name, by_node, chosen_for=affinity))
            elif len(held.ids) != count:
                raise policy.rejection(
                    f'pod "{held.pod_uid}" container "{container.name}" changed request for resource "{name}" '
                    f"from {len(held.ids)} to {count}"
                )

    async def finish(self, pod: Pod, containers: Sequence[Container]) -> None:
        """Have the plugins allocate what was chosen, and again what was assigned before the machine's last start.

        The checkpoint is written before it returns. Raises AllocationError and NotYetError.
        """
        async with self._locks.lock(pod.metadata.uid):
            for container in containers:
                with failing(container):
                    for name, count in self.requests(pod, container).items():
                        await self._finish(pod, container, name, count)

    async def complete(self, pod: Pod, container: Container) -> None:
        """Both steps for a container at its start, as after a reboot. Raises as they do."""
        if not self._is_complete(pod, container):
            self.choose(pod, container, ANY)
            await self.finish(pod, [container])

    def requests(self, pod: Pod, container: Container) -> dict[str, int]:
        """Numbers of devices by resource, for resources of device plugins."""
        wanted = policy.requests(pod, container)
        return {name: count for name, count in wanted.items() if self.is_managed(name)}

    def is_managed(self, resource: str) -> bool:
        """True for a resource of a device plugin; others are the cluster's."""
        return self._inventory.knows(resource) or resource in self._holdings.resources()

    def _is_complete(self, pod: Pod, container: Container) -> bool:
        held = [self._holdings.get(pod.metadata.uid, container.name, name) for name in self.requests(pod, container)]
        return all(one is not None and one.is_allocated for one in held)

    async def _finish(self, pod: Pod, container: Container, name: str, count: int) -> None:
        held = self._holdings.get(pod.metadata.uid, container.name, name)
        if held is None:
            raise NotYetError(f"the devices of {name} were released meanwhile")
        if held.is_allocated:
            return
        policy.check_ready(name, self._inventory.resources.get(name), held.ids)
        connection = self._connections[name]
        if held.chosen_for is not None and connection.prefers:
            held = await self._chosen_again(pod, container, held, count, held.chosen_for)
        ids = tuple(sorted(held.ids))
        response = await self._called(connection, "Allocate", lambda: connection.allocate(ids))
        if self._holdings.get(pod.metadata.uid, container.name, name) is not held:
            raise NotYetError(f"the devices of {name} were released meanwhile")
        answer = _checked(name, response).SerializeToString(deterministic=True)
        granted = replace(held, response=answer, earlier_boot=False, chosen_for=None)
        self._check_room(held, granted)
        self._holdings.put(granted)
        try:
            await self._save()
        except (OSError, ActorError) as error:
            raise NotYetError(f"cannot write the checkpoint of devices: {error}") from error

    def _check_room(self, held: Holding, granted: Holding) -> None:
        """Raise AllocationError for a grant that would make the checkpoint too large."""
        if granted.cost + self._holdings.cost(but=held) > MOST_COST:
            what = f"the grant of {held.resource} takes {granted.cost} bytes of the checkpoint of devices"
            raise policy.rejection(f"{what}, with those of others more than {MOST_COST}")

    async def _chosen_again(self, pod: Pod, container: Container, held: Holding, count: int, affinity: Hint) -> Holding:
        """Choose again, with what the plugin prefers. The devices held so far stay taken until it has answered."""
        name = held.resource
        question = self._choice(pod, container, name, count, affinity).question
        preferred: Sequence[str] = ()
        if question is not None:
            connection = self._connections[name]
            answer = await self._called(connection, "GetPreferredAllocation", lambda: connection.preferred(question))
            preferred = tuple(answer.container_responses[0].deviceIDs) if answer.container_responses else ()
        if self._holdings.get(held.pod_uid, held.container, name) is not held:
            raise NotYetError(f"the devices of {name} were released meanwhile")
        ids = policy.complete(self._choice(pod, container, name, count, affinity), preferred)
        chosen = replace(held, by_node=self._inventory.by_node(name, ids))
        self._holdings.put(chosen)
        return chosen

    def _choice(self, pod: Pod, container: Container, name: str, count: int, affinity: Hint) -> policy.Choice:
        """Choose among the free devices and what the container holds."""
        resource = policy.check_ready(name, self._inventory.resources.get(name), frozenset())
        in_use = self._holdings.in_use(name, but=(pod.metadata.uid, container.name))
        reusable = self._holdings.reusable(pod, container, name)
        return policy.choose(name, resource, count, in_use, reusable, affinity)

    async def _called(self, connection: Connection, rpc: str, call: Callable[[], Any]) -> Any:
        """The answer to a call. Raises NotYetError for a plugin that hangs or has died, else AllocationError."""
        name = connection.resource
        if time.monotonic() < connection.hung_until:
            raise NotYetError(f"the device plugin of {name} hangs; it is asked again within {HUNG_S:g} s")
        try:
            return await call()
        except CriError as error:
            if error.code == "DeadlineExceeded":
                connection.hung_until = time.monotonic() + HUNG_S
            raise policy.call_failure(name, rpc, error.code, error_text(error.grpc_text())) from error


def _checked(name: str, response: Any) -> Any:
    """The part of an AllocateResponse for the container. Raises AllocationError."""
    if not response.container_responses:
        raise policy.rejection("no containers return in allocation response")
    try:
        answers.read_grant(response.container_responses[0])
    except BadAnswerError as error:
        raise policy.rejection(f"the device plugin of {name} lies: {error}") from error
    size = response.container_responses[0].ByteSize()
    if size > MOST_ANSWER:
        raise policy.rejection(
            f"the device plugin of {name} grants {size} bytes to a container, more than {MOST_ANSWER}"
        )
    return response.container_responses[0]

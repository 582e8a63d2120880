"""Registers device plugins: at device-plugins/kubelet.sock, which it serves, and as handler of plugins_registry.

As in the kubelet, a plugin at kubelet.sock is answered once it has answered us, and is told why it was not connected.
Unlike there, it may listen only after its registration was answered. Source: pkg/kubelet/cm/devicemanager/plugin of
Kubernetes 1.36.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from actors._base import Actor
from actors._plugins.watcher import NotRegisteredError
from actors.resources.devices import answers
from actors.resources.devices.directory import is_socket
from actors.resources.devices.manager import SUPERSEDED, DeviceManager
from actors.resources.serving.socket_proxy import SocketProxy
from actors.resources.serving.unix_server import Limits, RpcRefusedError, Service, serve
from proto.common.backoff import Backoff
from proto.plugins import deviceplugin_pb2 as pb
from proto.wire.errors import ActorError

log = logging.getLogger(__name__)

DISK_S = 10.0
ANSWER_S = 15.0
"""Longest wait for the answer to a registration. The plugin itself has less to answer us, MEET_S."""
RETRY = Backoff(0.5, cap_s=122.0)
"""Between tries to connect a plugin that does not listen yet."""
LIMITS = Limits(threads=16, request_bytes=64 * 1024, connection_age_s=60.0)
"""A plugin registers with one call. It takes a thread until the plugin has answered us."""
REGISTRATION = pb.DESCRIPTOR.services_by_name["Registration"]


@dataclass(eq=False)
class Entry:
    """A registration at kubelet.sock whose plugin is not connected yet."""

    socket: str
    answer: Future[str]
    """Gets the problem, empty without one. A plugin without a socket is answered at once, and then tried."""
    problem: str = ""
    """Of the last try after the answer."""


class DeviceRegistration:
    """A Handler of plugins. All methods run in the actor's mailbox thread unless a comment says otherwise."""

    def __init__(self, actor: Actor, devices: DeviceManager) -> None:
        self._actor, self._devices = actor, devices
        self._latest: dict[str, Entry] = {}
        """By resource: the last registration at kubelet.sock, until its plugin is connected or refused."""
        self._server: SocketProxy | None = None

    async def start(self) -> None:
        """Serve kubelet.sock. Tries again until the directory and the socket can be made."""
        while self._server is None:
            try:
                self._server = await self._actor.blocking(DISK_S, self._serve)
            except (OSError, ActorError) as error:
                log.error("cannot serve %s: %s; trying again", self._devices.directory.socket, error)
                await self._actor.sleep(DISK_S)

    @property
    def serves(self) -> bool:
        """True while plugins can register."""
        return self._server is not None and self._server.serves

    def describe(self) -> dict[str, str]:
        """Why plugins that have registered are not connected, by resource; empty before a try has failed."""
        return {resource: one.problem for resource, one in self._latest.items()}

    # plugins_registry

    def problem(self, name: str, endpoint: str, versions: Iterable[str]) -> str:  # noqa: ARG002 - Handler's signature
        """See Handler."""
        return answers.registry_problem(name, tuple(versions))

    async def register(self, name: str, endpoint: str, versions: Iterable[str]) -> None:  # noqa: ARG002
        """See Handler."""
        self._devices.check_room(name, self._latest)
        self._latest.pop(name, None)
        await self._devices.meet(name, endpoint)

    def deregister(self, name: str, endpoint: str) -> None:
        """See Handler."""
        self._devices.leave(name, endpoint)

    # kubelet.sock

    def _serve(self) -> SocketProxy:
        # In a pool thread.
        directory = self._devices.directory
        directory.prepare()
        behind = f"{self._actor.settings.run_dir}/device-plugins.sock"
        return serve(directory.socket, behind, [Service(REGISTRATION, {"Register": self._register})], LIMITS)

    def _register(self, request: Any) -> Any:
        # In a thread of the server.
        problem = answers.registration_problem(request.version, request.resource_name)
        problem = problem or answers.endpoint_problem(request.endpoint)
        if not problem:
            entry = Entry(f"{self._devices.directory.path}/{request.endpoint}", Future())
            self._actor.post(self._begin, request.resource_name, entry, name="register_device_plugin")
            problem = _awaited(entry.answer)
        if problem:
            log.warning("cannot register a device plugin: %s", problem)
            raise RpcRefusedError("UNKNOWN", problem)
        return pb.Empty()

    def _begin(self, resource: str, entry: Entry) -> None:
        try:
            self._devices.check_room(resource, self._latest)
        except NotRegisteredError as error:
            entry.answer.set_result(str(error))
            return
        self._latest[resource] = entry
        self._actor.spawn(self._connect(resource, entry), "meet device plugin")

    async def _connect(self, resource: str, entry: Entry) -> None:
        """Connect the plugin. If it was answered already, try until another one registers for the resource."""
        problem, failures = SUPERSEDED, 0
        while self._latest.get(resource) is entry:
            problem = await self._try(resource, entry)
            if not problem or not entry.answer.done():
                break
            failures += 1
            if problem != entry.problem:
                log.warning("cannot connect the device plugin of %s: %s; trying again", resource, problem)
            entry.problem = problem
            await self._actor.sleep(RETRY.delay_s(failures))
        if self._latest.get(resource) is entry:
            del self._latest[resource]
        if not entry.answer.done():
            entry.answer.set_result(problem)

    async def _try(self, resource: str, entry: Entry) -> str:
        """Connect the plugin once. Returns the problem, empty without one."""
        try:
            there = await self._actor.blocking(DISK_S, is_socket, entry.socket)
            if not there and not entry.answer.done():
                entry.answer.set_result("")  # it may wait for this
            if self._latest.get(resource) is not entry:
                return SUPERSEDED
            await self._devices.meet(resource, entry.socket)
        except (NotRegisteredError, ActorError) as error:
            return str(error)
        return ""


def _awaited(answer: Future[str]) -> str:
    """The problem of a registration, empty without one. Waits in a thread of the server."""
    try:
        return answer.result(ANSWER_S)
    except TimeoutError:
        return f"the plugin was not connected within {ANSWER_S:g} s"

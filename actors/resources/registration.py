"""Registers device plugins and DRA drivers that have a socket in ROOT_DIR/plugins_registry.

Each plugin is asked for its identity (GetInfo), handed to the manager of its type, and told the result
(NotifyRegistrationStatus). A plugin of another type is left to the volume actor.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from actors._base import Actor
from actors._cri.errors import CriError
from actors._plugins import kinds
from actors._plugins.client import Client
from actors._plugins.watcher import NotRegisteredError, OtherOwnerError, Watcher
from actors.resources.model.plugin_bounds import error_text
from proto.common.safe_text import clipped
from proto.plugins import registration_pb2 as pb

log = logging.getLogger(__name__)

SERVICE = pb.DESCRIPTOR.services_by_name["Registration"]
CALL_S = 5.0
"""Deadline of a call that needs only the plugin's process."""
MOST_NAME = 253
MOST_PATH = 107
"""The kernel's limit of a socket's path."""
MOST_VERSIONS = 64


class Handler(Protocol):
    """The manager of one type of plugins. Its methods run in the actor's mailbox thread."""

    def problem(self, name: str, endpoint: str, versions: Iterable[str]) -> str:
        """The kubelet's reason to refuse the plugin; empty to accept it."""

    async def register(self, name: str, endpoint: str, versions: Iterable[str]) -> None:
        """Connect the plugin. `endpoint`: path of its service's socket. Raises NotRegisteredError."""

    def deregister(self, name: str, endpoint: str) -> None:
        """Its socket in plugins_registry has gone."""


class Registered(NamedTuple):
    """A registered plugin."""

    kind: str
    name: str
    endpoint: str


class Registration:
    """An Owner of plugins. Runs in the actor's mailbox thread."""

    def __init__(self, actor: Actor, handlers: Mapping[str, Handler]) -> None:
        """`handlers` by type of plugin."""
        self._handlers = handlers
        self._watcher: Watcher[Registered] = Watcher(actor, self)

    def start(self) -> None:
        """Register the present plugins, and later ones."""
        self._watcher.start()

    @property
    def is_complete(self) -> bool:
        """True once every plugin with a socket is identified."""
        return self._watcher.is_complete

    def describe(self) -> dict[str, Any]:
        """Registered and refused plugins by socket, for a console."""
        return {
            "registered": {path: one._asdict() for path, one in self._watcher.plugins().items()},
            "refused": self._watcher.refused(),
        }

    # Owner

    async def register(self, path: str) -> Registered:
        """See Owner."""
        client = Client(path)
        try:
            info = await client.call(SERVICE, "GetInfo", pb.InfoRequest(), CALL_S)
            handler = self._handlers.get(info.type)
            if handler is None:
                raise OtherOwnerError(info.type)
            plugin = Registered(info.type, info.name, info.endpoint or path)
            problem = await _registered(handler, plugin, list(info.supported_versions))
            await _notify(client, plugin, problem)
        except CriError as error:
            raise NotRegisteredError(error_text(error.grpc_text())) from error
        finally:
            client.close()
        if problem:
            raise NotRegisteredError(problem)
        return plugin

    def registered(self, plugin: Registered) -> None:
        """See Owner."""

    def changed(self) -> None:
        """See Owner."""

    def gone(self, plugin: Registered) -> None:
        """See Owner."""
        self._handlers[plugin.kind].deregister(plugin.name, plugin.endpoint)


async def _notify(client: Client, plugin: Registered, problem: str) -> None:
    """Tell the plugin the result.

    As in the kubelet, a plugin that does not take it stays registered: it may wait for its first call meanwhile.
    """
    status = pb.RegistrationStatus(plugin_registered=not problem, error=problem)
    try:
        await client.call(SERVICE, "NotifyRegistrationStatus", status, CALL_S)
    except CriError as error:
        if not problem:  # a refusal is logged by the watcher, once
            what = "the %s %s is registered, and cannot be told so: %s"
            log.warning(what, plugin.kind, plugin.name, error_text(error.grpc_text()))


async def _registered(handler: Handler, plugin: Registered, versions: list[str]) -> str:
    """Register the plugin. Returns the reason if that is not possible."""
    problem = _problem(plugin, versions) or handler.problem(plugin.name, plugin.endpoint, versions)
    if problem:
        return kinds.invalid(problem)
    try:
        await handler.register(plugin.name, plugin.endpoint, versions)
    except NotRegisteredError as error:
        return kinds.failed(error)
    return ""


def _problem(plugin: Registered, versions: list[str]) -> str:
    """Reason to refuse what no plugin can mean."""
    if not plugin.name or len(plugin.name) > MOST_NAME or not plugin.name.isprintable():
        return f"the plugin name {clipped(plugin.name)!r} is invalid"
    if not os.path.isabs(plugin.endpoint) or "\0" in plugin.endpoint or len(plugin.endpoint) > MOST_PATH:
        return f"the endpoint {clipped(plugin.endpoint)!r} is not the absolute path of a socket"
    if len(versions) > MOST_VERSIONS:
        return f"it has {len(versions)} versions, more than {MOST_VERSIONS}"
    return ""

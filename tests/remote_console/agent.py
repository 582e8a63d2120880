"""A real supervisor with the real remote_console actor and two stand-ins, and clients with keys."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from actors._base.process import child as base
from actors.remote_console import keys, limits
from proto.agent.settings import Settings
from supervisor.sockets.remote import RemoteClient
from supervisor.supervision.specs import ChildSpec
from tests.cli.actors import real_agent
from tests.ports import free_port
from tests.supervisor.agent import Agent


def child(name: str, incarnation: int, settings: Settings, supervisor_pidfd: int) -> NoReturn:
    """The entry of the children: stand-ins, but for the actor under test."""
    if name == "remote_console":
        limits.HANDSHAKE_S = 60.0  # on a busy machine, too, a silent connection is displaced and not late
        base.main(name, incarnation, settings, supervisor_pidfd)
    module = types.ModuleType(f"actors.{name}.actor")
    module.ACTOR = real_agent.Status if name == "status" else real_agent.Probe  # type: ignore[attr-defined]
    sys.modules |= {f"actors.{name}": types.ModuleType(f"actors.{name}"), f"actors.{name}.actor": module}
    base.main(name, incarnation, settings, supervisor_pidfd)


class Remote:
    """The agent, its port, and clients by role."""

    def __init__(self, agent: Agent, port: int) -> None:
        self.agent, self.port = agent, port
        self.folder: Path = keys.directory(agent.settings.root_dir)
        self.place = f"tcp://127.0.0.1:{port}"

    def client(self, role: str = "read", name: str = "") -> RemoteClient:
        return RemoteClient(self.place, keys.add(self.folder, name or f"key-{role}", role))  # type: ignore[arg-type]

    def audit(self) -> str:
        path = self.folder / "audit.log"
        return path.read_text() if path.exists() else ""


@contextlib.contextmanager
def remote_agent() -> Iterator[Remote]:
    port = free_port()
    specs = [ChildSpec(name=name, heartbeat_period_s=0.5) for name in ("status", "probe", "remote_console")]
    with Agent(*specs, entry="tests.remote_console.agent:child", console_address=f"127.0.0.1:{port}") as agent:
        agent.wait_ready("status", "probe", "remote_console")
        yield Remote(agent, port)

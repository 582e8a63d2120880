"""Serves the control socket: requests of commands and actors' Ready, by message type."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from proto.agent.actor import Describe, Description, Ping, Pong, SetVerbosity
from proto.agent.supervisor import (
    ActorRow,
    ActorRows,
    AgentHealth,
    CgroupDriver,
    EndFaults,
    GetAgentHealth,
    GetUpgrade,
    InjectFault,
    KillActor,
    ListActors,
    ListFaults,
    Ready,
    RestartActor,
    StartActor,
    StartUpgrade,
    StopActor,
    StopAgent,
    Suspect,
)
from proto.common import logs
from proto.common.machine import procfs
from proto.wire.errors import ProtocolError, Refused
from proto.wire.message import Done, Message
from supervisor.core.faults import Faults
from supervisor.health.memory_sizes import MemorySizes
from supervisor.process.forkserver_manager import ForkserverManager
from supervisor.sockets.control import Control, Received
from supervisor.supervision import transitions
from supervisor.supervision.process_tree import ProcessTree

if TYPE_CHECKING:
    from supervisor.config.reload.controller import ReloadController
    from supervisor.core.upgrade.controller import UpgradeController


class Daemon(Protocol):
    """The parts of the daemon that requests read or change."""

    control: Control
    faults: Faults
    forkserver: ForkserverManager
    incarnation: int
    reload: ReloadController | None
    started: float
    """Monotonic time."""
    tree: ProcessTree
    upgrade: UpgradeController | None

    def push(self, event: transitions.Event) -> None:
        """Queue an event for the state machine."""

    def driver_told(self, driver: str) -> None:
        """Compare the container runtime's cgroup driver with ours."""


SERVE_S = 0.005
"""The most time for messages in one iteration of the loop. The rest waits, and an actor's end is seen in between."""
_sizes = MemorySizes()

_ORDERS: dict[type[Message], Literal["stop", "start", "kill"]] = {
    StopActor: "stop",
    StartActor: "start",
    KillActor: "kill",
}


def serve(daemon: Daemon) -> None:
    """Carry out or answer messages that have arrived: at least one, and those of `SERVE_S`."""
    until = time.monotonic() + SERVE_S
    for received in daemon.control.read():
        event = _event_of(received)
        if event is not None:
            daemon.push(event)
        else:
            _answer(daemon, received)
        if time.monotonic() >= until:
            return


def _event_of(received: Received) -> transitions.Event | None:
    """The event of a message that the state machine handles and answers; None for any other."""
    asker, header = received.asker, received.header
    match received.message:
        case Ready(pid=pid):
            return transitions.ReadyReceived(header.source, header.incarnation, pid)
        case Suspect(name=name, incarnation=incarnation):
            return transitions.Suspected(name, incarnation)
        case RestartActor(name=name):
            return transitions.RestartAsked(name, asker)
        case StopActor(name=name) | StartActor(name=name) | KillActor(name=name):
            return transitions.ActorOrdered(_ORDERS[type(received.message)], name, asker)
        case StopAgent():
            return transitions.StopAsked(asker)
    return None


def _answer(daemon: Daemon, received: Received) -> None:
    asker = received.asker
    match received.message:
        case CgroupDriver(name=driver):
            daemon.driver_told(driver)
        case ListActors(with_memory=with_memory, with_cpu=with_cpu):
            daemon.control.answer(asker, ActorRows(rows=rows(daemon, with_memory=with_memory, with_cpu=with_cpu)))
        case GetAgentHealth():
            daemon.control.answer(asker, health(daemon))
        case GetUpgrade() | StartUpgrade():
            no = Refused("NotPossible", "this supervisor was not started by `supervisor start`", retry=False)
            daemon.control.answer(asker, daemon.upgrade.serve(received.message) if daemon.upgrade is not None else no)
        case Ping():
            daemon.control.answer(asker, Pong(mailbox=0))
        case Describe():
            daemon.control.answer(asker, describe(daemon))
        case InjectFault() | ListFaults() | EndFaults() as request:
            daemon.control.answer(asker, daemon.faults.serve(request))
        case SetVerbosity(v=v):
            daemon.control.answer(asker, _set_verbosity(v))
        case other:
            daemon.control.dropped["unexpected_type"] += 1
            daemon.control.answer(asker, ProtocolError(f"the supervisor takes no {type(other).__name__}"))


def _set_verbosity(verbosity: int) -> Done | Refused:
    if wrong := logs.wrong_verbosity(verbosity):
        return Refused("InvalidVerbosity", wrong, retry=False)
    logs.set_verbosity(verbosity)
    return Done()


def rows(daemon: Daemon, *, with_memory: bool = True, with_cpu: bool = False) -> tuple[ActorRow, ...]:
    """The rows of supervisor, forkserver and actors, in start order. The memory is a second old at most, as a rule."""
    now = time.monotonic()
    forkserver = daemon.forkserver
    first = (
        ActorRow(
            name="supervisor",
            pid=os.getpid(),
            state="stopping" if daemon.tree.stopping else "ready",
            incarnation=daemon.incarnation,
            uptime_s=round(now - daemon.started, 3),
            restarts=0,
        ),
        ActorRow(
            name="forkserver",
            pid=forkserver.pid,
            state="ready" if forkserver.loaded else "backoff" if forkserver.replaced else "starting",
            incarnation=forkserver.incarnation,
            uptime_s=round(now - forkserver.started, 3) if forkserver.loaded else 0.0,
            restarts=forkserver.restarts,
        ),
    )
    found = (*first, *daemon.tree.rows(now))
    sizes = _sizes.of(row.pid for row in found if row.pid) if with_memory else {}
    return tuple(
        msgspec.structs.replace(
            row,
            pss_kib=sizes.get(row.pid, 0),
            cpu_s=procfs.cpu_s(row.pid) if row.pid and with_cpu else 0.0,
        )
        for row in found
    )


def health(daemon: Daemon) -> AgentHealth:
    """Problems of the agent as a whole."""
    return AgentHealth(
        degraded=(*_degraded(daemon), *(row.name for row in daemon.tree.lost)),
        configuration=daemon.reload.problem if daemon.reload is not None else "",
    )


def _degraded(daemon: Daemon) -> list[str]:
    return [child.name for child in daemon.tree.children.values() if child.history.degraded or child.held]


def describe(daemon: Daemon) -> Description:
    """The supervisor's own Description."""
    return Description(
        name="supervisor",
        pid=os.getpid(),
        incarnation=daemon.incarnation,
        uptime_s=round(time.monotonic() - daemon.started, 3),
        mailbox=0,
        tasks=0,
        timers=0,
        pending_asks=0,
        dropped={**daemon.control.dropped, "dead_incarnation": daemon.tree.ignored_ready},
        state={
            "actors": {child.name: child.state.value for child in daemon.tree.children.values()},
            "degraded": _degraded(daemon),
            "written_off": [row.name for row in daemon.tree.lost],
            **({"configuration": daemon.reload.describe()} if daemon.reload is not None else {}),
        },
    )

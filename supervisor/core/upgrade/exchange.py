"""The moment of an upgrade: leaving for the next self, and going on with the children of the former one."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import msgspec

from proto.agent import registry
from proto.agent.settings import Settings
from supervisor.core.upgrade.handover import SIGNALS, Handover, Held
from supervisor.process.processes import Processes
from supervisor.supervision import transitions
from supervisor.supervision.child import Child
from supervisor.supervision.transitions import Instruction, State

if TYPE_CHECKING:
    from supervisor.core.daemon import Daemon

log = logging.getLogger(__name__)


def take_over(daemon: Daemon, taken: Handover) -> list[Instruction]:
    """Go on with the children of the former self. `settle` ends actors that this release does not have."""
    ready = []
    for one in taken.children:
        child = daemon.tree.children.get(one.name)
        if child is None:
            continue
        child.held = one.held
        if one.pid:
            daemon.processes.add(one.name, one.incarnation, one.pid, one.pidfd)
            life = (one.pid, one.ready, one.starts, one.deaths, one.last_death)
            ready.append(transitions.Taken(one.name, one.incarnation, *life))
    return daemon.tree.take_over(ready, time.monotonic())


def settle(daemon: Daemon, taken: Handover) -> None:
    """Do what has no way back: end the actors that this release lacks, and publish the first event."""
    for one in taken.children:
        if one.name not in daemon.tree.children and one.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(one.pidfd, signal.SIGKILL)
            os.close(one.pidfd)
    daemon.publisher.publish(daemon.tree.peer_states())


def is_quiet(daemon: Daemon) -> bool:
    """True when every actor is ready or stopped, and the forkserver owes nothing."""
    states = {child.state for child in daemon.tree.children.values()}
    return states <= {State.READY, State.STOPPED} and daemon.forkserver.idle and not daemon.tree.stopping


def leave(daemon: Daemon, prepare: Callable[[Handover, Settings], Callable[[], NoReturn]]) -> NoReturn:
    """End the forkserver, close every socket, and execute the next self. Does not return.

    `prepare` does everything that may fail, and returns the call of exec. It may raise: then nothing has changed.
    After a later failure this process exits: without its sockets it is of no use, and the host starts a new one.
    """
    given = Handover(
        children=tuple(_handed_over(daemon.processes, child) for child in daemon.tree.children.values()),
        lock=daemon.lock,
        listeners=daemon.listeners,
        started=daemon.started,
        known=tuple(sorted(registry.NAMES)),
    )
    execute = prepare(given, daemon.settings)
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        daemon.forkserver.reap()
        daemon.kill_unreported()
        for held in given.children:
            process = daemon.processes.get(held.name, held.incarnation)
            if process is not None and not held.pid:
                process.signal(signal.SIGKILL)
        daemon.close_for_exec()
        execute()
    except BaseException:
        log.exception("cannot execute the next self; ending; pods go on running")
        os._exit(1)


def _handed_over(processes: Processes, child: Child) -> Held:
    """A ready child for the next self. Another one is handed over without its pid, and starts again there."""
    process = processes.get(child.name, child.incarnation)
    held = Held(name=child.name, incarnation=child.incarnation, held=child.held)
    if process is None or child.state is not State.READY:
        return held
    return msgspec.structs.replace(
        held,
        pid=process.pid,
        pidfd=process.pidfd,
        ready=child.ready or 0.0,
        starts=child.starts,
        deaths=child.deaths,
        last_death=child.last_death,
    )

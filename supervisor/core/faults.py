"""Keeps the injected faults: checks and applies them, writes them for starting actors, and ends them in time.

All of it is off unless the agent was started with --fault-injection. Each fault is a Note, and so an event.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path
from typing import Protocol

import msgspec

from proto.agent import faults
from proto.agent.faults import FILE, KINDS, MAX_ACTIVE, MAX_S, OF_THE_SUPERVISOR, Fault
from proto.agent.supervisor import EndFaults, InjectFault, ListFaults
from proto.agent.supervisor import Faults as Answer
from proto.wire.errors import Refused
from supervisor.process.forkserver_manager import ForkserverManager
from supervisor.process.processes import Processes

log = logging.getLogger(__name__)

FORKSERVER = "forkserver"
OFF = "fault injection is off: start the agent with --fault-injection"


class Daemon(Protocol):
    """The parts of the daemon that faults use."""

    forkserver: ForkserverManager
    processes: Processes
    run_dir: Path

    def note(self, level: str, reason: str, actor: str, text: str) -> None:
        """Log and publish."""


class Faults:
    """State: the active faults by number. They are dropped with the agent."""

    def __init__(self, daemon: Daemon, *, enabled: bool) -> None:
        self._daemon, self._enabled = daemon, enabled
        self._path = daemon.run_dir / FILE
        self._active: dict[int, Fault] = {}
        self._stopped: dict[int, int] = {}
        """Incarnation that each `stop` has stopped."""
        self._last = 0
        self._path.unlink(missing_ok=True)

    def serve(self, request: InjectFault | ListFaults | EndFaults) -> Answer | Refused:
        """Carry out a request; its answer."""
        if not self._enabled:
            return Refused("FaultInjectionOff", OFF, retry=False)
        match request:
            case InjectFault(fault=fault, duration_s=duration_s):
                if refusal := self._inject(fault, duration_s):
                    return refusal
            case EndFaults(ids=ids):
                if unknown := [number for number in ids if number not in self._active]:
                    return Refused("NotFound", f"no active fault {unknown[0]}", retry=False)
                self._end(ids or tuple(self._active))
        return Answer(faults=tuple(self._active.values()), now=time.monotonic())

    def _inject(self, fault: Fault, duration_s: float) -> Refused | None:
        known = {*self._daemon.processes.by_name, *([FORKSERVER] if fault.kind in ("kill", "stop") else ())}
        problem = faults.wrong(fault, frozenset(known))
        if not problem and fault.actor == FORKSERVER and not self._daemon.forkserver.pid:
            problem = "there is no forkserver now"
        if not problem and KINDS[fault.kind].lasts and not 0 < duration_s <= MAX_S:
            problem = f"it lasts from 0 to {MAX_S:g} s"
        if not problem and len(self._active) >= MAX_ACTIVE:
            problem = f"{MAX_ACTIVE} faults are active"
        if problem:
            return Refused("InvalidFault", f"cannot inject it: {problem}", retry=False)
        self._last += 1
        until = time.monotonic() + duration_s if KINDS[fault.kind].lasts else 0.0
        self._begin(msgspec.structs.replace(fault, id=self._last, until=until))
        return None

    def _begin(self, fault: Fault) -> None:
        self._note("warning", "FaultInjected", fault, f"injecting fault {described(fault)}")
        if fault.until:
            self._active[fault.id] = fault
        if fault.kind not in OF_THE_SUPERVISOR:
            self._spread(() if fault.until else (fault,))
        if fault.actor == FORKSERVER:
            os.kill(self._daemon.forkserver.pid, signal.SIGKILL if fault.kind == "kill" else signal.SIGSTOP)
        process = self._daemon.processes.by_name.get(fault.actor)
        if process is None:
            return
        match fault.kind:
            case "kill" | "start":
                process.signal(signal.SIGKILL)
            case "stop":
                self._stopped[fault.id] = process.incarnation
                process.signal(signal.SIGSTOP)
            case "socket":
                (self._daemon.run_dir / f"{fault.actor}.sock").unlink(missing_ok=True)

    def _end(self, ids: tuple[int, ...]) -> None:
        ended = [self._active.pop(number) for number in dict.fromkeys(ids)]  # a request may repeat a number
        for fault in ended:
            incarnation = self._stopped.pop(fault.id, 0)
            process = self._daemon.processes.get(fault.actor, incarnation)
            if process is not None:
                process.signal(signal.SIGCONT)
            self._note("info", "FaultEnded", fault, f"fault {described(fault)} has ended")
        if any(fault.kind not in OF_THE_SUPERVISOR for fault in ended):
            self._spread()

    def _note(self, level: str, reason: str, fault: Fault, text: str) -> None:
        self._daemon.note(level, reason, fault.actor or "supervisor", text)

    def _spread(self, once: tuple[Fault, ...] = ()) -> None:
        """Write the faults for starting actors, and tell the running ones."""
        lasting = tuple(fault for fault in self._active.values() if fault.kind not in OF_THE_SUPERVISOR)
        try:
            temporary = self._path.with_suffix(".tmp")
            temporary.write_bytes(msgspec.json.encode(lasting))
            temporary.replace(self._path)
        except OSError as error:
            log.error("cannot write %s: %s; actors that start now do without faults", self._path, error.strerror)
        for process in self._daemon.processes.by_name.values():
            self._daemon.processes.link(process).set_faults(lasting + once)

    def deadline(self) -> float | None:
        """The monotonic time of the next `tick`; None for none."""
        return min((fault.until for fault in self._active.values()), default=None)

    def tick(self, now: float) -> None:
        """End the faults that are due."""
        if due := tuple(number for number, fault in self._active.items() if now >= fault.until):
            self._end(due)

    def close(self) -> None:
        """Forget all faults; the processes have ended."""
        self._path.unlink(missing_ok=True)


def described(fault: Fault) -> str:
    """A fault in one line."""
    to = f" to {fault.peer}" if fault.peer else ""
    of = f" of {', '.join(fault.words)[:200]}" if fault.words else ""
    value = f" ({fault.value:g})" if fault.value else ""
    return f"{fault.id}: {fault.kind} {fault.actor or 'all actors'}{to}{of}{value}"

"""Applies the active faults to this process, and undoes each at its end.

A fault replaces a function of the process while it lasts. Nothing of it is in the way of an agent without faults.
Everything here runs in the I/O thread, except the replaced functions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from actors._base.messaging.bus import Bus
from actors._faults import hooks
from proto.agent.actor import SetFaults
from proto.agent.faults import FILE, KINDS, Fault
from proto.common import untrusted

log = logging.getLogger(__name__)


class InjectedFault(Exception):
    """The exception of the faults `exception` and `start`."""


class Injection:
    """The faults of one process. State: the undo function of each by its number."""

    def __init__(self, name: str, bus: Bus, run_dir: str) -> None:
        self._name, self._bus = name, bus
        self._path = Path(run_dir, FILE)
        self._undo: dict[int, Callable[[], None]] = {}
        self._done: set[int] = set()

    def begin(self) -> None:
        """Apply the faults that are active at this start. Raises InjectedFault for a `start` fault."""
        self._bus.on_faults = lambda message: self.replace(message.faults)
        try:
            active = untrusted.decode_json(self._path.read_bytes(), tuple[Fault, ...])
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError) as error:
            log.error("cannot read %s: %s; starting without faults", self._path, error)
            return
        for fault in active:
            if fault.kind == "start" and self._concerns(fault) and hooks.lasts(fault):
                raise InjectedFault(f"fault {fault.id}: start")
        self.replace(active)

    def replace(self, active: SetFaults | tuple[Fault, ...]) -> None:
        """Apply new faults, and undo faults that are not active any more."""
        faults = active.faults if isinstance(active, SetFaults) else active
        ours = {fault.id: fault for fault in faults if self._concerns(fault)}
        for number in self._undo.keys() - ours.keys():
            self._end(number)
        for number, fault in ours.items():
            if number not in self._undo and number not in self._done:
                self._apply(fault)

    def _concerns(self, fault: Fault) -> bool:
        scope = KINDS[fault.kind].scope if fault.kind in KINDS else ""
        return bool(scope) and fault.actor in (("", self._name) if scope in ("agent", "pod") else (self._name,))

    def _apply(self, fault: Fault) -> None:
        hook = hooks.HOOKS.get(fault.kind)
        if fault.kind == "exception":
            self._done.add(fault.id)
            hooks.before_delivery(self._bus, fault, lambda: _raise(f"fault {fault.id}: exception"))
        elif hook is not None:
            log.debug("fault %d begins: %s", fault.id, fault.kind)
            self._undo[fault.id] = hook(self._bus, fault)
            self._bus.call_later(max(0.0, hooks.left_s(fault)), lambda: self._end(fault.id))

    def _end(self, number: int) -> None:
        undo = self._undo.pop(number, None)
        if undo is not None:
            self._done.add(number)
            undo()
            log.debug("fault %d ends", number)


def _raise(text: str) -> None:
    raise InjectedFault(text)


def install(name: str, bus: Bus, run_dir: str) -> None:
    """Let this process have faults from now on. Raises InjectedFault when its start is to fail."""
    Injection(name, bus, run_dir).begin()

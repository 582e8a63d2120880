"""Starts, limits and stops slices and scopes by calls to systemd on the system bus. `systemctl` is not needed.

Each function opens a connection of its own: none breaks while it is idle, and the next call finds a restarted bus.
All waits of a function share one deadline. Changes are made at run time, and systemd keeps them over a daemon-reload.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from jeepney import DBusAddress, DBusErrorResponse, HeaderFields, MatchRule, message_bus, new_method_call
from jeepney.bus import get_bus
from jeepney.io.blocking import DBusConnection, prep_socket
from jeepney.wrappers import unwrap_msg

from actors._cgroup.systemd.properties import Property, of_scope, of_unit

DEADLINE_S = 20.0
NAME, PATH = "org.freedesktop.systemd1", "/org/freedesktop/systemd1"
MANAGER = "org.freedesktop.systemd1.Manager"
UNIT_EXISTS, NO_SUCH_UNIT = f"{NAME}.UnitExists", f"{NAME}.NoSuchUnit"
_JOBS = MatchRule(type="signal", interface=MANAGER, member="JobRemoved", path=PATH)
_MAX_JOBS = 4096
"""Jobs of the whole machine that may end between a call and its answer."""


class SystemdError(OSError):
    """systemd did not do it. The message names the unit, the reason and a remedy."""


def ensure(unit: str, above: Iterable[str], limits: Sequence[Property]) -> None:
    """Start a slice with these limits, after those `above`. Limit it when it is there already. Raises SystemdError."""
    with _systemd(f"limit {unit}") as systemd:
        for parent in above:
            systemd.start_new(parent, of_unit(parent))
        if job := systemd.start_new(unit, [*of_unit(unit), *limits]):
            systemd.wait(job)
            return
        if limits:
            systemd.set_properties(unit, limits)
        systemd.wait(systemd.call("StartUnit", "ss", (unit, "replace"))[0])  # it may be on its way down


def start_scope(unit: str, parent: str, pid: int, limits: Sequence[Property]) -> None:
    """Start a scope with these limits in the slice `parent`; move process `pid` into it. Raises SystemdError."""
    with _systemd(f"start {unit}") as systemd:
        job = systemd.start_new(unit, [*of_scope(parent, pid), *limits])
        if not job:
            raise SystemdError("it is there already")
        systemd.wait(job)


def change(unit: str, limits: Sequence[Property]) -> None:
    """Change the limits of a unit. Raises SystemdError."""
    with _systemd(f"limit {unit}") as systemd:
        systemd.set_properties(unit, limits)


def stop(unit: str) -> None:
    """Stop a slice and all in it, and let systemd forget it. Idempotent. Raises SystemdError."""
    with _systemd(f"stop {unit}") as systemd:
        try:
            systemd.wait(systemd.call("StopUnit", "ss", (unit, "replace"))[0])
            systemd.call("ResetFailedUnit", "s", (unit,))
        except DBusErrorResponse as error:
            if error.name != NO_SUCH_UNIT:
                raise


@contextmanager
def _systemd(what: str) -> Iterator[_Systemd]:
    """A connection for one function. Every error becomes a SystemdError with `what` in its message."""
    try:
        with _Systemd(time.monotonic() + DEADLINE_S) as systemd:
            systemd.subscribe()
            yield systemd
    except DBusErrorResponse as error:
        raise SystemdError(f"cannot {what}: systemd: {' '.join(map(str, error.data)) or error.name}") from error
    except TimeoutError as error:
        raise SystemdError(f"cannot {what}: no answer from systemd within {DEADLINE_S:g} s") from error
    except SystemdError as error:
        raise SystemdError(f"cannot {what}: {error}") from error
    except struct.error as error:
        raise SystemdError(f"cannot {what}: a limit is beyond 64 bits: {error}") from error
    except (OSError, EOFError, ValueError, RuntimeError) as error:
        why = "check dbus and systemd; without them set cgroupDriver to cgroupfs"
        raise SystemdError(f"cannot {what}: the system bus: {error or type(error).__name__}; {why}") from error


class _Systemd(DBusConnection):  # type: ignore[misc]  # jeepney has no types
    """A connection whose every wait ends at one deadline, that of its greeting among them."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._owner: str | None = None
        """The sender of systemd's last answer."""
        socket = prep_socket(get_bus("SYSTEM"), timeout=DEADLINE_S)
        try:
            socket.settimeout(DEADLINE_S)
            super().__init__(socket)
        except BaseException:
            socket.close()
            raise
        self._ended = self.filter(_JOBS, bufsize=_MAX_JOBS).queue

    def receive(self, *, timeout: float | None = None) -> Any:  # noqa: ARG002 - jeepney passes it for each call
        return super().receive(timeout=max(0.0, self._deadline - time.monotonic()))

    def subscribe(self) -> None:
        """Receive the ends of jobs. systemd sends them only to subscribers."""
        unwrap_msg(self.send_and_get_reply(message_bus.AddMatch(_JOBS)))
        self.call("Subscribe", None, ())

    def call(self, member: str, signature: str | None, body: tuple[Any, ...]) -> tuple[Any, ...]:
        """Call systemd's manager. Raises DBusErrorResponse, OSError."""
        message = new_method_call(DBusAddress(PATH, NAME, MANAGER), member, signature, body)
        reply = self.send_and_get_reply(message)
        self._owner = reply.header.fields.get(HeaderFields.sender)
        answer: tuple[Any, ...] = unwrap_msg(reply)
        return answer

    def set_properties(self, unit: str, properties: Sequence[Property]) -> None:
        """Set properties of a unit until the next boot."""
        self.call("SetUnitProperties", "sba(sv)", (unit, True, list(properties)))

    def start_new(self, unit: str, properties: Sequence[Property]) -> str:
        """Start a transient unit. Return its job; empty when the unit is there already."""
        try:
            answer = self.call("StartTransientUnit", "ssa(sv)a(sa(sv))", (unit, "replace", list(properties), []))
        except DBusErrorResponse as error:
            if error.name != UNIT_EXISTS:
                raise
            return ""
        return str(answer[0])

    def wait(self, job: str) -> None:
        """Wait for the end of a job. Raises SystemdError when it did not do its work, TimeoutError."""
        path = sender = result = ""
        while (path, sender) != (job, self._owner):  # any process on the bus may send us a signal
            signal = self.recv_until_filtered(self._ended)
            (_, path, _, result), sender = signal.body, signal.header.fields.get(HeaderFields.sender)
        if result != "done":
            raise SystemdError(f"its job ended as {result!r}; see journalctl")

"""Carries out the decisions of `policy`: watches the files, reads them, restarts actors, saves and reports.

Called from the daemon's loop. Processes of their own look at the files and read them. Nothing here blocks except small
writes below the root directory.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from proto.agent.settings import Settings
from proto.common import logs, rfc3339
from supervisor.config.reload import policy, readers, store
from supervisor.config.reload.candidate import Candidate, Entry, Resolved, as_started
from supervisor.config.reload.reader import DEADLINE_S, Look, Reader
from supervisor.config.reload.resolver import Resolver
from supervisor.config.reload.start import Start
from supervisor.config.reload.watch import RESCAN_S, Watch
from supervisor.host import settings_file
from supervisor.supervision.process_tree import ProcessTree
from supervisor.supervision.transitions import State

log = logging.getLogger(__name__)

SHOWN_CHANGES = 5
"""So many changes of a configuration are in the log and the event; all are in the history."""


class Agent(Protocol):
    """The part of the daemon that the controller uses."""

    settings: Settings
    tree: ProcessTree

    def watch(self, fd: int) -> None:
        """Call `on_loop` for input on this descriptor."""

    def unwatch(self, fd: int) -> None:
        """Undo `watch`."""

    def ping(self, actors: Iterable[str]) -> None:
        """Send a heartbeat to these actors."""

    def put_in_force(self, settings: Settings, actors: Iterable[str], end_within_s: float | None = None) -> None:
        """Use these settings and restart these actors."""

    def note(self, level: str, reason: str, actor: str, text: str) -> None:
        """Log and publish."""


class ReloadController:
    """One supervisor's; call `begin` once, before the daemon's loop."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._resolver: Resolver | None = None
        self._look: Look | None = None
        self._hangs = False
        """The files' file system did not answer in time, which is in the log."""
        self._unread = False
        """The files were not read in time. They are read again once a look has an answer."""
        self._broken = False
        self._last_report = ""
        self._daemon: Agent
        self._machine: policy.Machine
        self._watch: Watch

    def begin(self, daemon: Agent) -> None:
        """Start for a daemon that has its processes' state, but has started none yet."""
        start, now = self._start, time.monotonic()
        self._daemon = daemon
        self._machine = policy.Machine(
            tuple(daemon.tree.children), start.candidate, start.good, start.bad, refused=start.refused
        )
        self._watch = Watch(start.config, start.config_dir, start.seen, now)
        if self._watch.fileno() >= 0:
            daemon.watch(self._watch.fileno())
        for entry in start.entries:
            self._report("error", entry)
        self._carry_out(self._machine.begin(now, self._healths()))

    def on_loop(self, ready: Mapping[Any, int]) -> None:
        """Run in every iteration of the loop with the poller's result. An error ends reloading, not the agent."""
        if self._broken:
            return
        try:
            self._on_input(ready, time.monotonic())
            if not self._daemon.tree.stopping:
                self._tick(time.monotonic())
        except Exception:
            log.exception("cannot follow the configuration files any more: unexpected error")
            self._broken = True
            if self._watch.fileno() >= 0:
                self._daemon.unwatch(self._watch.fileno())
            for reader in self._readers():
                self._daemon.unwatch(reader.pidfd)

    def _on_input(self, ready: Mapping[Any, int], now: float) -> None:
        if self._watch.fileno() in ready:
            self._watch.read(now)
        # Before the look: its end may start a resolver, which gets the number of a descriptor that was ready.
        if self._resolver is not None and self._resolver.pidfd in ready:
            resolver, self._resolver = self._resolver, None
            self._daemon.unwatch(resolver.pidfd)
            if self._daemon.tree.stopping:  # a trial that begins now would not be ended
                resolver.close()
            else:
                self._unread = resolver.overdue
                self._take(resolver.result(), now)
        if self._look is not None and self._look.pidfd in ready:
            look, self._look = self._look, None
            self._daemon.unwatch(look.pidfd)
            if self._daemon.tree.stopping:
                look.close()
            else:
                self._take_look(look, now)

    def deadline(self, now: float) -> float | None:
        """The latest monotonic time for the next call of `on_loop`; None for no limit."""
        if self._broken or self._daemon.tree.stopping:
            return None
        due = [reader.deadline for reader in self._readers()]
        if self._look is None:
            due.append(self._watch.due())
        trial = self._machine.next_wakeup(now)
        return min(due) if trial is None else min(*due, trial)

    def _readers(self) -> list[Reader]:
        return [reader for reader in (self._look, self._resolver) if reader is not None]

    def _tick(self, now: float) -> None:
        if self._look is None and now >= self._watch.due():
            self._start_look(now)
        for reader in self._readers():
            if now >= reader.deadline:
                self._end_late(reader, now)
        if self._machine.trial is not None:
            self._carry_out(self._machine.tick(now, self._healths()))

    def close(self) -> None:
        """Save and close at an orderly end. A trial that it interrupts does not count against the configuration."""
        self._save(trial="")
        for reader in self._readers():
            reader.kill()
            reader.close()
        self._watch.close()

    def present(self) -> Start:
        """The start of a next controller that goes on with the present configuration."""
        machine = self._machine
        return msgspec.structs.replace(
            self._start,
            candidate=machine.in_force,
            good=machine.good,
            bad=machine.bad,
            refused=machine.refused,
            entries=(),
        )

    def describe(self) -> dict[str, Any]:
        """For `supervisor describe supervisor`."""
        machine = self._machine
        verdict = "on trial" if machine.trial is not None else "good"
        return {"in_force": verdict, "files_refused": bool(machine.refused), "has_last_known_good": bool(machine.good)}

    def _healths(self) -> dict[str, policy.Health]:
        return {
            child.name: policy.Health(
                child.incarnation,
                child.deaths,
                child.state is State.READY,
                child.ponged,
                child.last_death,
                child.held,
            )
            for child in self._daemon.tree.children.values()
        }

    def _start_look(self, now: float) -> None:
        try:
            self._look = Look(self._watch.request(now), now)
        except OSError as error:
            log.error("cannot start the process that looks at the configuration files: %s; it is tried again", error)
            return
        self._daemon.watch(self._look.pidfd)

    def _end_late(self, reader: Reader, now: float) -> None:
        """Kill a process that is over its time, each second until it ends."""
        if not self._hangs:  # said here: in a file system that hangs, a process may outlive SIGKILL
            self._hangs = True
            log.warning(
                "the file system of the configuration files gives no answer within %g s: check it; changes wait for it",
                DEADLINE_S,
            )
        reader.kill()
        reader.deadline = now + 1.0  # its end comes by the pidfd

    def _take_look(self, look: Look, now: float) -> None:
        found = look.found()
        if found is None:
            if not look.overdue:
                log.error("the process that looks at the configuration files failed; it is tried every %g s", RESCAN_S)
            return
        if self._hangs:
            self._hangs = False
            log.log(logs.NOTICE, "the file system of the configuration files answers again")
        if self._watch.take(found, now) or self._unread:
            self._unread = False
            self._carry_out(self._machine.files_changed())

    def _take(self, result: Resolved, now: float) -> None:
        for note in result.notes:
            log.warning("%s", note)
        result = as_started(result, self._machine.in_force.settings)
        self._carry_out(self._machine.resolved(result, now, self._healths()))

    def _carry_out(self, instructions: Iterable[policy.Instruction]) -> None:
        for instruction in tuple(instructions):
            match instruction:
                case policy.Resolve():
                    self._resolve()
                case policy.PutInForce(candidate, actors, end_within_s):
                    self._put_in_force(candidate, actors, end_within_s)
                case policy.AskHeartbeat(actors):
                    self._daemon.ping(actors)
                case policy.Save():
                    self._save()
                case policy.Report(level, entry):
                    self._report(level, entry)

    def _resolve(self) -> None:
        now = time.monotonic()
        try:
            self._resolver = Resolver(self._start.arguments, now)
        except OSError as error:
            text = f"cannot start the process that reads the files: {error}; change them again to retry"
            self._take(Resolved(digest=text, error=text), now)
            return
        self._daemon.watch(self._resolver.pidfd)

    def _put_in_force(self, candidate: Candidate, actors: tuple[str, ...], end_within_s: float | None) -> None:
        settings = _settings(self._daemon.settings, candidate)
        self._daemon.put_in_force(settings, actors, end_within_s)
        try:
            settings_file.write(settings)
            settings_file.write_configuration(settings.run_dir, bytes(candidate.configuration))
        except OSError as error:
            log.error("cannot save the configuration in force in %s: %s", settings.run_dir, error.strerror)

    def _save(self, trial: str | None = None) -> None:
        machine = self._machine
        if trial is None:
            trial = machine.in_force.digest if machine.trial is not None else ""
        saved = store.Saved(flags=self._start.flags, good=machine.good, trial=trial, bad=machine.bad)
        try:
            store.save(self._daemon.settings.root_dir, saved)
        except OSError as error:
            log.error("cannot save the last known good configuration: %s", error)

    @property
    def problem(self) -> str:
        """The reason why the configuration in the files is not in force; empty when it is."""
        return self._last_report if self._machine.refused else ""

    def _report(self, level: str, entry: Entry) -> None:
        self._last_report = f"{entry.verdict}: {entry.message}"
        more = len(entry.changes) - SHOWN_CHANGES
        what = "; ".join((*entry.changes[:SHOWN_CHANGES], *([f"{more} more"] if more > 0 else [])))
        text = f"configuration {entry.verdict}: {entry.message}" + (f" ({what})" if what else "")
        self._daemon.note(level, "Configuration", "supervisor", text)
        entry = msgspec.structs.replace(entry, time=rfc3339.now())
        try:
            store.append(self._daemon.settings.root_dir, entry)
        except OSError as error:
            log.error("cannot save the configuration's history: %s", error)


def _settings(present: Settings, candidate: Candidate) -> Settings:
    """The candidate's settings, with the present values of fixed ones."""
    fixed = {name: getattr(present, name) for name in readers.FIXED}
    return msgspec.structs.replace(candidate.settings, **fixed)

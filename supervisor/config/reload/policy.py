"""Decides whether a changed configuration is refused, tried, confirmed or rolled back. Pure: values and time in.

A valid configuration is put in force at once, on trial. Every actor restarted with it must become ready, stay alive
and answer a heartbeat. Then it is the last known good one. Otherwise the last known good one is put back. A change is
applied as a whole or not at all. `controller` does the I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from supervisor.config.reload import readers
from supervisor.config.reload.candidate import Candidate, Entry, Resolved, changes, needs_restart

READY_WITHIN_S = 10.0
"""From putting a configuration in force to the last actor's Ready."""
BOOT_WITHIN_S = 60.0
"""The same for all actors of an agent that starts: imports and a cold disk are in it."""
STABLE_S = 8.0
"""From the last Ready to the heartbeats. An actor's death meanwhile fails the trial."""
ANSWER_S = 2.0
"""From a heartbeat to its answer."""
END_WITHIN_S = 1.0
"""From the roll-back to the SIGKILL of a failed actor."""
KEPT_BAD = 20


@dataclass(frozen=True, slots=True)
class Health:
    """One actor's state in the supervisor. Times are monotonic."""

    incarnation: int
    deaths: int
    """Unrequested ends since the supervisor started."""
    ready: bool
    ponged: float | None = None
    """The present incarnation's last answer to a heartbeat."""
    last_death: str = ""
    held: bool = False
    """An operator has stopped it, so it proves nothing."""


@dataclass(frozen=True, slots=True)
class Resolve:
    """Read the files, then say `resolved`."""


@dataclass(frozen=True, slots=True)
class PutInForce:
    """Use this configuration from now on and start these actors again. `end_within_s`: kill them after that."""

    candidate: Candidate
    actors: tuple[str, ...]
    end_within_s: float | None = None


@dataclass(frozen=True, slots=True)
class AskHeartbeat:
    """Ping these actors."""

    actors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Save:
    """Save `good`, `bad` and the trial before the instructions that follow."""


@dataclass(frozen=True, slots=True)
class Report:
    """Write to the log, the event stream and the history."""

    level: str
    entry: Entry


Instruction = Resolve | PutInForce | AskHeartbeat | Save | Report
Healths = Mapping[str, Health]


@dataclass(slots=True)
class Trial:
    """The trial of the configuration in force. Times are monotonic."""

    ready_by: float
    deaths: dict[str, int]
    """Deaths of each restarted actor before the trial."""
    above: dict[str, int]
    """The last incarnation before the trial, by actor."""
    changes: tuple[str, ...] = ()
    asked_at: float | None = None
    ask_at: float | None = None
    """When heartbeats are due; set once every actor is ready."""


@dataclass(slots=True)
class Machine:
    """The trial's state machine. `in_force` is the configuration of new processes, `good` the last known good one."""

    actors: tuple[str, ...]
    in_force: Candidate
    good: Candidate | None = None
    bad: tuple[str, ...] = ()
    """Digests of failed configurations; not tried again until the files change."""
    refused: str = ""
    """The digest of the files when their configuration was refused and reported."""
    trial: Trial | None = None
    resolving: bool = False
    _again: bool = False
    _out: list[Instruction] = field(default_factory=list)

    def begin(self, now: float, healths: Healths) -> list[Instruction]:
        """Start with `in_force`, on trial unless it is the last known good one."""
        self._out = []
        if self.good is None or self.good.digest != self.in_force.digest:
            found = changes(self.good, self.in_force) if self.good is not None else ()
            self.trial = _trial(self.actors, healths, now + BOOT_WITHIN_S, found)
        self._out.append(Save())
        return self._out

    def files_changed(self) -> list[Instruction]:
        """Read the files after a change."""
        if self.resolving:
            self._again = True
            return []
        self.resolving = True
        return [Resolve()]

    def resolved(self, result: Resolved, now: float, healths: Healths) -> list[Instruction]:
        """Decide about a configuration that was read, or an error."""
        self._out, self.resolving = [], False
        if self._again:
            self._again = False
            return self.files_changed()  # newer than what was read
        if result.candidate is None:
            self._refuse(result.digest, "error", Entry(verdict="invalid", message=result.error))
        else:
            self._consider(result.candidate, now, healths)
        return self._out

    def _refuse(self, digest: str, level: str, entry: Entry) -> None:
        if digest != self.refused:
            self.refused = digest
            self._out.append(Report(level, entry))

    def _consider(self, candidate: Candidate, now: float, healths: Healths) -> None:
        if candidate.digest == self.in_force.digest:
            if self.refused:
                self._report("info", "no effect", "the files hold the configuration in force again")
            self.refused = ""
            return
        found = changes(self.in_force, candidate)
        if candidate.digest in self.bad:
            text = "has failed before; change the files to retry"
            self._refuse(candidate.digest, "warning", Entry(verdict="refused", changes=found, message=text))
            return
        fixed = needs_restart(self.in_force, candidate)
        if fixed:
            text = f"nothing of this change is applied before the agent is started again, because of {', '.join(fixed)}"
            self._refuse(candidate.digest, "warning", Entry(verdict="needs a restart", changes=found, message=text))
            return
        self.refused = ""
        self._apply(candidate, found, now, healths)

    def _apply(self, candidate: Candidate, found: tuple[str, ...], now: float, healths: Healths) -> None:
        before, trial = self.in_force, self.trial
        fields = readers.changed(before.settings, candidate.settings)
        restarted = readers.concerned(fields, self.actors)
        if trial is not None and restarted and trial.changes:
            self._report("info", "superseded", "the files have changed again before the trial was over", trial.changes)
        self.in_force = candidate
        reverted = self.good is not None and self.good.digest == candidate.digest
        if reverted:
            self.trial = None
        elif restarted:
            self.trial = _trial(restarted, healths, now + READY_WITHIN_S, found)
            if trial is not None:  # the actors of the superseded trial must still prove healthy
                self.trial.deaths = trial.deaths | self.trial.deaths
                self.trial.above = trial.above | self.trial.above
        self._settle_or_try(candidate, fields, restarted, found)

    def _settle_or_try(
        self, candidate: Candidate, fields: tuple[str, ...], restarted: tuple[str, ...], found: tuple[str, ...]
    ) -> None:
        if self.trial is None:
            self.good = candidate
        self._out += [Save(), PutInForce(candidate, restarted)]
        if self.trial is not None and restarted:
            text = f"in force, on trial with {', '.join(restarted)}"
            self._report("info", "on trial", self._with_missing(text), found, restarted)
        elif fields:
            self._report("info", "good", self._with_missing("in force"), found, restarted)
        else:
            self._report("info", "no effect", "no actor reads the changed settings", found)

    def tick(self, now: float, healths: Healths) -> list[Instruction]:
        """Check the trial. Call it when time or an actor's health has changed."""
        self._out = []
        if self.trial is not None:
            self._look_at(self.trial, now, healths)
        return self._out

    def _look_at(self, trial: Trial, now: float, healths: Healths) -> None:
        died = next((name for name, count in trial.deaths.items() if healths[name].deaths > count), "")
        late = [name for name, above in trial.above.items() if not _serves(healths[name], above)]
        if died:
            self._fail(f"{died}: {healths[died].last_death}", healths)
        elif late:
            if now >= trial.ready_by:
                self._fail(f"{', '.join(late)}: not in service in time", healths)
        elif trial.ask_at is None:
            trial.ask_at = now + STABLE_S
        elif trial.asked_at is None:
            if now >= trial.ask_at:
                trial.asked_at = now
                self._out.append(AskHeartbeat(tuple(trial.above)))
        elif now >= trial.asked_at + ANSWER_S:
            checked = [name for name in trial.above if not healths[name].held]
            silent = [name for name in checked if (healths[name].ponged or 0.0) < trial.asked_at]
            if silent:
                self._fail(f"{', '.join(silent)}: does not answer its heartbeat", healths)
            else:
                self._succeed(trial)

    def _succeed(self, trial: Trial) -> None:
        self.trial, self.good = None, self.in_force
        self.bad = tuple(digest for digest in self.bad if digest != self.in_force.digest)
        self._out.append(Save())
        text = self._with_missing("is the last known good configuration now")
        self._report("info", "good", text, trial.changes)

    def _with_missing(self, text: str) -> str:
        return "; ".join((text, *self.in_force.missing))

    def _fail(self, why: str, healths: Healths) -> None:
        trial, failed, good = self.trial, self.in_force, self.good
        assert trial is not None
        if good is None:
            # There is nothing to go back to: the trial goes on without a deadline, and the failure is reported once.
            again = trial.ready_by == float("inf")
            self.trial = _trial(self.actors, healths, float("inf"), trial.changes)
            self.trial.above = dict.fromkeys(self.actors, 0)
            if not again:
                text = f"{why}; there is no last known good configuration to go back to"
                self._report("error", "failed", text, trial.changes)
            return
        self.trial = None
        self.bad = (*self.bad, failed.digest)[-KEPT_BAD:]
        self.refused = failed.digest
        fixed = needs_restart(failed, good)
        if fixed:
            text = f"{why}; start the agent again to have the last known good configuration: {', '.join(fixed)}"
            self._out.append(Save())
            self._report("error", "failed", text, trial.changes)
            return
        restarted = readers.concerned(readers.changed(failed.settings, good.settings), self.actors)
        self.in_force = good
        self._out += [Save(), PutInForce(good, restarted, END_WITHIN_S)]
        text = f"{why}; the last known good configuration is in force again"
        self._report("error", "rolled back", text, trial.changes, restarted)

    def next_wakeup(self, now: float) -> float | None:
        """The monotonic time of the next `tick`. After a death or a Ready the caller ticks at once."""
        trial = self.trial
        if trial is None:
            return None
        if trial.asked_at is not None:
            return trial.asked_at + ANSWER_S
        at = trial.ask_at if trial.ask_at is not None else trial.ready_by
        return at if at < float("inf") else now + 60.0

    def _report(
        self, level: str, verdict: str, message: str, found: tuple[str, ...] = (), actors: tuple[str, ...] = ()
    ) -> None:
        self._out.append(Report(level, Entry(verdict=verdict, changes=found, actors=actors, message=message)))


def _trial(names: Iterable[str], healths: Healths, ready_by: float, found: tuple[str, ...]) -> Trial:
    names = tuple(names)
    return Trial(
        ready_by,
        {name: healths[name].deaths for name in names},
        {name: healths[name].incarnation for name in names},
        found,
    )


def _serves(health: Health, above: int) -> bool:
    return health.held or (health.ready and health.incarnation > above)

"""Carries out an upgrade: executes the next self, restarts actors as `rolling` decides, goes back after a failure."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import msgspec

from proto.agent.settings import Settings
from proto.agent.supervisor import GetUpgrade, StartUpgrade, UpgradeState
from proto.wire.errors import Refused
from proto.wire.message import Done, Message
from supervisor.core.upgrade import exchange, handover, rolling, trust
from supervisor.core.upgrade.handover import Handover, Journey
from supervisor.core.upgrade.release import Release, own
from supervisor.core.upgrade.rolling import Health, Rolling
from supervisor.supervision.transitions import State

if TYPE_CHECKING:
    from supervisor.core.daemon import Daemon

log = logging.getLogger(__name__)

TICK_S = 0.1
LOAD_S = 120.0
LEAVE_S = 0.3
"""From the answer to StartUpgrade to exec, so that the answer is on its way."""


class UpgradeController:
    """One supervisor's. `prepare` returns the call that executes a release, see `exchange.leave`.

    It gets the release, the handover, the settings, and the release to return to.
    """

    def __init__(
        self,
        prepare: Callable[[Release, Handover, Settings, Release], Callable[[], NoReturn]],
        taken: Handover | None = None,
    ) -> None:
        self._prepare = prepare
        self._daemon: Daemon
        self._journey = taken.journey if taken is not None else None
        self._rolling: Rolling | None = None
        self._leave_at: float | None = None
        self._next: Journey | None = None
        self._verdict = ""
        self._next_tick = 0.0
        self._began = time.monotonic()

    def begin(self, daemon: Daemon) -> None:
        """Start for a daemon that has taken over its children."""
        self._daemon = daemon
        journey = self._journey
        if journey is None:
            return
        problem = os.environ.pop(handover.PROBLEM, "")
        if problem:
            self._end(_did_not_start(journey, problem))
            return
        actors = journey.moved if journey.back else tuple(daemon.tree.children)
        self._rolling = Rolling(actors, back=journey.back)

    def serve(self, request: Message) -> Message | Exception:
        """The answer to StartUpgrade or GetUpgrade."""
        if isinstance(request, GetUpgrade):
            return self.state()
        assert isinstance(request, StartUpgrade)
        if self._rolling is not None or self._leave_at is not None:
            return Refused("UnderWay", "an upgrade is under way; see `supervisor upgrade --status`", retry=False)
        if not exchange.is_quiet(self._daemon):
            return Refused("NotReady", "cannot upgrade while an actor is not ready; see `supervisor ps`")
        to = Release(python=request.python, path=request.path, place=request.place)
        if "\0" in to.python or not os.access(to.python, os.X_OK):
            return Refused("NotFound", f"cannot execute {to.python}", retry=False)
        if found := trust.objection(to):
            return Refused("Exposed", f"cannot execute {to.place or to.python}: {found}", retry=False)
        self._next = Journey(origin=own(), to=to)
        self._leave_at = time.monotonic() + LEAVE_S
        self._verdict = ""
        return Done()

    def state(self) -> UpgradeState:
        """The upgrade's state."""
        rolled, journey = self._rolling, self._next or self._journey
        trial = rolled.trial.name if rolled is not None and rolled.trial is not None else ""
        return UpgradeState(
            under_way=rolled is not None or self._leave_at is not None,
            place=own().place,
            back=journey.back if journey is not None else False,
            moved=tuple(name for name in (rolled.moved if rolled is not None else ()) if name != trial),
            trial=trial,
            waiting=tuple(rolled.waiting) if rolled is not None else (),
            verdict=self._verdict,
        )

    @property
    def _back(self) -> bool:
        return self._journey is not None and self._journey.back

    def deadline(self) -> float | None:
        """The monotonic time of the next `on_loop`; None for none."""
        if self._leave_at is not None:
            return self._leave_at
        return self._next_tick if self._rolling is not None else None

    def on_loop(self) -> None:
        """Take the next step, when it is due."""
        now = time.monotonic()
        if self._leave_at is not None and now >= self._leave_at:
            self._leave_at = None
            assert self._next is not None
            self._execute(self._next.to, self._next, self._next.origin)
        if self._rolling is None or now < self._next_tick:
            return
        self._next_tick = now + TICK_S
        if not self._daemon.forkserver.loaded:  # a restart would wait for its imports
            if now > self._began + LOAD_S and not self._rolling.moved and not self._back:
                self._go_back(f"the forkserver has not loaded the release within {LOAD_S:g} s")
            return
        self._carry_out(self._rolling.tick(now, self._healths()))

    def _carry_out(self, instruction: rolling.Instruction | None) -> None:
        match instruction:
            case rolling.Restart(name):
                self._daemon.restart(name)
            case rolling.Ping(name):
                self._daemon.ping((name,))
            case rolling.GoBack(name, problem):
                self._go_back(f"{name}: {problem}")
            case rolling.Finished(problems):
                self._finished(problems)

    def _go_back(self, problem: str) -> None:
        journey, rolled = self._journey, self._rolling
        assert journey is not None
        assert rolled is not None
        self._daemon.note("error", "UpgradeFailed", "supervisor", f"{problem}; going back to {journey.origin.place}")
        back = Journey(origin=journey.origin, to=journey.to, back=True, problem=problem, moved=tuple(rolled.moved))
        self._execute(journey.origin, back, own())

    def _finished(self, problems: tuple[str, ...]) -> None:
        journey = self._journey
        assert journey is not None
        self._rolling = None
        if journey.back:
            more = f"; after that: {', '.join(problems)}" if problems else ""
            self._end(f"{journey.problem}; every actor runs the former release again{more}")
            return
        self._verdict = "done"
        self._daemon.note("info", "Upgraded", "supervisor", f"every actor runs {journey.to.place}")

    def _end(self, problem: str) -> None:
        self._rolling = None
        self._verdict = f"failed: {problem}"
        self._daemon.note("error", "UpgradeFailed", "supervisor", problem)

    def _execute(self, release: Release, journey: Journey, back: Release) -> None:
        log.warning("executing %s of %s with this pid; actors go on", release.python, release.place or "its own place")

        def prepare(given: Handover, settings: Settings) -> Callable[[], NoReturn]:
            return self._prepare(release, msgspec.structs.replace(given, journey=journey), settings, back)

        try:
            exchange.leave(self._daemon, prepare)
        except Exception as error:
            log.exception("cannot prepare the next self; the present one goes on")
            self._end(_did_not_start(journey, f"cannot prepare it: {error}"))

    def _healths(self) -> dict[str, Health]:
        return {
            child.name: Health(
                child.incarnation, child.deaths, child.state is State.READY, child.ponged, child.last_death
            )
            for child in self._daemon.tree.children.values()
            if not child.held
        }


def _did_not_start(journey: Journey, problem: str) -> str:
    """The verdict when the next self did not start, and the present one goes on."""
    if not journey.back:  # nothing was restarted
        return f"the next release did not start: {problem}"
    return (
        f"{journey.problem}; cannot go back to {journey.origin.place}: {problem}; the supervisor and "
        f"{', '.join(journey.moved)} run {journey.to.place}"
    )

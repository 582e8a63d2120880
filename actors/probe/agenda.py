"""The actor's own list of moments: hundreds of probes and their deadlines behind one timer of the bus."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable

from actors._base.messaging.mailbox import MailboxActor, TimerHandle

_TOGETHER_S = 0.002
"""What is due this soon runs now: one wake-up for probes that began together."""


class Moment:
    """Something to do at one monotonic time."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Do not do it."""
        self.action = None


class Agenda:
    """For the actor's thread only. Adding a moment later than the next one, or cancelling any, wakes nobody."""

    def __init__(self, actor: MailboxActor) -> None:
        self._actor = actor
        self._heap: list[tuple[float, int, Moment]] = []
        self._order = itertools.count()
        self._timer: TimerHandle | None = None
        self._armed_for = float("inf")
        self.latest_s = 0.0
        """The longest that anything has come after its moment."""

    def at(self, due: float, action: Callable[[], None]) -> Moment:
        """Run `action` in the actor's thread at `due`, monotonic seconds; soon when that is past."""
        moment = Moment(action)
        heapq.heappush(self._heap, (due, next(self._order), moment))
        self._arm()
        return moment

    def _arm(self) -> None:
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
        if not self._heap or self._heap[0][0] >= self._armed_for:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = self._heap[0][0]
        self._timer = self._actor.after(self._armed_for - time.monotonic(), self._run)

    def _run(self) -> None:
        now = time.monotonic()
        # What the actions add waits for its own turn, so that a probe whose period is over does not hold up the loop.
        due: list[tuple[float, int, Moment]] = []
        while self._heap and self._heap[0][0] <= now + _TOGETHER_S:
            due.append(heapq.heappop(self._heap))
        for moment_s, _, moment in due:
            action, moment.action = moment.action, None
            if action is not None:
                self.latest_s = max(self.latest_s, time.monotonic() - moment_s)
                action()
        self._armed_for = float("inf")
        self._arm()

"""Counts the messages that one incarnation sends to another and that arrive there, so that a sender notices lost ones.

A tell has no answer. It is lost, for example, when the queue for a peer that hangs is full. The peer's state would then
stay out of date. A lost ask fails at its deadline, which may be an hour away. So both ends count tells, and the
receiver knows its open asks. Some time after a message the sender asks for both (`proto.agent.actor.CheckReceived`).

Only messages to an incarnation in service are checked. A new one gets all state, and asks to an ended one fail at once.
"""

from __future__ import annotations

import threading

from actors._base.messaging.timers import Timer
from proto.wire.envelope import Header, Kind

CHECK_S = 2.0
"""From a message to the check, and from one check to the next while there are further ones."""
CHECK_TIMEOUT_S = 1.5
MAX_SENDERS = 256
"""Senders of which tells are counted. An installation has some 25."""


class Sent:
    """Tells to one peer. Hold `lock` for every call, and while a message is sent: the check must not overtake it."""

    __slots__ = ("_due", "_known", "count", "incarnation", "lock", "plan", "timer", "unanswered")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.incarnation = 0
        """The peer's; 0: none in service."""
        self.count = 0
        """Tells to this incarnation."""
        self.unanswered = 0
        """Checks in a row without an answer."""
        self.plan = 0
        """The number of the planned check. The timer of an earlier one, which may be firing, does nothing."""
        self.timer: Timer | None = None
        """Of the planned check; None while there is none, or one is under way."""
        self._known = 0
        """The count of the last check."""
        self._due = False
        """A check is planned or under way."""

    def add(self, incarnation: int, *, tells: int) -> bool:
        """Note a message to an incarnation: 1 tell, or an ask. Return True when a check has to be planned."""
        if incarnation != self.incarnation:
            self._drop_plan()
            self.incarnation, self.count, self._known, self.unanswered = incarnation, 0, 0, 0
        if not incarnation:
            return False
        self.count += tells
        plan, self._due = not self._due, True
        return plan

    def next_plan(self) -> int:
        """Return the number of a new plan. Its timer is to be set."""
        self.plan += 1
        return self.plan

    def begins(self, plan: int) -> bool:
        """Note that the timer of a plan has fired. False when that is not the present plan."""
        if plan != self.plan:
            return False
        self.timer = None
        return True

    def cancel_check(self) -> None:
        """Cancel the planned check if there is nothing to check: all asks have answers, and no tell was sent."""
        if self.timer is not None and not self.has_unchecked:
            self._drop_plan()
            self.unanswered = 0

    def _drop_plan(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer, self._due = None, False
        self.plan += 1

    @property
    def has_unchecked(self) -> bool:
        """True when tells were sent after those of the last check."""
        return self.count != self._known

    def settle(self, asked_at: int, received: int, *, asks: bool) -> tuple[int, bool]:
        """Compare the count at a check with the peer's. Return the number lost, and True to plan another check.

        Lost tells are not counted from then on. `asks`: there are asks without an answer.
        """
        self.count += received - asked_at
        self._known, self.unanswered = received, 0
        self._due = asks or self.has_unchecked
        return asked_at - received, self._due


class Received:
    """Tells that have arrived, by sender, and asks without an answer yet."""

    def __init__(self) -> None:
        self._tells: dict[str, list[int]] = {}
        """By sender: its incarnation, the tells that have arrived, and those of them that were dropped then."""
        self._asks: set[tuple[str, int, int]] = set()
        """Sender, its incarnation, and the ask's number."""

    def add(self, header: Header, incarnation: int) -> None:
        """Note a message to this incarnation of the receiver. In the I/O thread."""
        if header.kind == Kind.ASK:
            if header.incarnation:  # others than actors do not check
                self._asks.add((header.source, header.incarnation, header.correlation))
        elif header.kind == Kind.TELL and header.correlation == incarnation > 0:
            if self._of(header) is None and (len(self._tells) < MAX_SENDERS or header.source in self._tells):
                self._tells[header.source] = [header.incarnation, 0, 0]
            if (known := self._of(header)) is not None:
                known[1] += 1

    def dropped(self, header: Header, incarnation: int) -> None:
        """Note that a tell was not handled, so that its sender takes it for lost. From any one thread."""
        if header.kind == Kind.TELL and header.correlation == incarnation and (known := self._of(header)) is not None:
            known[2] += 1

    def answered(self, header: Header) -> None:
        """Note that the answer to an ask was sent. From any thread."""
        self._asks.discard((header.source, header.incarnation, header.correlation))

    def tells(self, checker: Header) -> int:
        """The number of tells of the sender of a check that arrived and were not dropped."""
        known = self._of(checker)
        return 0 if known is None else known[1] - known[2]

    def unknown(self, checker: Header, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """Return the numbers of asks that are not open here: they, or their answers, were lost."""
        return tuple(one for one in numbers if (checker.source, checker.incarnation, one) not in self._asks)

    def _of(self, header: Header) -> list[int] | None:
        known = self._tells.get(header.source)
        return known if known is not None and known[0] == header.incarnation else None

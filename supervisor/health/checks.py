"""Health checks by actor: a pure function of the supervisor's events and the time. `healthz` serves them.

An actor that restarts stays healthy for `GRACE_S`, so that a restart does not show as an outage.
"""

from __future__ import annotations

from collections.abc import Iterable

from proto.agent.supervisor import Exited, Note, PeerStates, Started
from proto.wire.message import Message

GRACE_S = 2.0
"""A restart takes some 50 ms. A longer pause than this is an outage."""
START_S = 30.0
"""The same for the first start, with imports and reading of state."""


class Health:
    """The actors that are not ready, each with the monotonic time since when."""

    def __init__(self, actors: Iterable[str], now: float) -> None:
        self.began = now
        self._out: dict[str, float] = dict.fromkeys(actors, now + START_S - GRACE_S)
        self._actors = tuple(self._out)
        self.never_ready = set(self._actors)
        self.degraded: set[str] = set()
        """Actors past their restart intensity. Without the reason: it may quote an exception, and healthz is public."""

    def on_event(self, event: Message, now: float) -> None:
        """Note one of the supervisor's events."""
        if isinstance(event, Exited) and event.name in self._actors:
            self._out.setdefault(event.name, now)
        if isinstance(event, Note) and event.reason == "Degraded":
            self.degraded.add(event.actor)
        elif isinstance(event, Note) and event.reason == "Recovered":
            self.degraded.discard(event.actor)
        started = [event.name] if isinstance(event, Started) else []
        if isinstance(event, PeerStates):
            started = [peer.name for peer in event.peers if peer.ready]
        for name in started:
            self._out.pop(name, None)
            self.never_ready.discard(name)

    def checks(self, now: float) -> dict[str, str]:
        """Problems by check: `ping`, then each actor. Empty text for a healthy one."""
        return {"ping": ""} | {name: self._problem(name, now) for name in self._actors}

    def _problem(self, name: str, now: float) -> str:
        if name in self.degraded:
            return "degraded"
        since = self._out.get(name)
        if since is None or now - since <= GRACE_S:
            return ""
        return f"not in service for {now - since:.0f} s" if since >= self.began else "not in service yet"

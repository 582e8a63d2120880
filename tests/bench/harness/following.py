"""Follows an agent's event stream or taps in a thread, for what is measured by them."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

from proto.wire.errors import ActorError, ProtocolError
from supervisor.sockets.client import Client
from tests.bench.harness.agent import Agent

LATE_S = 5.0
"""An event that has not come by then is taken as lost."""
SUBSCRIBE_S = 0.5
"""The subscription's way to the publisher."""
Seen = queue.Queue[tuple[float, str]]
"""Monotonic seconds, and what was seen then."""


def follow(agent: Agent, body: Callable[[Client, Seen], None]) -> Seen:
    """Run `body` with a client of its own, and return what it puts.

    The thread ends with the agent: streams have no other end.
    """
    seen: Seen = queue.Queue()

    def run() -> None:
        with Client(Path(agent.client.run_dir)) as client, contextlib.suppress(ActorError, ProtocolError):
            body(client, seen)

    threading.Thread(target=run, daemon=True).start()
    time.sleep(SUBSCRIBE_S)
    return seen


def next_of(seen: Seen, what: str, since: float) -> float | None:
    """When `what` is seen next; None if that is not within LATE_S after `since`."""
    deadline = since + LATE_S
    while (left := deadline - time.monotonic()) > 0:
        with contextlib.suppress(queue.Empty):
            at, found = seen.get(timeout=left)
            if found == what:
                return at
    return None


def drain(seen: Seen) -> None:
    """Forget what was seen."""
    with contextlib.suppress(queue.Empty):
        while True:
            seen.get_nowait()


def quiet(seen: Seen, for_s: float = 0.3) -> None:
    """Return when nothing came for a while, so that the next thing seen belongs to the next kill."""
    deadline = time.monotonic() + LATE_S
    with contextlib.suppress(queue.Empty):
        while time.monotonic() < deadline:
            seen.get(timeout=for_s)


def milliseconds(begin: float, end: float | None) -> float | None:
    """The time between; None without an end."""
    return None if end is None else round(1000 * (end - begin), 3)

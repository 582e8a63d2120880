"""Measures the CPU time of the flight recorder in an actor's process. `tests.bench.recorder` loads it there.

The machine's speed changes from second to second, so the recorder's calls are timed by the clock of their thread. A
look at that clock takes as long as a short call does when the CPU's caches are cold. So half of the calls, by chance,
are timed as they are. In the place of the others a call of nothing is timed, and counts as the clock's own cost.
"""

from __future__ import annotations

import functools
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from actors._base import recording

METHODS = ("message", "peer", "answer", "failure", "runtime", "runtime_failure", "blocking")
"""Methods of a Recorder that others call while the actor serves."""

_inside = threading.local()
_spent_ns: dict[int, int] = {}
"""By thread, which alone writes its value."""
_chance = random.Random()  # not the module's, whose choices the recorder makes repeatable
_installed = False


def install() -> bool:
    """Measure from now on. A second call changes nothing."""
    global _installed  # noqa: PLW0603
    if not _installed:
        for name in METHODS:
            setattr(recording.Recorder, name, timed(getattr(recording.Recorder, name)))
        recording.digest = timed(recording.digest)
        client: Any = sys.modules.get("actors._cri.client")  # not in a process without a runtime
        if client is not None:
            client.recorded = timed(client.recorded)
        _installed = True
    return True


def spent_ns() -> int:
    """The CPU time of all threads so far, as estimated from the timed half of the calls."""
    return 2 * sum(_spent_ns.copy().values())


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, timed while the recorder is on. A call in another is part of that."""

    @functools.wraps(function)
    def measured(*args: Any, **kwargs: Any) -> Any:
        if recording.current is None or getattr(_inside, "now", False):
            return function(*args, **kwargs)
        _inside.now = True
        try:
            if _chance.random() < 0.5:
                _add(-_time_of(_nothing, args, kwargs)[0])
                return function(*args, **kwargs)
            spent, result = _time_of(function, args, kwargs)
            _add(spent)
            return result
        finally:
            _inside.now = False

    return measured


def _time_of(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[int, Any]:
    began = time.thread_time_ns()
    result = function(*args, **kwargs)
    return time.thread_time_ns() - began, result


def _add(spent_ns: int) -> None:
    thread = threading.get_ident()
    _spent_ns[thread] = _spent_ns.get(thread, 0) + spent_ns


def _nothing(*_: Any, **__: Any) -> None:
    return None

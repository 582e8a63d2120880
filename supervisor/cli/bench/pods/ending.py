"""Ends work in order: signals set a flag, which every wait looks at, and what was made is removed before the end."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import FrameType, TracebackType

from supervisor.cli.errors import CommandError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL_S = 0.05


class Ending:
    """Within the block, a signal only asks for the end. After it, the signals mean what they meant before."""

    def __init__(self) -> None:
        self.wanted = False

    def __enter__(self) -> Ending:
        self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.wanted = True

    def check(self) -> None:
        """Raise KeyboardInterrupt after a signal."""
        if self.wanted:
            raise KeyboardInterrupt

    def until(
        self,
        condition: Callable[[], bool],
        timeout_s: float,
        problem: Callable[[], str],
        wait: Callable[[], object] = lambda: time.sleep(POLL_S),
    ) -> None:
        """Wait for a condition; `wait` is the pause between two looks, at most a second.

        Raises CommandError with `problem()` after the deadline, and KeyboardInterrupt after a signal.
        """
        deadline = time.monotonic() + timeout_s
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                raise CommandError(f"{problem()} within {timeout_s:g} s")
            wait()
        self.check()

"""Ends work in order: signals set a flag, which every wait looks at, and what was made is removed before the end."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType, TracebackType
from typing import Any

from supervisor.cli.errors import CommandError

Handler = Callable[[int, FrameType | None], Any]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL_S = 0.05


class Ending:
    """Within the block, a signal only asks for the end. After it, the signals mean what they meant before."""

    def __init__(self) -> None:
        self.wanted = False

    def __enter__(self) -> Ending:
        self._before = _handle(SIGNALS, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _restore(self._before)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.wanted = True

    def check(self) -> None:
        """Raise KeyboardInterrupt after a signal."""
        if self.wanted:
            raise KeyboardInterrupt

    def pause(self, seconds: float) -> None:
        """Wait; raises KeyboardInterrupt after a signal."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.check()
            time.sleep(POLL_S)

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


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    """Within the block SIGTERM and SIGHUP raise KeyboardInterrupt, as SIGINT does, so that blocks end in order."""
    before = _handle((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler)
    try:
        yield
    finally:
        _restore(before)


def _handle(numbers: Iterable[signal.Signals], handler: Handler) -> dict[signal.Signals, Any]:
    """Set a handler; the former ones. A signal that is ignored, as by nohup, stays so."""
    heard = [number for number in numbers if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    return {number: signal.signal(number, handler) for number in heard}


def _restore(before: Mapping[signal.Signals, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)

"""Detects forbidden actions of a `pure` test: a started process, an opened socket, a sleep.

While a pure test runs, it listens to the main thread's audit events
(https://docs.python.org/3/library/audit_events.html). It also wraps time.sleep, which has an event only from Python
3.13 on. Actions inside C libraries are not seen.
"""

from __future__ import annotations

import sys
import threading
import time

_IMPURE = frozenset(
    (
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.system",
        "socket.__new__",
        "subprocess.Popen",
    )
)


class Watch:
    """Collects the events of the present test. One for the process: an audit hook stays for good."""

    def __init__(self) -> None:
        self._seen: list[str] = []
        self._is_on = False
        self._sleep = time.sleep
        sys.addaudithook(self.hear)

    def start(self) -> None:
        """Record from here on."""
        self._seen.clear()
        self._is_on = True
        time.sleep = self._slept

    def stop(self) -> list[str]:
        """Up to here; what was seen, as "EVENT DETAIL"."""
        self._is_on = False
        time.sleep = self._sleep
        return list(self._seen)

    def hear(self, event: str, arguments: tuple[object, ...]) -> None:
        """The audit hook."""
        if self._is_on and event in _IMPURE and threading.current_thread() is threading.main_thread():
            self._seen.append(f"{event} {arguments[0] if arguments else ''}".strip()[:200])

    def _slept(self, seconds: float) -> None:
        if seconds and threading.current_thread() is threading.main_thread():
            self._seen.append(f"time.sleep {seconds}")
        self._sleep(seconds)

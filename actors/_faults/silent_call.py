"""A CRI call in the shape of gRPC's futures to which no answer comes until its deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from actors._cri.errors import CriError


class SilentCall:
    """Fails with DeadlineExceeded after `deadline` seconds, or with Canceled. From any thread."""

    def __init__(self, rpc: str, deadline: float) -> None:
        self._rpc = rpc
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._error: CriError | None = None
        self._callbacks: list[Callable[[Any], None]] = []
        self._timer = threading.Timer(deadline, self._end, ("DeadlineExceeded", "context deadline exceeded"))
        self._timer.daemon = True
        self._timer.start()

    def _end(self, code: str, text: str) -> None:
        with self._lock:
            if self._error is not None:
                return
            self._error = CriError.of(code, f"{text} (injected fault)", self._rpc)
            callbacks, self._callbacks = self._callbacks, []
        self._over.set()
        for callback in callbacks:
            callback(self)

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call back at the end."""
        with self._lock:
            if self._error is None:
                self._callbacks.append(callback)
                return
        callback(self)

    def done(self) -> bool:
        """True at the end."""
        return self._over.is_set()

    def fail(self) -> None:
        """End it as a broken connection does."""
        self._timer.cancel()
        self._end("Unavailable", "connection reset")

    def cancel(self) -> None:
        """End it now."""
        self._timer.cancel()
        self._end("Canceled", "context canceled")

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end and raise its error. Raises TimeoutError before."""
        if not self._over.wait(timeout):
            raise TimeoutError(f"{self._rpc} is still under way")
        assert self._error is not None
        raise self._error

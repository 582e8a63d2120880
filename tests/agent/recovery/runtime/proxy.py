"""A unix socket between the agent and its runtime, for connections that break and answers that come late."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType


class Proxy:
    """Passes bytes both ways. `cut` breaks every connection there is; `delay_s` holds back each answer that long."""

    def __init__(self, target: Path) -> None:
        self.delay_s = 0.0
        self._target = str(target)
        self._directory = tempfile.mkdtemp(prefix="nvp-", dir="/tmp")
        self.endpoint = f"unix://{self._directory}/s"
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Proxy:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(os.path.join(self._directory, "s"))
        self._listener.listen(64)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # ends its accept
        self._thread.join()
        self._listener.close()
        self.cut()
        shutil.rmtree(self._directory)

    def cut(self) -> None:
        """Break every connection; new ones are taken."""
        with self._lock:
            cut, self._open = self._open, set()
        for one in cut:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            try:
                far.connect(self._target)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._open |= {near, far}
            threading.Thread(target=self._pass, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, True), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if answers and self.delay_s:
                    time.sleep(self.delay_s)
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

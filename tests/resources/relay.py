"""A unix socket that passes its connections on to another one, and counts them."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType


class Relay:
    """Listens until the end of its `with` block, with two threads for each connection."""

    def __init__(self, path: Path, target: Path) -> None:
        self.path, self._target = path, target
        self.accepted = 0
        """Number of connections so far."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._open = [self._listener]

    def __enter__(self) -> Relay:
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # ends its accept
        self._thread.join()
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self.path.unlink()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.accepted += 1
                far = socket.socket(socket.AF_UNIX)
                self._open += [near, far]
                far.connect(str(self._target))
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)

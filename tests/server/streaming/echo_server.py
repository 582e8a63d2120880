"""A server that agrees to an upgrade and gives back what it gets."""

from __future__ import annotations

import socket
import threading


class EchoServer:
    """Agrees to an upgrade and gives back what it gets, a character on from the alphabet's first."""

    def __init__(self, answer: bytes = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: any\r\n\r\nfirst") -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.answer, self.head, self.ended = answer, b"", threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connected, _ = self.listener.accept()
        with connected:
            while b"\r\n\r\n" not in self.head:
                self.head += connected.recv(4096)
            connected.sendall(self.answer)
            try:
                while data := connected.recv(65536):
                    connected.sendall(data)
            except OSError:
                pass
            self.ended.set()

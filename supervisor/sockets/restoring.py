"""Makes the file of a listening socket again after someone removed it: new clients need it, connections do not."""

from __future__ import annotations

import os
from typing import Any

import zmq


class Listening:
    """A ZeroMQ socket that listens at a path."""

    def __init__(self, socket: zmq.Socket[Any], path: str) -> None:
        self.socket, self.path = socket, path
        socket.bind(f"ipc://{path}")

    def restore(self) -> bool:
        """Listen at the path again if nothing is there. True when it did. Raises zmq.ZMQError.

        The former listener stays: its end would remove the new file.
        """
        if os.path.lexists(self.path):
            return False
        self.socket.bind(f"ipc://{self.path}")
        return True

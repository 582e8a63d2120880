"""The monitor's state of one container."""

from __future__ import annotations

from actors.runtime.monitor.output import Log

TYPE_CHECKING = False  # see loop.py
if TYPE_CHECKING:
    from typing import Any

    from actors.runtime.monitor.output import Output

    Waiter = tuple[int, str]
    """(descriptor of the client, number of its request)"""


class Container:
    """Descriptors, output and pending request of one container."""

    __slots__ = (
        "adopt_by",
        "console",
        "dir",
        "ended",
        "exit_by",
        "id",
        "log",
        "outputs",
        "pid",
        "pidfd",
        "slave",
        "stdin",
        "terminal",
        "unwritten",
        "waiter",
    )

    def __init__(self, id_: str, directory: str) -> None:
        self.id, self.dir = id_, directory
        self.stdin = self.pidfd = self.terminal = self.slave = -1
        self.log = Log()
        self.outputs: list[Output] = []
        self.console: Any = None
        self.waiter: Waiter | None = None
        self.pid = 0
        self.adopt_by = self.exit_by = 0.0
        self.ended = False
        self.unwritten: tuple[()] | tuple[str, str] = ()
        """Exit code and time in ns, while the file `exit` cannot be written."""

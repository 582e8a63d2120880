"""Round trips of a Ping to each actor, beside those of a message between two bare processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import TracebackType

import msgpack
import zmq

from proto.agent.actor import Ping
from proto.common.interpreter import UTF8
from proto.wire.errors import ActorError, ProtocolError
from supervisor.cli.bench.figures import Figure, of_times
from supervisor.cli.errors import CommandError
from supervisor.sockets.client import Client

ASKS = 50
"""In a round. Few, because each is in the actor's flight recording, where older messages make room for it."""
WARM_UP = 5
ANSWER_S = 5.0
"""Deadline of a round of one actor."""
ECHO_S = 10.0
"""Deadline of the echo's start, and of a round with it."""
MICROSECONDS = 1e6
ECHO = os.path.join(os.path.dirname(__file__), "echo.py")
"""Run as a file: it needs nothing of this package, whose import would take longer than the measurement."""
Say = Callable[[str], None]


class Floor:
    """An echo in a child process, which ends with the block."""

    def __enter__(self) -> Floor:
        self._directory = tempfile.TemporaryDirectory(prefix="nodevisor-bench-")
        path = f"{self._directory.name}/echo.sock"
        # A session of its own: Ctrl-C reaches this process alone, which then ends the echo.
        self._echo = subprocess.Popen(
            [sys.executable, *UTF8, "-P", ECHO, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.connect(f"ipc://{path}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context.destroy(linger=0)
        self._echo.kill()
        self._echo.communicate()
        self._directory.cleanup()

    def round_trips(self, count: int) -> list[float]:
        """Seconds of `count` messages in turn. Raises CommandError when the echo does not answer in time."""
        deadline = time.monotonic() + ECHO_S
        took = []
        for number in range(count):
            began = time.perf_counter()
            self._socket.send(msgpack.packb({"type": "Ping", "number": number}))
            if not self._socket.poll(max(0, int(1000 * (deadline - time.monotonic())))):
                raise CommandError(
                    f"cannot measure the floor of an ask: its process did not answer within {ECHO_S:g} s"
                )
            msgpack.unpackb(self._socket.recv())
            took.append(time.perf_counter() - began)
        return took


def measure(client: Client, actors: Sequence[str], rounds: int, say: Say) -> tuple[list[Figure], list[str]]:
    """Figures of all actors together and of each, and a note for each actor that did not answer."""
    floor: list[float] = []
    found: defaultdict[str, list[float]] = defaultdict(list)
    notes: dict[str, str] = {}
    with Floor() as bare:
        bare.round_trips(WARM_UP)
        for number in range(1, rounds + 1):
            say(f"asks, round {number} of {rounds}")
            floor += bare.round_trips(ASKS)
            for name in actors:
                try:
                    found[name] += client.round_trips(name, Ping(), ASKS, ANSWER_S)
                except (ActorError, ProtocolError) as error:
                    notes[name] = f"ask of {name}: {error}"
    each = [of_times(f"ask of {name}", "us", found[name], floor, MICROSECONDS) for name in actors if found[name]]
    every = [one for times in found.values() for one in times]
    return [of_times("ask of an actor", "us", every, floor, MICROSECONDS), *each], list(notes.values())

"""The bus beside bare pyzmq with msgpack: round trips of one ask at a time, and asks in a pipeline.

`python -m tests.bench.measurements.bus` prints both. Each pair has two processes: an echo and a driver, which measures
and prints JSON. The bare pair does what any program on these two libraries does: a dict through a DEALER and a ROUTER.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgpack
import zmq

from actors._base import Actor, handles
from actors._base.actor import ActorContext
from actors._base.messaging.bus import Bus
from proto.agent.settings import Settings
from proto.wire.message import Message, Request
from tests.bench.reporting.table import print_table

ROUNDS = 5
ASKS = 2_000
PIPELINED = 20_000
WINDOW = 500
"""Asks under way at a time in the pipeline."""
TEXT = "x" * 100


class Echoed(Message, frozen=True, kw_only=True):
    """The answer."""

    value: int
    text: str


class Echo(Request[Echoed], frozen=True, kw_only=True):
    """Answer with the same values. A repeat is harmless."""

    value: int
    text: str


@dataclass(frozen=True)
class Figures:
    """One pair's figures in one round."""

    round_trip_us: float
    """Median."""
    round_trip_p99_us: float
    per_second: float
    """Asks in the pipeline."""


class EchoActor(Actor):
    """Answers."""

    name = "echo"

    @handles(Echo)
    def on_echo(self, request: Echo) -> Echoed:
        return Echoed(value=request.value, text=request.text)


class DriverActor(Actor):
    """Asks the echo, prints Figures and ends."""

    name = "driver"
    asks = frozenset({"echo"})

    def on_ready(self) -> None:
        self.spawn(self._drive(), "drive")

    async def _drive(self) -> None:
        echo = self.peer("echo")
        await echo.ask(Echo(value=0, text=TEXT), 30)
        times = []
        for number in range(ASKS):
            began = time.perf_counter()
            await echo.ask(Echo(value=number, text=TEXT))
            times.append(time.perf_counter() - began)
        began = time.perf_counter()
        pending: deque[Any] = deque()
        for number in range(PIPELINED):
            if len(pending) == WINDOW:
                await pending.popleft()
            pending.append(echo.ask(Echo(value=number, text=TEXT), 60))
        for future in pending:
            await future
        _print(times, time.perf_counter() - began)
        self.bus.stop(0)


def _print(times: Sequence[float], pipeline_s: float) -> None:
    ordered = sorted(times)
    figures = Figures(1e6 * statistics.median(ordered), 1e6 * ordered[int(len(ordered) * 0.99)], PIPELINED / pipeline_s)
    print(json.dumps(asdict(figures)), flush=True)


def _actor(kind: type[Actor], directory: Path) -> None:
    """Run one actor in this process; messages are looked up where those of product actors are."""
    for name in ("echo", "driver"):
        sys.modules[f"proto.agent.{name}"] = sys.modules[__name__]
    for message in (Echo, Echoed):
        message.__module__ = "proto.agent.echo"
    bus = Bus(kind.name, 1, str(directory), os.pidfd_open(os.getppid()))
    kind.start(ActorContext(settings=Settings(run_dir=str(directory)), bus=bus))
    os._exit(bus.run())


def _bare_echo(directory: Path) -> None:
    socket = zmq.Context().socket(zmq.ROUTER)
    socket.bind(f"ipc://{directory}/bare.sock")
    while True:
        identity, body = socket.recv_multipart()
        socket.send_multipart([identity, msgpack.packb(msgpack.unpackb(body))])


def _bare_driver(directory: Path) -> None:
    socket = zmq.Context().socket(zmq.DEALER)
    socket.connect(f"ipc://{directory}/bare.sock")

    def send(number: int) -> None:
        socket.send(msgpack.packb({"value": number, "text": TEXT}))

    times = []
    for number in range(ASKS + 1):
        began = time.perf_counter()
        send(number)
        msgpack.unpackb(socket.recv())
        times.append(time.perf_counter() - began)
    began = time.perf_counter()
    for number in range(PIPELINED):
        if number >= WINDOW:
            msgpack.unpackb(socket.recv())
        send(number)
    for _ in range(WINDOW):
        msgpack.unpackb(socket.recv())
    _print(times[1:], time.perf_counter() - began)


ROLES: dict[str, Callable[[Path], None]] = {
    "echo": lambda directory: _actor(EchoActor, directory),
    "driver": lambda directory: _actor(DriverActor, directory),
    "bare-echo": _bare_echo,
    "bare-driver": _bare_driver,
}


def _pair(echo: str, driver: str) -> Figures:
    """Measure one pair of processes of their own."""
    with tempfile.TemporaryDirectory(prefix="nvbench-") as directory:
        command = [sys.executable, "-P", "-m", "tests.bench.measurements.bus", "--directory", directory, "--role"]
        answering = subprocess.Popen([*command, echo])
        try:
            told = subprocess.run([*command, driver], capture_output=True, text=True, check=True, timeout=120).stdout
        finally:
            answering.terminate()
            answering.wait(10)
    return Figures(**json.loads(told.splitlines()[-1]))


def measure(rounds: int = ROUNDS) -> dict[str, list[Figures]]:
    """Figures of the bare pair and of two actors, in turns."""
    found: dict[str, list[Figures]] = {"bare": [], "actors": []}
    for _ in range(rounds):
        found["bare"].append(_pair("bare-echo", "bare-driver"))
        found["actors"].append(_pair("echo", "driver"))
    return found


def ratios(found: dict[str, list[Figures]]) -> tuple[float, float]:
    """Ratios of the medians: round trip, and asks a second in the pipeline; actors by bare."""

    def median(who: str, field: str) -> float:
        return statistics.median(getattr(figures, field) for figures in found[who])

    return (
        median("actors", "round_trip_us") / median("bare", "round_trip_us"),
        median("actors", "per_second") / median("bare", "per_second"),
    )


def show(found: dict[str, list[Figures]]) -> None:
    """Print a table."""
    rows = [
        (who, *(statistics.median(column) for column in zip(*(asdict(one).values() for one in figures), strict=True)))
        for who, figures in found.items()
    ]
    round_trip, pipelined = ratios(found)
    print_table(("ASKS", "ROUND TRIP US", "P99 US", "PIPELINED A SECOND"), rows)
    print(f"Round trip {round_trip:.2f} times bare pyzmq with msgpack, pipelined {pipelined:.2f} times.")


def main() -> None:
    """Print the figures, or be one of the processes."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.measurements.bus", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        ROLES[options.role](options.directory)
    else:
        show(measure(options.rounds))


if __name__ == "__main__":
    main()

"""Runs a supervisor in a process of its own, and asks it as a console does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import zmq

from proto.agent.settings import Settings
from proto.agent.supervisor import EVENTS, ActorRow, ListActors
from proto.wire import codec
from proto.wire.envelope import Kind
from proto.wire.errors import Failure, from_failure
from proto.wire.message import Message, Request, reply_type
from supervisor.process import state
from supervisor.supervision.specs import ChildSpec
from tests.harness import alive, wait_for

R = TypeVar("R", bound=Message)
CHILDREN = "tests.supervisor.children:main"
_CODE = """
import sys, msgspec
from proto.agent.settings import Settings
from supervisor.core import daemon
from supervisor.process import state
from supervisor.supervision.specs import ChildSpec
settings, specs, entry = sys.argv[1:]
sys.exit(daemon.run(msgspec.json.decode(settings, type=Settings),
                    msgspec.json.decode(specs, type=list[ChildSpec]), child_entry=entry))
"""


def spec(name: str, **changes: Any) -> ChildSpec:
    """A spec with the test children's pace: one second before a hang is one."""
    return ChildSpec(name=name, **{"shutdown_s": 1.0, "start_deadline_s": 5.0, "heartbeat_period_s": 0.5, **changes})


class Agent:
    """Use as a context manager. A new `start` on the same run directory is the next supervisor."""

    def __init__(self, *specs: ChildSpec, entry: str = CHILDREN, run_dir: str = "", **settings: Any) -> None:
        self.dir = run_dir or tempfile.mkdtemp(prefix="nv-", dir="/tmp")
        self.specs = specs
        self.entry = entry
        self.settings = Settings(run_dir=self.dir, root_dir=f"{self.dir}/root", **settings)
        self.process: subprocess.Popen[bytes] | None = None
        self.log = Path(self.dir, "log")
        self._context = zmq.Context()

    def __enter__(self) -> Agent:
        self.start()
        return self

    def start(self) -> None:
        former = self._control_file()
        with self.log.open("ab") as log:
            arguments: list[str | bytes] = [
                msgspec.json.encode(self.settings),
                msgspec.json.encode(self.specs),
                self.entry,
            ]
            self.process = subprocess.Popen([sys.executable, "-c", _CODE, *arguments], stderr=log)
        wait_for(lambda: self.text() and self._listening(former), 30, "control socket")

    def _listening(self, former: tuple[int, int] | None) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.text()
        return Path(self.dir, "state.json").exists() and self._control_file() not in (None, former)

    def _control_file(self) -> tuple[int, int] | None:
        """Identity of the present supervisor's control socket; None without one."""
        try:
            status = Path(self.dir, "control.sock").stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_ctime_ns

    def text(self) -> str:
        return self.log.read_text() or " "

    def ask(self, request: Request[R], timeout_s: float = 10.0) -> R:
        (answer,) = self.ask_raw(
            [codec.encode_header(Kind.ASK, type(request).__name__, "console", 0, 1), codec.encode(request)], timeout_s
        )
        header, body = answer
        if header.kind == Kind.ERROR:
            raise from_failure(codec.decode(body, Failure))
        found: R = codec.decode(body, reply_type(request))  # type: ignore[assignment]
        return found

    def ask_raw(self, frames: list[bytes], timeout_s: float = 10.0) -> list[tuple[Any, bytes]]:
        """The answer to frames as they are; none within the time: an empty list."""
        with self.connect() as socket:
            socket.send_multipart(frames)
            if not socket.poll(int(timeout_s * 1000)):
                return []
            head, body = socket.recv_multipart()
            return [(codec.decode_header(head), body)]

    def connect(self) -> zmq.Socket[bytes]:
        """A connection to the control socket; close it."""
        socket = self._context.socket(zmq.DEALER)
        socket.set(zmq.LINGER, 0)
        socket.connect(f"ipc://{self.dir}/control.sock")
        return socket

    def subscribe(self) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.SUB)
        socket.set(zmq.LINGER, 0)
        socket.subscribe(b"")
        socket.connect(f"ipc://{self.dir}/world.sock")
        return socket

    def rows(self) -> dict[str, ActorRow]:
        return {row.name: row for row in self.ask(ListActors()).rows}

    def row(self, name: str) -> ActorRow:
        return self.rows()[name]

    def wait(self, name: str, condition: Callable[[ActorRow], bool], timeout_s: float = 15.0) -> ActorRow:
        """The first row of that actor that meets the condition."""

        def look() -> ActorRow | None:
            row = self.row(name)
            return row if condition(row) else None

        try:
            found: ActorRow = wait_for(look, timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{name}: {self.row(name)}\n{self.text()}") from error
        return found

    def wait_ready(self, *names: str, incarnation: int = 0) -> dict[str, ActorRow]:
        return {
            name: self.wait(name, lambda row: row.state == "ready" and row.incarnation >= incarnation) for name in names
        }

    def pids(self) -> dict[str, int]:
        """Every process of the agent by name, from its state file and rows."""
        return {name: row.pid for name, row in self.rows().items() if row.pid}

    def saved(self) -> dict[str, int]:
        actors = json.loads(Path(self.dir, "state.json").read_text())["actors"]
        return {name: entry["incarnation"] for name, entry in actors.items()}

    def kill(self) -> None:
        """kill -9 of the supervisor."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def stop(self, timeout_s: float = 30.0) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def __exit__(self, *exc: object) -> None:
        if self.process is not None and self.process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.kill()
        self._context.destroy(linger=0)
        state.end_leftovers(state.load(Path(self.dir, "state.json")))  # of a test that failed half-way
        shutil.rmtree(self.dir, ignore_errors=True)


def event_of(frames: list[bytes]) -> Message:
    """The events that a subscriber got."""
    topic, _, body = frames
    return codec.decode(body, EVENTS[topic.decode()])


def wait_gone(*pids: int, timeout_s: float = 20.0) -> None:
    wait_for(lambda: not [pid for pid in pids if alive(pid)], timeout_s, f"processes {pids} end")


def now_ms() -> float:
    return time.monotonic() * 1000


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)

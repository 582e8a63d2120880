"""The end of sessions whose output stays open, with pipes and terminals of this process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from actors._base.messaging.futures import Future
from actors._net.loop import Loop
from actors._net.stream import Stream
from actors.runtime.model.processes import Process, start_ticks
from actors.runtime.streaming import execution, remotecommand
from actors.runtime.streaming.attachment import Attachment
from actors.runtime.streaming.execution import Execution
from actors.runtime.streaming.policy import ATTACH, EXEC, SessionRequest
from actors.runtime.streaming.remotecommand import Message, ProcessStreams
from tests.descriptors import opened
from tests.harness import wait_for
from tests.runtime.streaming.test_streaming import commands_with


class Endless:
    """A client that ends its input at once and takes all output."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._coming = [Message("stdin", b"", end=True)]

    async def receive(self) -> Message:
        if not self._coming:
            await Future()
        return self._coming.pop()

    async def send(self, kind: str, content: bytes) -> None:
        assert (kind, len(content)) == ("stdout", remotecommand.BLOCK)
        await self._loop.sleep(0)


class Keeping(Endless):
    """The same, which keeps the output. It takes each piece after `slow_s`."""

    def __init__(self, loop: Loop, slow_s: float = 0.0) -> None:
        super().__init__(loop)
        self.said = b""
        self._slow_s = slow_s

    async def send(self, _: str, content: bytes) -> None:
        self.said += content
        if self._slow_s:
            await self._loop.sleep(self._slow_s)


def finishes(loop: Loop, channels: Any, process: ProcessStreams) -> bool:
    """Run the session to its end."""
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()), closing(listener.accept()[0]) as connected:
        session = remotecommand.RemoteCommand(loop, channels, process, Stream(loop, connected), 0)
        finished = loop.spawn(session.run())
        finished.add_done_callback(lambda _: loop.stop())
        loop.call_later(30, loop.stop)
        loop.run()
    for fd in (*process.outputs.values(), process.pidfd):
        os.close(fd)
    return finished.result(0)


def attached(output: int, on_stdin_end: Callable[[], object] = lambda: None) -> ProcessStreams:
    """Attached to an output of this process, which runs on."""
    pidfd = os.pidfd_open(os.getpid())
    return ProcessStreams(
        {"stdout": output}, pidfd, ends_with_output=True, ends_with_input=True, on_stdin_end=on_stdin_end
    )


def ended(output: int, *, ends_with_output: bool = False) -> ProcessStreams:
    """The output of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        pidfd = os.pidfd_open(process.pid)
    return ProcessStreams({"stdout": output}, pidfd, ends_with_output=ends_with_output)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe whose writer stays open, as with a process that a command leaves. The session closes its reader."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    yield reader, writer
    with contextlib.suppress(OSError):  # the test has closed it
        os.close(writer)


def test_end_of_input_ends_an_output_without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remotecommand, "DRAIN_S", 0.1)
    loop = Loop()
    assert finishes(loop, Endless(loop), attached(os.open("/dev/zero", os.O_RDONLY)))


def test_end_of_a_command_ends_an_output_without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remotecommand, "DRAIN_S", 0.1)
    loop = Loop()
    assert finishes(loop, Endless(loop), ended(os.open("/dev/zero", os.O_RDONLY)))


def test_output_that_answers_the_end_of_input_is_sent(monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]) -> None:
    monkeypatch.setattr(remotecommand, "DRAIN_S", 20.0)
    loop = Loop()
    channels, (reader, writer) = Keeping(loop), pipe

    def answer() -> None:
        os.write(writer, b"got one")
        os.close(writer)

    assert finishes(loop, channels, attached(reader, lambda: loop.call_later(0.1, answer)))
    assert channels.said == b"got one"


@pytest.mark.parametrize("process_of", [attached, ended])
def test_output_in_the_pipe_is_sent_after_a_standstill(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int], process_of: Callable[[int], ProcessStreams]
) -> None:
    monkeypatch.setattr(remotecommand, "DRAIN_S", 0.2)
    loop = Loop()
    channels, (reader, writer) = Keeping(loop), pipe

    def stand_still() -> None:
        """The time of the output ends before the loop sees what was written."""
        os.write(writer, b"in time")
        time.sleep(0.4)

    loop.call_later(0.05, stand_still)
    assert finishes(loop, channels, process_of(reader))
    assert channels.said == b"in time"


def test_slow_client_gets_what_a_large_pipe_holds(monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]) -> None:
    monkeypatch.setattr(remotecommand, "DRAIN_S", 0.02)
    loop = Loop()
    channels, (reader, writer) = Keeping(loop, slow_s=0.1), pipe
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1024 * 1024)
    whole = os.urandom(500_000)
    assert os.write(writer, whole) == len(whole)
    assert finishes(loop, channels, ended(reader))
    assert channels.said == whole


def test_slow_client_gets_what_a_terminal_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remotecommand, "DRAIN_S", 0.02)
    loop = Loop()
    channels, (master, slave) = Keeping(loop, slow_s=0.1), os.openpty()
    for fd in (master, slave):
        os.set_blocking(fd, False)
    whole = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            whole += os.write(slave, b"x" * 1000)
    assert whole > 4096  # a reader gets no more at once
    assert finishes(loop, channels, ended(master))
    os.close(slave)
    assert len(channels.said) == whole


def test_ended_containers_output_comes_when_its_monitor_is_slow(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]
) -> None:
    monkeypatch.setattr(remotecommand, "DRAIN_S", 0.1)
    loop = Loop()
    channels, (reader, writer) = Keeping(loop), pipe
    channels._coming.clear()

    def copy() -> None:
        os.write(writer, b"last line")
        os.close(writer)

    loop.call_later(0.5, copy)
    assert finishes(loop, channels, ended(reader, ends_with_output=True))
    assert channels.said == b"last line"


# Without descriptors


class Sleeping:
    """A command in a container; `sleep` stands in for its OCI runtime."""

    def __init__(self, line: list[str]) -> None:
        self.line = line
        self.removed = False

    def pipe(self) -> tuple[int, int]:
        return os.pipe2(os.O_CLOEXEC)

    def give(self, _: int) -> None:
        pass

    def wait_started(self, _: Callable[[], bool]) -> None:
        pass

    def process(self, _: object) -> None:
        return None

    def remove_files(self) -> None:
        self.removed = True


def refuse(*_: object) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("tty", [False, True])
def test_command_without_a_session_is_ended(monkeypatch: pytest.MonkeyPatch, tty: bool) -> None:
    mark = secrets.token_hex(8)
    command = Sleeping(["sh", "-c", f"while :; do sleep 1; done; : {mark}"])
    monkeypatch.setattr(execution, "ExecCommand", lambda *_, **__: command)
    monkeypatch.setattr(execution, "HANG_UP_S", 0.1)
    monkeypatch.setattr(os, "pidfd_open", refuse)
    before = opened()
    container: Any = SimpleNamespace(record=SimpleNamespace(cgroup=""))
    wanted = SessionRequest(EXEC, "c", ("true",), stdin=True, stdout=True, stderr=not tty, tty=tty)
    with pytest.raises(OSError, match="open files"):
        Execution(None, container, wanted)  # type: ignore[arg-type]
    assert command.removed
    assert not opened() - before
    wait_for(lambda: not commands_with(mark), 20, "the command has ended")


@pytest.mark.parametrize("tty", [False, True])
def test_command_in_the_container_is_ended_once_descriptors_are_free(
    monkeypatch: pytest.MonkeyPatch, tty: bool
) -> None:
    """The OCI runtime leaves it running when it is killed. A signal to it needs a descriptor."""
    command = Sleeping(["sleep", "1000"])
    within = subprocess.Popen(["sleep", "1000"])
    before, pidfd_open = opened(), os.pidfd_open

    def limited(pid: int) -> int:
        """No descriptor is free while the session has one."""
        return refuse() if opened() - before else pidfd_open(pid)

    monkeypatch.setattr(execution, "ExecCommand", lambda *_, **__: command)
    monkeypatch.setattr(execution, "HANG_UP_S", 0.1)
    monkeypatch.setattr(command, "process", lambda _: Process(within.pid, start_ticks(within.pid)))
    monkeypatch.setattr(os, "pidfd_open", limited)
    container: Any = SimpleNamespace(record=SimpleNamespace(cgroup=""))
    wanted = SessionRequest(EXEC, "c", ("true",), stdin=True, stdout=True, stderr=not tty, tty=tty)
    try:
        with pytest.raises(OSError, match="open files"):
            Execution(None, container, wanted)  # type: ignore[arg-type]
        assert within.wait(20) < 0
        assert command.removed
    finally:
        within.kill()
        within.wait()


def test_attachment_without_a_second_pipe_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    pipe2 = os.pipe2

    def once(flags: int) -> tuple[int, int]:
        made.append(refuse() if made else pipe2(flags))  # type: ignore[arg-type]
        return made[-1]

    container: Any = SimpleNamespace(started=SimpleNamespace(pid=os.getpid()), config=SimpleNamespace(tty=False))
    monkeypatch.setattr(os, "pipe2", once)
    before = opened()
    with pytest.raises(OSError, match="open files"):
        Attachment(None, container, SessionRequest(ATTACH, "c", stdout=True, stderr=True))  # type: ignore[arg-type]
    assert not opened() - before

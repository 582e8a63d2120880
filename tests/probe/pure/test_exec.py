"""Exec probes on a runtime that is slow, by a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from actors._base import Future
from actors._base.messaging.tasks import Task
from actors._net.probing.outcome import Outcome
from actors.probe.exec import MOST_UNFINISHED, ExecProbes
from proto.cri import api_pb2 as pb

TIMED_OUT = 'command timed out: "x" timed out after 1s'


class Timer:
    def __init__(self, due: float, callback: Callable[[], object]) -> None:
        self.due, self.callback, self.is_set = due, callback, True

    def cancel(self) -> None:
        self.is_set = False


class Command(Future[Any]):
    """A call that ends when the test says so, or when it is cancelled."""

    cancelled = False

    def cancel(self) -> None:
        if not self.done():
            self.cancelled = True
            self.set(pb.ExecSyncResponse(exit_code=1))


class Machine:
    """The actor and the runtime of the probes under test."""

    def __init__(self, *, just_started: bool = False) -> None:
        self.now, self.timers, self.commands = 0.0, list[Timer](), list[Command]()
        self.probes = ExecProbes(self, self)  # type: ignore[arg-type]  # what they use of both
        if not just_started:
            self.advance(30)

    def after(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        timer = Timer(self.now + delay_s, callback)
        self.timers.append(timer)
        return timer

    def post(self, function: Callable[..., object], *args: Any) -> None:
        function(*args)

    def exec_sync(self, *_: object) -> Command:
        self.commands.append(Command())
        return self.commands[-1]

    def version(self, *, timeout: float) -> Future[str]:
        assert timeout > 0
        answer: Future[str] = Future()
        answer.set("1")
        return answer

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for timer in [one for one in self.timers if one.is_set and one.due <= self.now]:
            timer.cancel()
            timer.callback()

    def probe(self, container: str = "c", command: str = "x") -> Future[Outcome]:
        """Begin one with a timeout of a second."""
        return spawn(self.probes.run(container, [command], 1.0))


def spawn(coroutine: Coroutine[Any, None, Outcome]) -> Task[Outcome]:
    task: Task[Outcome] = Task(coroutine, "probe", lambda task: task.step(), lambda *_: None, lambda _: None)
    task.step()
    return task


def test_a_command_that_is_late_fails_its_probe_and_is_not_cancelled_while_it_may_still_start() -> None:
    machine = Machine()
    probe = machine.probe()
    machine.advance(1.9)
    assert not probe.done()
    machine.advance(0.2)
    assert probe.result(0) == Outcome("failure", TIMED_OUT)
    machine.advance(25)
    machine.commands[0].set(pb.ExecSyncResponse(exit_code=137))
    machine.advance(60)
    assert not machine.commands[0].cancelled
    assert not [one for one in machine.timers if one.is_set]


def test_no_late_command_counts_while_the_last_process_may_be_its_cause() -> None:
    machine = Machine(just_started=True)
    while machine.now < 27:
        probe = machine.probe()
        machine.advance(2)
        assert probe.result(0).kind == "errored"
    ended = machine.probe("other")
    machine.commands[-1].set(pb.ExecSyncResponse(exit_code=1))
    assert ended.result(0).kind == "failure"
    late = machine.probe("other")
    machine.advance(2)
    assert late.result(0) == Outcome("failure", TIMED_OUT)  # a container that has answered does not hang
    machine.advance(30)
    probe = machine.probe()
    machine.advance(2)
    assert probe.result(0) == Outcome("failure", TIMED_OUT)


def test_a_command_that_never_ends_is_cancelled() -> None:
    machine = Machine()
    machine.probe()
    machine.advance(2)
    machine.advance(31)
    assert machine.commands[0].cancelled


def test_few_calls_of_a_probe_wait_for_their_end_and_other_probes_run_on() -> None:
    machine = Machine()
    for _ in range(10):
        probe = machine.probe()
        machine.advance(2)
        assert probe.result(0) == Outcome("failure", TIMED_OUT)
    assert len(machine.commands) == MOST_UNFINISHED
    for container, command in (("other", "x"), ("c", "y")):
        other = machine.probe(container, command)
        machine.commands[-1].set(pb.ExecSyncResponse(exit_code=0))
        assert other.result(0).kind == "success"
    machine.commands[0].set(pb.ExecSyncResponse(exit_code=137))
    again = machine.probe()
    machine.commands[-1].set(pb.ExecSyncResponse(exit_code=0, stdout=b"well"))
    assert again.result(0) == Outcome("success", "well")

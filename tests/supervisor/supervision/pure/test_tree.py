"""The state machine, event by event, without a process or a clock."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from proto.agent.supervisor import ActorRow, Exited, Note, Started
from proto.wire.errors import Refused
from proto.wire.message import Done
from supervisor.supervision import transitions
from supervisor.supervision.process_tree import KILL_WAIT_S, ProcessTree
from supervisor.supervision.specs import ChildSpec
from supervisor.supervision.transitions import TRANSITIONS, Event, Instruction, State

KILLED = 9
CRASHED = 70 << 8


class Driver:
    """A tree and a clock; pids are made up."""

    def __init__(self, *specs: ChildSpec, incarnations: dict[str, int] | None = None) -> None:
        self.tree = ProcessTree(specs, incarnations or {}, lambda: 0.0)
        self.now = 1000.0

    def __call__(self, event: Event, after_s: float = 0.0) -> list[Instruction]:
        self.now += after_s
        return self.tree.handle(event, self.now)

    def tick(self, after_s: float) -> list[Instruction]:
        """The tick comes when it was wanted, not late."""
        until = self.now + after_s
        out: list[Instruction] = []
        while (due := self.tree.next_wakeup()) is not None and due <= until:
            self.now = max(self.now, due)
            out += self.tree.handle(transitions.Tick(), self.now)
        self.now = until
        return out

    def state(self, name: str = "a") -> State:
        return self.tree.children[name].state

    def incarnation(self, name: str = "a") -> int:
        return self.tree.children[name].incarnation

    def in_service(self, *names: str) -> Driver:
        self(transitions.Boot())
        for name in names:
            self.bring_up(name)
        return self

    def bring_up(self, name: str = "a", pid: int = 0) -> list[Instruction]:
        incarnation = self.incarnation(name)
        pid = pid or 100 * incarnation + ord(name[0])
        return self(transitions.Forked(name, incarnation, pid)) + self(
            transitions.ReadyReceived(name, incarnation, pid)
        )

    def end(self, name: str = "a", status: int | None = KILLED, after_s: float = 0.0) -> list[Instruction]:
        return self(transitions.Ended(name, self.incarnation(name), status), after_s)


def of(kind: Any, out: list[Instruction]) -> list[Any]:
    """The instructions, or the published messages, of a kind."""
    messages = [instruction.message for instruction in out if isinstance(instruction, transitions.Publish)]
    return [one for one in [*out, *messages] if isinstance(one, kind)]


def names(kind: Any, out: list[Instruction]) -> list[str]:
    return [one.name for one in of(kind, out)]


def spec(name: str = "a", **changes: Any) -> ChildSpec:
    values: dict[str, Any] = {"jitter_factor": 0.0, "heartbeat_period_s": 0.0, **changes}
    return ChildSpec(name=name, **values)


# Boot


def test_boot_starts_independent_children_first() -> None:
    driver = Driver(spec("a"), spec("b"), spec("c", depends_on=("a", "b")), spec("d", depends_on=("c",)))
    assert names(transitions.Fork, driver(transitions.Boot())) == ["a", "b"]
    assert names(transitions.Fork, driver.bring_up("a")) == []
    assert names(transitions.Fork, driver.bring_up("b")) == ["c"]
    assert names(transitions.Fork, driver.bring_up("c")) == ["d"]
    driver.bring_up("d")
    assert [peer.ready for peer in driver.tree.peer_states().peers] == [True] * 4


def test_dependency_that_dies_at_boot_blocks_no_child() -> None:
    driver = Driver(spec("a"), spec("b", depends_on=("a",)))
    driver(transitions.Boot())
    driver(transitions.Forked("a", 1, 7))
    assert names(transitions.Fork, driver.end("a", CRASHED)) == ["a", "b"]


def test_snapshot_is_the_sum_of_started_and_exited_events() -> None:
    driver = Driver(spec(), spec("b")).in_service("a")
    driver(transitions.RestartAsked("a", "me"))
    driver(transitions.RestartAsked("b", "me"))
    assert [(peer.name, peer.incarnation, peer.ready) for peer in driver.tree.peer_states().peers] == [
        ("a", 1, True),
        ("b", 1, False),
    ]
    driver.end("a", 0)
    assert [(peer.incarnation, peer.ready) for peer in driver.tree.peer_states().peers] == [(2, False), (1, False)]


def test_incarnations_go_on_from_the_saved_ones() -> None:
    driver = Driver(spec("a"), incarnations={"a": 41})
    assert driver(transitions.Boot()) == [transitions.Fork("a", 42)]


def test_ready_before_the_fork_report_counts() -> None:
    driver = Driver(spec())
    driver(transitions.Boot())
    assert driver(transitions.ReadyReceived("a", 1, 7)) == []
    assert driver(transitions.Forked("a", 1, 7)) == [transitions.Publish(Started(name="a", incarnation=1))]
    assert driver.state() is State.READY


@pytest.mark.parametrize(("incarnation", "pid"), [(0, 201), (2, 201), (1, 99), (100, 99)])
def test_ready_of_another_process_or_incarnation_is_counted(incarnation: int, pid: int) -> None:
    driver = Driver(spec())
    driver(transitions.Boot())
    driver(transitions.Forked("a", 1, 201))
    assert driver(transitions.ReadyReceived("a", incarnation, pid)) == []
    assert driver.state() is State.STARTING
    assert driver.tree.ignored_ready == 1


def test_ready_of_an_unknown_name_is_ignored_and_counted() -> None:
    driver = Driver(spec()).in_service("a")
    assert driver(transitions.ReadyReceived("z", 1, 1)) == []
    assert driver.tree.ignored_ready == 1


# Ends and restarts


def test_killed_child_restarts_at_once_with_next_incarnation() -> None:
    driver = Driver(spec()).in_service("a")
    out = driver.end()
    assert of(Exited, out) == [Exited(name="a", incarnation=1, reason="killed by SIGKILL")]
    assert of(transitions.Fork, out) == [transitions.Fork("a", 2)]
    row = driver.tree.rows(driver.now)[0]
    assert (row.state, row.restarts, row.last_death) == ("starting", 1, "killed by SIGKILL")


def test_repeated_ends_back_off_then_degrade_and_still_retry() -> None:
    driver = Driver(spec(backoff_initial_s=1.0, max_restarts=2, intensity_period_s=60.0))
    driver(transitions.Boot())
    driver(transitions.Forked("a", 1, 7))
    driver.end(status=CRASHED)
    assert driver.state() is State.STARTING
    driver(transitions.Forked("a", 2, 8))
    driver.end(status=CRASHED)
    assert driver.state() is State.BACKOFF
    assert driver.tree.rows(driver.now)[0].restart_in_s == 1.0
    assert names(transitions.Fork, driver.tick(1.0)) == ["a"]
    driver(transitions.Forked("a", 3, 9))
    notes = of(Note, driver.end(status=CRASHED))
    assert driver.state() is State.DEGRADED
    assert [note.level for note in notes] == ["error"]
    assert "degraded: more than 2 restarts in 60 s" in notes[0].text
    for _ in range(20):
        assert names(transitions.Fork, driver.tick(10.0)) == ["a"]
        driver(transitions.Forked("a", driver.incarnation(), 9))
        assert of(Note, driver.end(status=CRASHED))[0].level == "warning"
        assert driver.state() is State.DEGRADED


def test_degraded_ends_after_long_enough_in_service() -> None:
    driver = Driver(spec(max_restarts=0, intensity_period_s=12.0, heartbeat_period_s=5.0)).in_service("a")
    driver.end()
    driver.tick(10.0)
    driver.bring_up()
    texts = []
    for _ in range(4):
        driver.tick(5.0)
        texts += [note.text for note in of(Note, driver(transitions.PongReceived("a", 2, 0)))]
    assert texts == ["in service for long enough, no longer degraded"]
    assert not driver.tree.children["a"].history.degraded


def test_events_of_a_dead_incarnation_change_nothing() -> None:
    driver = Driver(spec()).in_service("a")
    driver.end()
    driver.bring_up()
    for event in (
        transitions.Ended("a", 1, KILLED),
        transitions.PongReceived("a", 1, 5),
        transitions.Forked("a", 1, 3),
        transitions.ForkFailed("a", 1, "x"),
        transitions.EvidenceSaved("a", 1, "x"),
    ):
        assert driver(event) == []
    assert driver.state() is State.READY


def test_fork_that_fails_backs_off_like_a_crash() -> None:
    driver = Driver(spec(backoff_initial_s=1.0))
    driver(transitions.Boot())
    assert names(transitions.Fork, driver(transitions.ForkFailed("a", 1, "EAGAIN"))) == ["a"]
    driver(transitions.ForkFailed("a", 2, "EAGAIN"))
    assert driver.state() is State.BACKOFF
    assert driver.tree.rows(driver.now)[0].last_death == "cannot be forked: EAGAIN"


def test_fork_lost_with_the_forkserver_is_repeated_without_count() -> None:
    driver = Driver(spec(max_restarts=1))
    driver(transitions.Boot())
    for number in range(1, 6):
        out = driver(transitions.ForkFailed("a", number, "the forkserver ended", lost=True))
        assert of(transitions.Fork, out) == [transitions.Fork("a", number + 1)]
    assert driver.tree.rows(driver.now)[0].restarts == 0


# Stop


def test_stop_goes_in_reverse_order_of_dependency() -> None:
    driver = Driver(spec("a"), spec("b"), spec("c", depends_on=("a", "b")), spec("d", depends_on=("c",)))
    driver.in_service("a", "b", "c", "d")
    assert names(transitions.AskStop, driver(transitions.StopAsked("me"))) == ["d"]
    assert names(transitions.AskStop, driver.end("d", 0)) == ["c"]
    assert names(transitions.AskStop, driver.end("c", 0)) == ["b", "a"]
    assert of(transitions.Answer, driver.end("a", 0)) == []
    assert of(transitions.Answer, driver.end("b", 0)) == [transitions.Answer("me", Done())]
    assert driver.tree.finished


def test_stop_kills_after_the_shutdown_deadline() -> None:
    driver = Driver(spec(shutdown_s=3.0)).in_service("a")
    assert driver(transitions.StopAsked()) == [transitions.AskStop("a", 1, in_service=True)]
    assert of(transitions.Kill, driver.tick(2.9)) == []
    assert of(transitions.Kill, driver.tick(0.2)) == [transitions.Kill("a", 1)]
    driver.end()
    assert driver.tree.finished
    assert driver.state() is State.STOPPED


def test_stop_does_not_wait_for_a_process_that_survives_sigkill() -> None:
    driver = Driver(spec(shutdown_s=3.0)).in_service("a")
    driver(transitions.StopAsked())
    driver.tick(3.0 + KILL_WAIT_S)
    assert driver.tree.finished


def test_stop_while_backing_off_and_while_forking() -> None:
    driver = Driver(spec("a", backoff_initial_s=1.0), spec("b")).in_service("a")
    driver.end("a")
    driver(transitions.Forked("a", 2, 9))
    driver.end("a")
    assert driver.state("a") is State.BACKOFF
    driver(transitions.StopAsked())
    assert driver.state("a") is State.STOPPED
    assert driver(transitions.Forked("b", 1, 8)) == [transitions.AskStop("b", 1, in_service=False)]
    driver.end("b", 15)
    assert driver.tree.finished
    assert driver.tick(100.0) == []


def test_fork_under_way_is_waited_for_however_long_it_takes() -> None:
    driver = Driver(spec(shutdown_s=3.0))
    driver(transitions.Boot())
    assert driver(transitions.RestartAsked("a", "me")) == []
    assert driver.tick(1000.0) == []
    assert [(row.name, row.state) for row in driver.tree.rows(driver.now)] == [("a", "stopping")]
    assert driver(transitions.Forked("a", 1, 8)) == [transitions.AskStop("a", 1, in_service=False)]
    assert of(transitions.Kill, driver.tick(3.0)) == [transitions.Kill("a", 1)]
    assert of(transitions.Fork, driver.end()) == [transitions.Fork("a", 2)]


def test_lost_fork_of_a_child_to_stop_ends_it() -> None:
    driver = Driver(spec())
    driver(transitions.Boot())
    driver(transitions.ActorOrdered("stop", "a", "me"))
    assert driver.tick(1000.0) == []
    (answer,) = of(transitions.Answer, driver(transitions.ForkFailed("a", 1, "the forkserver ended", lost=True)))
    assert (answer.answer.state, answer.answer.held) == ("stopped", True)


def test_lost_fork_is_not_repeated_while_the_agent_stops() -> None:
    driver = Driver(spec("a"), spec("b", depends_on=("a",))).in_service("a", "b")
    driver.end("a")
    assert names(transitions.AskStop, driver(transitions.StopAsked())) == ["b"]
    assert not of(transitions.Fork, driver(transitions.ForkFailed("a", 2, "the forkserver ended", lost=True)))
    assert driver.state("a") is State.STOPPED
    assert driver.tree.children["a"].deaths == 1
    driver.end("b", 0)
    assert driver.tree.finished


def test_stop_during_boot_starts_no_dependents() -> None:
    driver = Driver(spec("a"), spec("b", depends_on=("a",)))
    driver(transitions.Boot())
    driver(transitions.StopAsked())
    driver(transitions.Forked("a", 1, 8))
    assert names(transitions.Fork, driver.end("a", 15)) == []
    assert driver.tree.finished


def test_stop_again_is_answered_too() -> None:
    driver = Driver(spec()).in_service("a")
    driver(transitions.StopAsked("me"))
    assert driver(transitions.StopAsked("you")) == []
    assert of(transitions.Answer, driver.end(status=0)) == [
        transitions.Answer("me", Done()),
        transitions.Answer("you", Done()),
    ]


# Restart by hand


def test_restart_answers_with_the_next_incarnation() -> None:
    driver = Driver(spec()).in_service("a")
    assert driver(transitions.RestartAsked("a", "me")) == [transitions.AskStop("a", 1, in_service=True)]
    out = driver.end(status=0)
    assert of(transitions.Fork, out) == [transitions.Fork("a", 2)]
    (answer,) = of(transitions.Answer, driver.bring_up())
    assert answer.asker == "me"
    assert (answer.answer.incarnation, answer.answer.state, answer.answer.last_death) == (2, "ready", "")


def test_restart_kills_a_child_that_does_not_stop() -> None:
    driver = Driver(spec(shutdown_s=3.0)).in_service("a")
    driver(transitions.RestartAsked("a", "me"))
    assert of(transitions.Kill, driver.tick(3.0)) == [transitions.Kill("a", 1)]
    assert of(transitions.Fork, driver.end()) == [transitions.Fork("a", 2)]


def test_restart_does_not_count_towards_intensity() -> None:
    driver = Driver(spec(max_restarts=1)).in_service("a")
    for _ in range(20):
        driver(transitions.RestartAsked("a", "me"))
        driver.end(status=0)
        driver.bring_up()
    assert driver.state() is State.READY


@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
def test_restart_request_overrides_the_restart_type(restart: str) -> None:
    driver = Driver(spec(restart=type(spec().restart)(restart))).in_service("a")
    driver(transitions.RestartAsked("a", "me"))
    assert names(transitions.Fork, driver.end(status=0)) == ["a"]


def test_restart_ends_a_back_off() -> None:
    driver = Driver(spec(max_restarts=0)).in_service("a")
    driver.end()
    assert driver.state() is State.DEGRADED
    assert names(transitions.Fork, driver(transitions.RestartAsked("a", "me"))) == ["a"]
    (answer,) = of(transitions.Answer, driver.bring_up())
    assert isinstance(answer.answer, ActorRow)


def test_restart_is_refused_when_the_next_incarnation_dies() -> None:
    driver = Driver(spec()).in_service("a")
    driver(transitions.RestartAsked("a", "me"))
    driver.end(status=0)
    driver(transitions.Forked("a", 2, 5))
    (answer,) = of(transitions.Answer, driver(transitions.Ended("a", 2, CRASHED, "KeyError: 'x'")))
    assert isinstance(answer.answer, Refused)
    assert "exit 70: KeyError: 'x'" in answer.answer.message


def test_restart_of_an_unknown_actor_names_the_known() -> None:
    driver = Driver(spec("a"), spec("b")).in_service("a", "b")
    (answer,) = driver(transitions.RestartAsked("z", "me"))
    assert isinstance(answer, transitions.Answer)
    assert isinstance(answer.answer, Refused)
    assert answer.answer.reason == "NotFound"
    assert "there are: a, b" in answer.answer.message


def test_every_state_has_transitions() -> None:
    assert set(TRANSITIONS) == set(State)
    assert not [state for state, targets in TRANSITIONS.items() if state is not State.STOPPED and not targets]


class AnyOrder(RuleBasedStateMachine):
    """For any order of events: only transitions of the table, one process at most, and the tree ends."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(spec("a", heartbeat_period_s=5.0), spec("b", depends_on=("a",), max_restarts=2))
        self.alive: dict[str, int] = {}
        self.forking: dict[str, int] = {}
        self.do(transitions.Boot())

    def do(self, event: Event, after_s: float = 0.0) -> None:
        self.driver.now += after_s
        self.driver.tree.next_wakeup()
        self.follow(self.driver.tree.handle(event, self.driver.now))

    def follow(self, out: list[Instruction]) -> None:
        for instruction in out:
            if isinstance(instruction, transitions.Fork):
                assert instruction.name not in self.forking
                assert instruction.name not in self.alive
                self.forking[instruction.name] = instruction.incarnation
            elif isinstance(instruction, transitions.WriteOff):
                assert instruction.name not in self.forking
                self.alive.pop(instruction.name, None)

    names = st.sampled_from(["a", "b"])

    @rule(name=names)
    def forked(self, name: str) -> None:
        if name in self.forking:
            self.alive[name] = self.forking.pop(name)
            self.do(transitions.Forked(name, self.alive[name], 1))

    @rule(name=names, lost=st.booleans())
    def fork_failed(self, name: str, lost: bool) -> None:
        if name in self.forking:
            self.do(transitions.ForkFailed(name, self.forking.pop(name), "x", lost=lost))

    @rule(name=names, status=st.sampled_from([0, KILLED, CRASHED, None]))
    def ended(self, name: str, status: int | None) -> None:
        if name in self.alive:
            self.do(transitions.Ended(name, self.alive.pop(name), status))

    @rule(name=names, stopped=st.booleans())
    def stopped(self, name: str, stopped: bool) -> None:
        event = transitions.Halted if stopped else transitions.Continued
        self.do(event(name, self.driver.incarnation(name)))

    @rule(name=names, pid=st.sampled_from([1, 2]))
    def ready(self, name: str, pid: int) -> None:
        self.do(transitions.ReadyReceived(name, self.driver.incarnation(name), pid))

    @rule(name=names)
    def pong(self, name: str) -> None:
        self.do(transitions.PongReceived(name, self.driver.incarnation(name), 0))

    @rule(name=names)
    def evidence(self, name: str) -> None:
        self.do(transitions.EvidenceSaved(name, self.driver.incarnation(name), "x"))

    @rule(name=names)
    def restart(self, name: str) -> None:
        self.do(transitions.RestartAsked(name, "me"))

    @rule(name=names, order=st.sampled_from(["stop", "start", "kill"]))
    def order(self, name: str, order: Any) -> None:
        self.do(transitions.ActorOrdered(order, name, "me"))

    @invariant()
    def a_held_child_is_not_about_to_start(self) -> None:
        for child in self.driver.tree.children.values():
            assert not child.held or not child.again

    @rule(after_s=st.floats(min_value=0.0, max_value=40.0))
    def tick(self, after_s: float) -> None:
        self.follow(self.driver.tick(after_s))

    @rule(after_s=st.floats(min_value=0.0, max_value=100.0))
    def late_tick(self, after_s: float) -> None:
        self.do(transitions.Tick(), after_s)

    @rule()
    def stop(self) -> None:
        self.do(transitions.StopAsked("me"))

    @invariant()
    def a_dead_child_has_no_process(self) -> None:
        for child in self.driver.tree.children.values():
            assert child.alive or not child.pid

    def teardown(self) -> None:
        self.do(transitions.StopAsked())
        for _ in range(100):
            if self.driver.tree.finished:
                break
            for name in list(self.forking):
                self.alive[name] = self.forking.pop(name)
                self.do(transitions.Forked(name, self.alive[name], 1))
            self.follow(self.driver.tick(10.0))
        assert self.driver.tree.finished


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

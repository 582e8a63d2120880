"""The watchdog, event by event: pings, suspicion, evidence, and children that hang or are stopped."""

from __future__ import annotations

from functools import partial

import pytest

from proto.agent.supervisor import Exited
from supervisor.supervision import transitions
from supervisor.supervision.hangs import END_TO_END_S
from supervisor.supervision.process_tree import EVIDENCE_WAIT_S, KILL_WAIT_S
from supervisor.supervision.transitions import State
from tests.supervisor.supervision.pure.test_tree import KILLED, Driver, names, of, spec


def watched() -> Driver:
    driver = Driver(spec(heartbeat_period_s=5.0, heartbeat_deadline_s=10.0))
    driver.now = 1001.0
    return driver.in_service("a")


def test_pings_are_aligned_and_pongs_keep_the_mailbox_depth() -> None:
    driver = watched()
    assert driver.tree.next_wakeup() == 1005.0
    assert driver.tick(4.0) == [transitions.SendPing("a", 1)]
    driver(transitions.PongReceived("a", 1, 17), 0.5)
    assert driver.tree.rows(driver.now)[0].mailbox == 17
    assert driver.tree.next_wakeup() == 1010.0


def test_no_pong_saves_evidence_then_kills_then_replaces() -> None:
    driver = watched()
    driver.tick(4.0)
    assert driver.tick(9.9) == []
    out = driver.tick(0.2)
    assert of(transitions.SaveEvidence, out) == [transitions.SaveEvidence("a", 1, "mailbox did not answer within 10 s")]
    assert of(transitions.Kill, out) == []
    assert driver(transitions.EvidenceSaved("a", 1, "/r/a-1.txt")) == [transitions.Kill("a", 1)]
    out = driver.end(status=KILLED)
    assert of(transitions.Fork, out) == [transitions.Fork("a", 2)]
    assert of(Exited, out)[0].reason == "mailbox did not answer within 10 s (evidence /r/a-1.txt)"


def test_missing_evidence_delays_the_kill_only_shortly() -> None:
    driver = watched()
    driver.tick(14.1)
    assert of(transitions.Kill, driver.tick(EVIDENCE_WAIT_S)) == [transitions.Kill("a", 1)]
    assert driver(transitions.EvidenceSaved("a", 1, "late")) == []


def test_suspected_child_is_asked_at_once_and_has_less_time() -> None:
    driver = Driver(spec(heartbeat_period_s=60.0, suspected_deadline_s=3.0)).in_service("a")
    driver(transitions.Suspected("a", 1))
    assert of(transitions.SendPing, driver.tick(0.0))
    assert not of(transitions.SaveEvidence, driver.tick(2.9))
    (order,) = of(transitions.SaveEvidence, driver.tick(0.2))
    assert order.why == "mailbox did not answer within 3 s; another actor waited in vain for it, too"


@pytest.mark.parametrize("changes", [{"suspected_deadline_s": 0.0}, {"heartbeat_period_s": 0.0}])
def test_suspicion_changes_nothing_where_it_is_off(changes: dict[str, float]) -> None:
    driver = Driver(spec(**{"heartbeat_period_s": 60.0, **changes})).in_service("a")
    driver(transitions.Suspected("a", 1))
    assert driver.tick(0.0) == []


def test_suspected_child_that_answers_stays_and_has_its_time_again() -> None:
    driver = Driver(spec(heartbeat_period_s=60.0, suspected_deadline_s=3.0)).in_service("a")
    for _ in range(5):
        driver(transitions.Suspected("a", 1))
        assert of(transitions.SendPing, driver.tick(0.0))
        assert not of(transitions.SaveEvidence, driver.tick(2.0))
        driver(transitions.PongReceived("a", 1, 0))
    driver(transitions.Suspected("a", 0))
    assert not of(transitions.SendPing, driver.tick(0.0)), "of a former incarnation"


def test_suspicion_during_a_ping_shortens_that() -> None:
    driver = Driver(spec(heartbeat_period_s=5.0, suspected_deadline_s=3.0)).in_service("a")
    driver.tick(5.0)
    driver.tick(2.0)
    driver(transitions.Suspected("a", 1))
    assert of(transitions.SaveEvidence, driver.tick(3.1))


def test_idle_child_is_pinged_at_first_and_then_seldom() -> None:
    driver = watched()
    seen: list[transitions.SendPing] = []
    for _ in range(int(END_TO_END_S / 5) + 2):
        pings = of(transitions.SendPing, driver.tick(5.0))
        seen += pings
        for ping in pings:
            answer = transitions.SeenIdle if ping.unless_idle else partial(transitions.PongReceived, mailbox=0)
            assert driver(answer("a", 1)) == []
    pinged = [number for number, ping in enumerate(seen) if not ping.unless_idle]
    assert pinged == [0, int(END_TO_END_S / 5) + 1]
    assert not of(transitions.SaveEvidence, driver.tick(4.9))


def test_child_with_work_after_an_idle_look_has_no_more_time_than_ever() -> None:
    driver = watched()
    driver.tick(4.0)
    driver(transitions.PongReceived("a", 1, 0))
    driver.tick(5.0)
    driver(transitions.SeenIdle("a", 1))
    assert of(transitions.SendPing, driver.tick(5.0)), "not idle: the daemon sends this one"
    assert not of(transitions.SaveEvidence, driver.tick(9.9))
    assert of(transitions.SaveEvidence, driver.tick(0.2))


def test_suspected_child_is_pinged_even_if_it_was_seen_idle() -> None:
    driver = watched()
    driver.tick(4.0)
    driver(transitions.PongReceived("a", 1, 0))
    assert driver.tick(5.0) == [transitions.SendPing("a", 1, unless_idle=True)]
    driver(transitions.Suspected("a", 1))
    driver(transitions.SeenIdle("a", 1))
    assert driver.tick(0.0) == [transitions.SendPing("a", 1)]


def test_not_ready_in_time_is_a_hang() -> None:
    driver = Driver(spec(start_deadline_s=3.0))
    driver(transitions.Boot())
    driver.tick(100.0)  # the forkserver may take its time, that is not the child's
    driver(transitions.Forked("a", 1, 7))
    assert of(transitions.SaveEvidence, driver.tick(3.0))[0].why == "not ready within 3 s of its start"


def test_child_that_survives_sigkill_is_replaced() -> None:
    driver = watched()
    driver.tick(14.1)
    driver(transitions.EvidenceSaved("a", 1, ""))
    out = driver.tick(KILL_WAIT_S)
    assert of(transitions.WriteOff, out) == [transitions.WriteOff("a", 1)]
    assert names(Exited, out) == ["a"]
    assert of(transitions.Fork, out) == [transitions.Fork("a", 2)]
    assert [(row.name, row.state) for row in driver.tree.rows(driver.now)] == [("a", "starting"), ("a#1", "lost")]
    assert driver.end() == [] or driver.incarnation() == 2


def test_stall_of_the_supervisor_counts_against_no_child() -> None:
    driver = watched()
    driver.tick(4.0)
    driver.tree.next_wakeup()
    assert driver(transitions.Tick(), 500.0) == []
    driver(transitions.PongReceived("a", 1, 0))
    assert driver.state() is State.READY


@pytest.mark.parametrize("ready", [True, False])
def test_stopped_process_is_replaced_after_its_own_deadline(ready: bool) -> None:
    driver = Driver(spec(stopped_deadline_s=0.5))
    driver(transitions.Boot())
    driver(transitions.Forked("a", 1, 7))
    if ready:
        driver(transitions.ReadyReceived("a", 1, 7))
    assert driver(transitions.Halted("a", 1)) == []
    assert driver.tick(0.49) == []
    (saved,) = of(transitions.SaveEvidence, driver.tick(0.02))
    assert saved.why == "its process was stopped by a signal and not continued within 0.5 s"


def test_continued_process_is_not_replaced() -> None:
    driver = watched()
    for _ in range(3):
        driver(transitions.Halted("a", 1))
        driver.tick(0.4)
        driver(transitions.Continued("a", 1))
        driver.tick(0.4)
    assert driver.state() is State.READY


def test_stop_of_an_earlier_incarnation_counts_against_none() -> None:
    driver = watched()
    driver.end()
    driver.bring_up()
    driver(transitions.Halted("a", 1))
    driver.tick(1.0)
    assert driver.state() is State.READY


def test_stopped_deadline_of_zero_leaves_it_to_the_watchdog() -> None:
    driver = Driver(spec(stopped_deadline_s=0.0, heartbeat_period_s=5.0, heartbeat_deadline_s=10.0)).in_service("a")
    driver(transitions.Halted("a", 1))
    assert not of(transitions.SaveEvidence, driver.tick(9.0))
    assert of(transitions.SaveEvidence, driver.tick(7.0))

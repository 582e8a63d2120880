"""Two buses: a sender notices messages that its peer has not received, for any cause of the loss."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest

from actors._base.messaging import bus as bus_module
from actors._base.messaging.bus import Bus, Delivery
from actors._base.messaging.futures import Future
from proto.agent.supervisor import Started, Suspect, TellsLost
from proto.pods.pleg import ForgetPod, GetRelistAge, RelistAge
from proto.wire.envelope import Header
from proto.wire.errors import AskTimeout
from tests.harness import wait_for

CHECK_S = 0.05
TELLS = 100


class Pair:
    """The buses of config and pleg, each with its loop in a thread. `lost` has what config's bus reported."""

    def __init__(self, sender: Bus, receiver: Bus) -> None:
        self.sender, self.receiver = sender, receiver
        self.heard: list[str] = []
        self.asked: list[Delivery] = []
        """Asks that wait for `answer`."""
        self.lost: SimpleQueue[TellsLost] = SimpleQueue()
        receiver.deliver = self._deliver
        sender.on_peer_event = lambda event: self.lost.put(event) if isinstance(event, TellsLost) else None
        sender.loop.do(lambda: sender._peer_started(Started(name="pleg", incarnation=receiver.incarnation)))

    def _deliver(self, delivery: Delivery) -> None:
        if isinstance(delivery.message, ForgetPod):
            self.heard.append(delivery.message.pod_uid)
        else:
            self.asked.append(delivery)

    def tell(self, *numbers: int) -> None:
        """Tells with these numbers."""
        for number in numbers:
            self.sender.tell("pleg", ForgetPod(pod_uid=str(number)))

    def at_once(self, work: Callable[[], None], bus: Bus | None = None) -> None:
        """Run this in a bus's loop, by default the sender's, so that no check comes in between."""
        done = threading.Event()
        (bus or self.sender).loop.do(lambda: (work(), done.set()))
        assert done.wait(30)

    def settled(self) -> bool:
        """True when no check is planned or under way."""
        return not self.sender._sent["pleg"]._due


@contextmanager
def running(name: str, run_dir: Path) -> Iterator[Bus]:
    """A bus and its loop."""
    pidfd = os.pidfd_open(os.getpid())
    bus = Bus(name, 3, str(run_dir), pidfd)
    loop = threading.Thread(target=bus.run)
    loop.start()
    try:
        yield bus
    finally:
        bus.stop(0)
        loop.join()
        os.close(pidfd)


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(bus_module, "CHECK_S", CHECK_S)
    with running("config", tmp_path) as sender, running("pleg", tmp_path) as receiver:
        made = Pair(sender, receiver)
        wait_for(lambda: sender._alive.get("pleg") == 3, what="config knows pleg")
        yield made


def test_an_answered_ask_leaves_no_timer(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_module, "CHECK_S", 3600.0)
    idle = pair.sender.timer_count
    answer = pair.sender.ask("pleg", GetRelistAge(), 60)
    wait_for(lambda: pair.asked, what="the ask")
    assert not pair.settled(), "a check is planned"
    assert pair.sender.timer_count == idle + 2
    pair.receiver.answer(pair.asked.pop(), RelistAge(age_s=1.0))
    assert answer.result(30) == RelistAge(age_s=1.0)
    wait_for(lambda: pair.settled() and pair.sender.timer_count == idle, what="neither a check nor a deadline")


def test_a_tell_is_checked_though_an_ask_is_answered_after_it(pair: Pair) -> None:
    pair.tell(1)
    answer = pair.sender.ask("pleg", GetRelistAge(), 60)
    wait_for(lambda: pair.asked, what="the ask")
    pair.receiver.answer(pair.asked.pop(), RelistAge(age_s=1.0))
    assert answer.result(30) == RelistAge(age_s=1.0)
    wait_for(pair.settled, what="the check")
    assert not pair.sender._sent["pleg"].has_unchecked


def test_nothing_is_reported_while_all_arrive(pair: Pair) -> None:
    threads = [threading.Thread(target=pair.tell, args=range(TELLS)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_for(lambda: len(pair.heard) == 3 * TELLS and pair.settled(), what="a check after the last tell")
    assert pair.lost.empty()


@pytest.mark.parametrize("lost", [{1}, {TELLS - 1}, {*range(TELLS)}], ids=["one", "the last", "all"])
def test_lost_tells_are_reported(pair: Pair, lost: set[int]) -> None:
    send = pair.sender._send

    def tell_all() -> None:
        for number in range(TELLS):
            pair.sender._send = (lambda *_: True) if number in lost else send  # type: ignore[method-assign]
            pair.tell(number)
        pair.sender._send = send  # type: ignore[method-assign]

    pair.at_once(tell_all)
    assert pair.lost.get(timeout=30) == TellsLost(name="pleg", incarnation=3)
    pair.tell(TELLS)
    wait_for(lambda: str(TELLS) in pair.heard and pair.settled(), what="a further check")
    assert pair.lost.empty()
    assert pair.sender.dropped["lost"] == len(lost)


def test_tells_that_an_actor_could_not_keep_are_reported(pair: Pair) -> None:
    pair.receiver.deliver = pair.receiver.drop_early
    pair.at_once(lambda: pair.tell(1, 2))
    pair.lost.get(timeout=30)
    assert pair.sender.dropped["lost"] == 2
    assert pair.receiver.dropped["too_early"] == 2


def test_a_check_that_finds_a_full_queue_is_made_again(pair: Pair) -> None:
    send, refused = pair.sender._send, threading.Event()

    def refuse(*_: object) -> bool:
        refused.set()
        return False

    def tell() -> None:
        pair.tell(1)
        pair.sender._send = refuse  # type: ignore[method-assign]

    pair.at_once(tell)
    assert refused.wait(30)
    pair.sender._send = send  # type: ignore[method-assign]
    wait_for(lambda: pair.heard == ["1"] and pair.settled(), what="a check")
    assert pair.lost.empty()


def test_peer_that_answers_no_check_is_suspected(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_module, "CHECK_TIMEOUT_S", CHECK_S)
    told: SimpleQueue[object] = SimpleQueue()
    tell = pair.sender.tell
    pair.sender.tell = lambda name, message: told.put(message) if name == "supervisor" else tell(name, message)  # type: ignore[method-assign]
    hangs = threading.Event()
    pair.receiver.loop.do(hangs.wait)
    pair.tell(1)
    assert told.get(timeout=30) == Suspect(name="pleg", incarnation=3)
    monkeypatch.setattr(bus_module, "CHECK_TIMEOUT_S", 60.0)  # a slow machine is no reason any more
    hangs.set()
    wait_for(pair.settled, what="it answers again")
    while not told.empty():
        told.get()
    pair.tell(2)
    wait_for(pair.settled)
    assert told.empty()


def test_a_lost_ask_fails_long_before_its_deadline(pair: Pair) -> None:
    send = pair.sender._send
    asks: list[Future[RelistAge]] = []

    def ask() -> None:
        pair.sender._send = lambda *_: True  # type: ignore[method-assign]
        asks.append(pair.sender.ask("pleg", GetRelistAge(), 3600))
        pair.sender._send = send  # type: ignore[method-assign]

    pair.at_once(ask)
    with pytest.raises(AskTimeout, match="it or its answer was lost"):
        asks[0].result(30)
    assert pair.sender.dropped["lost"] == 1
    assert pair.lost.empty()


def test_a_lost_answer_fails_its_ask(pair: Pair) -> None:
    ask = pair.sender.ask("pleg", GetRelistAge(), 3600)
    wait_for(lambda: pair.asked, what="the ask arrives")
    inbox_send = pair.receiver._inbox.send

    def answer() -> None:
        pair.receiver._inbox.send = lambda *_: True  # type: ignore[method-assign]
        pair.receiver.answer(pair.asked[0], RelistAge(age_s=1.0))
        pair.receiver._inbox.send = inbox_send  # type: ignore[method-assign]

    pair.at_once(answer, pair.receiver)
    with pytest.raises(AskTimeout, match="it or its answer was lost"):
        ask.result(30)


def test_an_ask_under_way_is_left_alone_however_long_it_takes(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[tuple[int, ...]] = []
    unknown = pair.receiver._received.unknown

    def noted(header: Header, numbers: tuple[int, ...]) -> tuple[int, ...]:
        checks.append(numbers)
        return unknown(header, numbers)

    monkeypatch.setattr(pair.receiver._received, "unknown", noted)
    ask = pair.sender.ask("pleg", GetRelistAge(), 3600)
    wait_for(lambda: len(checks) >= 3, what="three checks")
    assert not ask.done()
    pair.receiver.answer(pair.asked[0], RelistAge(age_s=1.0))
    assert ask.result(30) == RelistAge(age_s=1.0)
    wait_for(pair.settled, what="no check is needed any more")
    assert pair.sender.dropped["lost"] == 0

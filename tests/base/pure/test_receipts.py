"""Receipts: each lost message is noticed at a check, once, and nothing else is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors._base.messaging.receipts import MAX_SENDERS, Received, Sent
from proto.wire.envelope import VERSION, Header, Kind

OWN, PEER = 2, 3
"""Incarnations of the sender and of the receiver."""


def header(kind: Kind, correlation: int, source: str = "config", incarnation: int = OWN) -> Header:
    return Header(VERSION, kind, "X", source, incarnation, correlation, 0)


def tell(receiver: int = PEER, source: str = "config", incarnation: int = OWN) -> Header:
    return header(Kind.TELL, receiver, source, incarnation)


def test_only_the_first_message_plans_a_check():
    sent = Sent()
    assert [sent.add(3, tells=tells) for tells in (1, 0, 1)] == [True, False, False]
    assert sent.settle(2, 2, asks=False) == (0, False)
    assert sent.add(3, tells=0)


def test_messages_during_a_check_plan_the_next_one():
    sent = Sent()
    sent.add(3, tells=1)
    sent.add(3, tells=1)
    assert sent.settle(1, 1, asks=False) == (0, True)
    assert sent.has_unchecked
    assert not sent.add(3, tells=1)


def test_an_ask_without_an_answer_plans_the_next_check_and_is_no_tell():
    sent = Sent()
    sent.add(3, tells=0)
    assert not sent.has_unchecked
    assert sent.settle(0, 0, asks=True) == (0, True)


def test_nothing_counts_while_no_peer_is_in_service_and_a_new_one_starts_at_zero():
    sent = Sent()
    assert not sent.add(0, tells=1)
    assert sent.add(1, tells=1)
    assert sent.add(2, tells=1)
    assert (sent.incarnation, sent.count) == (2, 1)


def test_a_sender_that_starts_anew_is_counted_from_zero():
    received = Received()
    for incarnation in (1, 2, 2):
        received.add(tell(incarnation=incarnation), PEER)
    received.add(tell(receiver=PEER - 1, incarnation=2), PEER)  # for the receiver before
    received.dropped(tell(incarnation=2), PEER)
    assert [received.tells(tell(incarnation=n)) for n in (1, 2, 3)] == [0, 1, 0]


def test_names_that_anyone_can_invent_take_no_memory():
    received = Received()
    names = [f"sender-{number}" for number in range(2 * MAX_SENDERS)]
    for name in names:
        received.add(tell(source=name), PEER)
    assert sum(received.tells(tell(source=name)) for name in names) == MAX_SENDERS


def test_asks_are_known_until_they_are_answered():
    received, checker = Received(), header(Kind.ASK, 99)
    for number in (1, 2):
        received.add(header(Kind.ASK, number), PEER)
    received.answered(header(Kind.ASK, 1))
    assert received.unknown(checker, (1, 2, 3)) == (1, 3)
    assert received.unknown(header(Kind.ASK, 99, incarnation=OWN + 1), (2,)) == (2,)


def test_asks_of_others_than_actors_are_not_kept():
    received = Received()
    received.add(header(Kind.ASK, 1, "console", 0), PEER)
    assert received.unknown(header(Kind.ASK, 2, "console", 0), (1,)) == (1,)


STEPS = st.lists(st.sampled_from(["arrives", "lost", "early", "check", "new sender", "new receiver"]), max_size=60)


@given(STEPS)
def test_each_lost_tell_is_noticed_once(steps: list[str]) -> None:
    sent, received, peer, own, lost = Sent(), Received(), 1, 1, 0
    for step in [*steps, "check"]:
        match step:
            case "arrives" | "lost" | "early":
                sent.add(peer, tells=1)
                if step != "lost":
                    received.add(tell(peer, incarnation=own), peer)
                if step == "early":
                    received.dropped(tell(peer, incarnation=own), peer)
                lost += step != "arrives"
            case "new sender":
                sent, own, lost = Sent(), own + 1, 0
            case "new receiver":
                received, peer, lost = Received(), peer + 1, 0
            case "check" if sent.incarnation == peer:
                count = sent.count
                found = sent.settle(count, received.tells(tell(peer, incarnation=own)), asks=False)
                assert found == (lost, False)
                lost = 0


class Planned:
    """A timer that is set."""

    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


def with_plan() -> tuple[Sent, int, Planned]:
    """A peer that was asked, and has answered."""
    sent, timer = Sent(), Planned()
    assert sent.add(3, tells=0)
    number = sent.next_plan()
    sent.timer = timer  # type: ignore[assignment]
    return sent, number, timer


def test_check_with_nothing_to_check_is_cancelled():
    sent, number, timer = with_plan()
    sent.unanswered = 1
    sent.cancel_check()
    assert (timer.cancelled, sent.timer, sent.unanswered) == (True, None, 0)
    assert not sent.begins(number), "its timer was firing already"
    assert sent.add(3, tells=0), "the next message plans one"


def test_check_of_a_tell_is_not_cancelled():
    sent, number, timer = with_plan()
    sent.add(3, tells=1)
    sent.cancel_check()
    assert not timer.cancelled
    assert sent.begins(number)
    sent.cancel_check()
    assert not sent.add(3, tells=0), "it is under way, and plans the next one"


def test_plan_for_a_former_incarnation_does_nothing():
    sent, number, timer = with_plan()
    assert sent.add(4, tells=0)
    assert timer.cancelled
    assert not sent.begins(number)
    assert sent.begins(sent.next_plan())

"""Order, gathering and back-off of the write queue. Time is handed in."""

from __future__ import annotations

import random

import pytest

from actors.status.sync_actions import Priority
from actors.status.write_queue import CAP_S, GATHER_S, MAX_CALLS, MOST_STALE, OUTAGE, WriteQueue

FINAL, READINESS, REST = Priority.FINAL, Priority.READINESS, Priority.REST


def drain(queue: WriteQueue, now: float) -> list[str]:
    """The keys that are due, in order."""
    taken = []
    while (key := queue.take(now)) is not None:
        taken.append(key)
        queue.unneeded(key)
    return taken


def test_ends_go_first_then_readiness_then_rest_each_by_age():
    queue = WriteQueue()
    for number, (key, priority) in enumerate(
        [("r1", REST), ("r2", REST), ("y1", READINESS), ("f1", FINAL), ("y2", READINESS), ("f2", FINAL)]
    ):
        queue.add(key, priority, float(number))
    assert drain(queue, 10.0) == ["f1", "f2", "y1", "y2", "r1", "r2"]


def test_key_is_queued_once_with_latest_priority_and_first_time():
    queue = WriteQueue()
    queue.add("a", REST, 0.0)
    queue.add("b", FINAL, 1.0)
    queue.add("a", FINAL, 2.0)
    assert len(queue) == 2
    assert drain(queue, 3.0) == ["a", "b"]


def test_low_priority_waits_to_gather_changes_and_not_longer():
    queue = WriteQueue()
    queue.add("a", REST, 0.0, gather_s=GATHER_S)
    queue.add("a", REST, 0.05, gather_s=GATHER_S)
    assert queue.take(0.06) is None
    assert queue.wait_s(0.06) == pytest.approx(GATHER_S - 0.06)
    assert queue.take(GATHER_S) == "a"
    queue.unneeded("a")
    queue.add("a", REST, 1.0, gather_s=GATHER_S)
    queue.add("a", READINESS, 1.01)
    assert queue.take(1.01) == "a"


def test_calls_are_bounded_and_a_key_has_one_at_a_time():
    queue = WriteQueue()
    for key in "abc":
        queue.add(key, REST, 0.0)
    assert [queue.take(1.0) for _ in range(MAX_CALLS)] == ["a", "b"]
    queue.add("a", FINAL, 1.0)
    assert queue.take(1.0) is None
    queue.succeeded("b", REST, 1.0)
    assert queue.take(1.0) == "c"
    queue.succeeded("a", REST, 1.0)
    assert queue.take(1.0) == "a"


def test_key_is_queued_again_after_a_successful_call():
    queue = WriteQueue()
    queue.add("a", REST, 0.0)
    assert queue.take(0.0) == "a"
    queue.succeeded("a", REST, 0.1)
    assert drain(queue, 0.1) == ["a"]
    assert not len(queue)


def test_refused_key_backs_off_alone():
    queue = WriteQueue()
    queue.add("bad", FINAL, 0.0)
    now, waits = 0.0, []
    for _ in range(7):
        assert queue.take(now) == "bad"
        queue.refused("bad", FINAL, now)
        queue.add("good", REST, now)
        assert drain(queue, now) == ["good"]
        wait_s = queue.wait_s(now)
        assert wait_s is not None
        waits.append(wait_s)
        queue.add("bad", FINAL, now)
        assert queue.take(now) is None  # another status of it does not make it more welcome
        now += wait_s
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, CAP_S, CAP_S]
    queue.add("bad", FINAL, now, fresh=True)
    assert queue.take(now) == "bad"
    queue.succeeded("bad", FINAL, now)
    assert queue.take(now) == "bad"
    queue.refused("bad", FINAL, now)
    assert queue.wait_s(now) == 0.25


def test_outage_stops_the_queue_and_then_one_call_tries():
    queue = WriteQueue()
    for key in "abcd":
        queue.add(key, REST, 0.0)
    a, b = queue.take(0.0), queue.take(0.0)
    assert (a, b) == ("a", "b")
    queue.unavailable("a", REST, 0.0, 0.5)
    queue.unavailable("b", REST, 0.0, 0.5)
    queue.add("end", FINAL, 0.05)
    assert queue.take(0.05) is None
    wait_s = queue.wait_s(0.05)
    assert wait_s is not None
    now = 0.05 + wait_s
    assert queue.take(now) == "end"
    assert queue.take(now) is None
    queue.succeeded("end", FINAL, now)
    assert queue.take(now) is not None
    assert queue.take(now) is not None


def test_long_outage_is_tried_at_bounded_intervals():
    queue = WriteQueue()
    queue.add("a", REST, 0.0)
    now = 0.0
    for _ in range(40):
        assert queue.take(now) == "a"
        queue.unavailable("a", REST, now, random.random())
        wait_s = queue.wait_s(now)
        assert wait_s is not None
        assert 0.05 < wait_s <= 1.25 * OUTAGE.cap_s
        now += wait_s
    assert now < 40 * 1.25 * OUTAGE.cap_s
    queue.server_answered()
    assert queue.take(now) == "a"


def test_retry_after_is_kept_although_the_server_answers_others():
    queue = WriteQueue()
    queue.add("a", FINAL, 0.0)
    assert queue.take(0.0) == "a"
    queue.unavailable("a", FINAL, 0.0, 0.0, 7.0)
    queue.server_answered()
    assert queue.take(6.9) is None
    assert queue.wait_s(0.0) == 7.0
    assert queue.take(7.0) == "a"


def test_forgotten_key_leaves_the_queue():
    queue = WriteQueue()
    queue.add("a", FINAL, 0.0)
    queue.add("b", FINAL, 0.0)
    queue.take(0.0)
    queue.add("a", FINAL, 0.0)
    queue.forget("b")
    queue.forget("a")
    queue.unneeded("a")
    assert len(queue) == 0


@pytest.mark.parametrize("seed", range(5))
def test_every_key_is_written_under_random_failures(seed):
    chance = random.Random(seed)
    queue, now, said = WriteQueue(), 0.0, 0
    keys = [f"k{number}" for number in range(20)]
    active: list[str] = []
    for step in range(2000):
        now += chance.random() * 0.1
        if step < 1000:
            queue.add(chance.choice(keys), chance.choice((FINAL, READINESS, REST)), now, gather_s=0.1)
        while (key := queue.take(now)) is not None:
            assert key not in active
            active.append(key)
        assert len(active) <= MAX_CALLS
        for key in list(active):
            if chance.random() < 0.5:
                active.remove(key)
                match chance.randrange(10) if step < 1200 else 9:
                    case 0:
                        queue.unavailable(key, REST, now, chance.random())
                    case 1:
                        queue.refused(key, REST, now)
                    case 2:
                        queue.succeeded(key, REST, now)
                        said += 1
                    case _:
                        queue.unneeded(key)
                        said += 1
    assert said > 100
    assert len(queue) == 0


def test_change_during_a_refused_call_shortens_its_backoff():
    queue = WriteQueue()
    queue.add("a", REST, 0.0)
    assert queue.take(0.0) == "a"
    queue.add("a", REST, 0.1, fresh=True)
    queue.refused("a", REST, 0.2, wait_s=10.0)
    assert queue.wait_s(0.2) == pytest.approx(0.25)


class Scanned(WriteQueue):
    """The same queue, which looks at every key each time."""

    def take(self, now: float) -> str | None:
        if len(self._active) >= self._max_calls or self.held_s(now) > 0:
            return None
        due = [(entry.priority, entry.since, key) for key, entry in self._waiting.items() if entry.not_before <= now]
        if not due:
            return None
        _, since, key = min(due)
        del self._waiting[key]
        self._active[key] = since
        return key

    def wait_s(self, now: float) -> float | None:
        if not self._waiting or len(self._active) >= self._max_calls:
            return None
        return max(self.held_s(now), min(entry.not_before for entry in self._waiting.values()) - now)


@pytest.mark.parametrize("seed", range(20))
def test_order_and_waits_are_those_of_a_scan_of_all_keys(seed):
    chance = random.Random(seed)
    queues, now = (WriteQueue(), Scanned()), 0.0
    keys, active = [f"k{number}" for number in range(12)], []
    for _ in range(1000):
        now = round(now + chance.choice((0.0, 0.01, 0.05, -0.01)), 2)
        key, priority = chance.choice(keys), chance.choice((FINAL, READINESS, REST))
        jitter, gather_s, fresh = chance.random(), chance.choice((0.0, GATHER_S)), chance.random() < 0.2
        step = chance.randrange(10)
        for queue in queues:
            if step < 6:
                queue.add(key, priority, now, gather_s=gather_s, fresh=fresh)
            elif step == 6:
                queue.forget(key)
            elif step == 7 and active:
                queue.refused(active[0], priority, now)
            elif step == 8 and active:
                queue.succeeded(active[0], priority, now)
            elif active:
                queue.unavailable(active[0], priority, now, jitter) if jitter < 0.1 else queue.unneeded(active[0])
        if step >= 7:
            del active[:1]
        assert queues[0].wait_s(now) == queues[1].wait_s(now)
        taken = [queue.take(now) for queue in queues]
        assert taken[0] == taken[1]
        active += [one for one in taken[:1] if one is not None]


def test_outdated_items_do_not_gather():
    queue = WriteQueue()
    for number in range(10_000):
        queue.add("a", (READINESS, REST)[number % 2], 0.0)
        queue.add("b", REST, 0.0, gather_s=GATHER_S)
        queue.wait_s(0.0)
    assert len(queue._due) + len(queue._later) <= MOST_STALE + 5

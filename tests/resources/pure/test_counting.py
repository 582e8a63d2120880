"""Each pod counts once, however often it is tried."""

from __future__ import annotations

import pytest

from actors._metrics.registry import Counter, Registry
from actors.resources.model.counting import Counted, Pinnings
from actors.resources.model.provider import AllocationError
from proto.v1 import Container, ObjectMeta, Pod


@pytest.fixture
def counters() -> tuple[Counter, Counter]:
    registry = Registry()
    return registry.counter("requests", ""), registry.counter("errors", "")


def value(counter: Counter) -> float:
    return counter.take().get((), (0.0,))[0]


POD = Pod(metadata=ObjectMeta(name="p", uid="u"))


def test_pod_counts_again_after_its_end(counters: tuple[Counter, Counter]) -> None:
    counted = Counted()
    assert [counted.count(counters[0], uid) for uid in "aab"] == [True, False, True]
    counted.retain({"b"})
    assert [counted.count(counters[0], uid) for uid in "ab"] == [True, False]
    counted.forget("b")
    assert counted.count(counters[0], "b")
    assert value(counters[0]) == 4


def test_each_series_of_a_counter_counts_once() -> None:
    counter, counted = Registry().counter("aligned", "", "boundary"), Counted()
    for _ in range(2):
        for boundary in ("core", "cache"):
            counted.count(counter, "u", "c", (boundary,))
    assert counter.take() == {("core",): (1.0,), ("cache",): (1.0,)}


def test_failure_names_its_counter_and_waits_for_the_decision(counters: tuple[Counter, Counter]) -> None:
    pinnings = Pinnings(*counters)
    for _ in range(2):
        with pytest.raises(AllocationError) as failed, pinnings.asked(POD, Container(name="c")):
            raise AllocationError("reason", "message")
        assert failed.value.counts == ((counters[1], ()),)
    with pinnings.asked(POD, Container(name="d")):
        pass
    assert (value(counters[0]), value(counters[1])) == (2, 0)

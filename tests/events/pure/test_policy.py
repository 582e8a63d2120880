"""Correlation of events: tables against client-go's defaults."""

from __future__ import annotations

import random

import pytest

from actors.events.entry import Entry, event_name, to_api
from actors.events.policy import COMBINED, OWN_REASONS, Correlator, Limits
from actors.events.sending import as_created
from actors.events.store import MOST, MOST_BYTES, TTL_S, Store
from proto.v1 import ObjectReference, to_dict

START_NS = 1_800_000_000 * 10**9


def entry(at_s: float = 0.0, message: str = "m", pod: str = "p", **fields: object) -> Entry:
    time_ns = START_NS + int(at_s * 1e9)
    path = fields.pop("path", "spec.containers{c}")
    involved = ObjectReference(kind="Pod", namespace="ns", name=pod, uid=f"uid-{pod}", field_path=str(path))
    given = {"type": "Normal", "reason": "Pulled", "involved": involved} | fields
    return Entry(name=event_name(pod, time_ns), message=message, first_ns=time_ns, last_ns=time_ns, **given)  # type: ignore[arg-type]


def fed(entries: list[Entry], correlator: Correlator | None = None) -> list[Entry]:
    correlator = correlator or Correlator()
    return [found for one in entries if (found := correlator.observe(one)) is not None]


def test_equal_events_are_one_that_is_counted():
    first, second, third = fed([entry(0), entry(1), entry(30)])
    assert (first.count, second.count, third.count) == (1, 2, 3)
    assert first.name == second.name == third.name
    assert (third.first_ns, third.last_ns) == (START_NS, START_NS + 30 * 10**9)


@pytest.mark.parametrize(
    "other",
    [
        {"message": "another"},
        {"pod": "another"},
        {"reason": "Created"},
        {"type": "Warning"},
        {"component": "nodevisor"},
        {"path": "spec.initContainers{c}"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_fields_that_make_events_different(other):
    one, two = fed([entry(0), entry(1, **other)])
    assert (one.count, two.count) == (1, 1)
    assert one.name != two.name


@pytest.mark.parametrize(
    ("messages", "combined"),
    [
        ([f"m{n}" for n in range(9)], 0),
        ([f"m{n}" for n in range(10)], 1),
        ([f"m{n}" for n in range(13)], 4),
        (["m"] * 20, 0),
        ([f"m{n}" for n in range(9)] * 2, 0),
    ],
    ids=["nine", "ten", "thirteen", "equal", "nine twice"],
)
def test_ten_similar_ones_are_combined(messages, combined):
    found = fed([entry(n, message) for n, message in enumerate(messages)])
    together = [one for one in found if one.message.startswith(COMBINED)]
    assert len(together) == combined
    assert len({one.name for one in together}) == (combined > 0)
    assert [one.count for one in together] == list(range(1, combined + 1))
    if together:
        assert together[-1].message == COMBINED + messages[-1]


def test_repeats_keep_the_annotations_of_the_first():
    """They are no part of the key, and a patch does not change them."""
    correlator = Correlator()
    given = [entry(0, annotations={"k": "first"}), entry(1, annotations={"k": "second"}), entry(2)]
    found = fed(given, correlator)
    assert [(one.count, one.annotations) for one in found] == [(n, {"k": "first"}) for n in (1, 2, 3)]
    restored = Correlator()
    restored.restore(found[-1:])
    (fourth,) = fed([entry(3, annotations={"k": "fourth"})], restored)
    assert (fourth.count, fourth.annotations) == (4, {"k": "first"})


def test_combined_events_have_no_annotations():
    found = fed([entry(n, f"m{n}", annotations={"k": str(n)}) for n in range(12)])
    assert [one.annotations for one in found] == [{"k": str(n)} for n in range(9)] + [{}] * 3


@pytest.mark.parametrize(("apart_s", "combined"), [(600.0, True), (600.1, False)])
def test_combining_ends_ten_minutes_after_the_last_similar_event(apart_s, combined):
    limits = Limits(burst=1000)
    found = fed([entry(n * apart_s, f"m{n}") for n in range(12)], Correlator(limits))
    assert any(one.message.startswith(COMBINED) for one in found) is combined


def test_similar_means_one_type_and_reason_of_one_object():
    mixed = [entry(n, f"m{n}", reason="AB"[n % 2]) for n in range(18)]
    assert not any(one.message.startswith(COMBINED) for one in fed(mixed))


@pytest.mark.parametrize("reason", sorted(OWN_REASONS))
def test_own_events_hold_back_none_of_the_kubelets(reason):
    own = fed([entry(n, reason=reason) for n in range(60)], correlator := Correlator())
    assert len(own) == 25, "they have a limit, too"
    assert len(fed([entry(60 + n, f"m{n % 3}") for n in range(30)], correlator)) == 25


def test_an_object_may_burst_25_and_then_one_every_five_minutes():
    correlator = Correlator()
    assert len(fed([entry(n * 0.01) for n in range(100)], correlator)) == 25
    assert fed([entry(299)], correlator) == []
    (passed,) = fed([entry(302)], correlator)
    assert passed.count == 102  # what was held back has been counted
    assert fed([entry(303)], correlator) == []
    assert len(fed([entry(303, pod="q")], correlator)) == 1
    assert len(fed([entry(303, component="nodevisor")], correlator)) == 1


def test_a_clock_that_is_set_back_opens_no_bucket():
    correlator = Correlator()
    fed([entry(n * 0.01) for n in range(30)], correlator)
    assert fed([entry(-7200 + n) for n in range(100)], correlator) == []
    assert len(fed([entry(301)], correlator)) == 1


def test_correlator_memory_is_bounded():
    correlator = Correlator(Limits(remembered=50))
    for n in range(1000):
        correlator.observe(entry(n, f"m{n}" * 100, pod=f"p{n % 333}", reason=f"R{n % 7}"))
    assert set(correlator.sizes().values()) == {50}


@pytest.mark.parametrize("seed", range(20))
def test_a_restart_in_between_changes_no_count(seed):
    """After a restore the next event is the same as without a restart, except for the token buckets."""
    limits = Limits(burst=10**6)
    rng = random.Random(seed)
    said = [
        entry(n * rng.choice([1, 30]), f"m{rng.randrange(14)}", pod=rng.choice("pq"), reason=rng.choice("RS"))
        for n in range(rng.randrange(60))
    ]
    whole, store = Correlator(limits), Store()
    for n, one in enumerate(said):
        found = whole.observe(one)
        assert found is not None
        store.put(found, START_NS + n)
    restored = Correlator(limits)
    restored.restore(list(store.entries.values()))
    for message in ("m1", "new"):
        following = entry(2000, message)
        assert restored.observe(following).count == whole.observe(following).count  # type: ignore[union-attr]


def test_events_pass_after_the_clock_is_set_back():
    """Eight hours ahead at boot, as without a battery; then one event each five minutes, which are all to pass."""
    correlator = Correlator()
    assert fed([entry(8 * 3600.0, "ahead")], correlator)
    later = [entry(300.0 * n, f"m{n}", reason=f"R{n}") for n in range(1, 80)]
    assert len(fed(later, correlator)) == len(later)


# The store


def test_events_go_an_hour_after_their_last_change():
    store = Store()
    store.put(entry(0, pod="a"), START_NS)
    store.put(entry(0, pod="b"), START_NS)
    store.put(entry(0, pod="a"), START_NS + 10**9)
    assert store.expire(START_NS + int(TTL_S * 1e9)) == 0
    assert store.expire(START_NS + int((TTL_S + 0.5) * 1e9)) == 1
    assert [one.involved.name for one in store.entries.values()] == ["a"]


def test_the_oldest_go_when_there_are_too_many_or_too_long_ones():
    store = Store()
    for n in range(MOST + 10):
        store.put(entry(n, pod=f"p{n}"), START_NS + n)
    assert len(store.entries) == MOST
    assert next(iter(store.entries.values())).involved.name == "p10"
    for n in range(1500):
        store.put(entry(n, "x" * 4096, pod=f"q{n}"), START_NS + n)
    assert sum(len(one.message) for one in store.entries.values()) <= MOST_BYTES


def test_long_annotations_count_as_long_messages_do():
    store = Store()
    for n in range(100):
        store.put(entry(n, pod=f"p{n}", annotations={"k" * 1000: "v" * 99_000}), START_NS + n)
    assert len(store.entries) == MOST_BYTES // 100_001


def test_revisions_rise_and_tell_what_has_changed():
    store = Store()
    first = store.put(entry(0, pod="a"), START_NS)
    second = store.put(entry(0, pod="b"), START_NS)
    third = store.put(entry(0, pod="a"), START_NS - 10**9)
    assert first.revision < second.revision < third.revision
    assert [one.involved.name for one in store.since(first.revision)] == ["b", "a"]


def test_annotations_are_in_the_metadata():
    given = entry(annotations={"starved_resource": "memory"})
    assert to_api(given, "vm").metadata.annotations == {"starved_resource": "memory"}
    created = as_created(given, "vm")["metadata"]
    assert created == {"name": given.name, "namespace": "ns", "annotations": {"starved_resource": "memory"}}
    assert as_created(entry(), "vm")["metadata"].keys() == {"name", "namespace"}


def test_an_event_in_the_api_s_shape():
    shown = to_dict(to_api(entry(1.5, "pulled"), "vm"))
    assert shown["metadata"].pop("uid")
    assert shown == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"p.{START_NS + 1_500_000_000:x}",
            "namespace": "ns",
            "resourceVersion": "0",
            "creationTimestamp": "2027-01-15T08:00:01Z",
        },
        "involvedObject": {
            "kind": "Pod", "namespace": "ns", "name": "p", "uid": "uid-p", "fieldPath": "spec.containers{c}",
        },
        "reason": "Pulled",
        "message": "pulled",
        "source": {"component": "kubelet", "host": "vm"},
        "firstTimestamp": "2027-01-15T08:00:01Z",
        "lastTimestamp": "2027-01-15T08:00:01Z",
        "count": 1,
        "type": "Normal",
        "reportingComponent": "kubelet",
        "reportingInstance": "vm",
    }  # fmt: skip

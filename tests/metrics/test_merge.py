import json

from hypothesis import given, settings
from hypothesis import strategies as st

from actors._metrics.merge import Merged
from actors._metrics.registry import Registry

REGISTRY = Registry()
CALLS = REGISTRY.counter("calls_total", "c", "kind")
SECONDS = REGISTRY.histogram("seconds", "s", bounds=(1.0,))
DEPTH = REGISTRY.gauge("depth", "d", "actor")


def counted(value, kind="x"):
    return {"calls_total": (((kind,), (float(value),)),)}


def calls(merged, kind="x", serving=("a", "b")):
    return merged.samples(serving).get("calls_total", {}).get((kind,), (0.0,))[0]


def test_counters_and_histograms_of_processes_add_up():
    merged = Merged(REGISTRY)
    merged.take("a", 1, counted(3) | {"seconds": (((), (1.0, 2.0, 9.0)),)}, 0)
    merged.take("b", 1, counted(4) | {"seconds": (((), (1.0, 0.0, 0.5)),)}, 0)
    assert calls(merged) == 7
    assert merged.samples(("a", "b"))["seconds"] == {(): (2.0, 2.0, 9.5)}


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.integers(0, 9)), max_size=30))
def test_sums_never_decrease_across_restarts(steps):
    merged, state, last = Merged(REGISTRY), {"a": (1, 0), "b": (1, 0)}, 0.0
    for name, restart, more in steps:
        incarnation, value = state[name]
        state[name] = (incarnation + 1, more) if restart else (incarnation, value + more)
        merged.take(name, state[name][0], counted(state[name][1]), 0)
        assert calls(merged) >= last
        last = calls(merged)


def test_the_counters_of_a_dead_process_stay_and_its_gauges_go():
    merged = Merged(REGISTRY)
    merged.take("a", 1, counted(3) | {"depth": ((("a",), (5.0,)),)}, 0)
    assert merged.samples(["a"])["depth"] == {("a",): (5.0,)}
    assert "depth" not in merged.samples([])
    assert calls(merged, serving=()) == 3
    assert merged.take("a", 2, counted(1), 1)
    assert calls(merged) == 4


def test_counts_of_a_dead_process_are_stored_at_once():
    merged, after = Merged(REGISTRY), Merged(REGISTRY)
    merged.take("a", 1, counted(3), 0)
    assert not merged.replaced("a", 1)
    assert merged.replaced("a", 2)
    assert not merged.replaced("a", 2)
    after.restore(json.loads(json.dumps(merged.saved())))
    assert calls(merged) == calls(after) == 3
    assert not merged.take("a", 2, counted(1), 1)
    assert not merged.replaced("a", 1), "by who is behind the times"
    assert calls(merged) == 4


def test_silent_process_keeps_its_last_samples_and_their_age():
    merged = Merged(REGISTRY)
    merged.take("a", 1, counted(3), 10.0)
    assert calls(merged) == 3
    assert merged.age("a", 12.5) == 2.5
    assert merged.age("never", 12.5) is None


def test_counts_of_dead_processes_survive_a_merger_restart():
    merged = Merged(REGISTRY)
    merged.take("a", 1, counted(3), 0)
    merged.take("a", 2, counted(1), 0)
    successor = Merged(REGISTRY)
    successor.restore(json.loads(json.dumps(merged.saved())))
    successor.take("a", 2, counted(1), 0)
    assert calls(successor) == 4


def test_samples_of_another_version_are_left_out():
    merged = Merged(REGISTRY)
    odd = {"unknown": (((), (1.0,)),), "seconds": (((), (1.0,)),), "calls_total": ((("x", "y"), (1.0,)),)}
    merged.take("a", 1, odd, 0)
    assert all(not samples for samples in merged.samples(["a"]).values())
    merged.restore([["unknown", []], ["calls_total", [[["x", "y"], [1.0]]]]])
    assert calls(merged) == 0


def test_series_of_pods_end_with_their_process():
    registry = Registry()
    registry.counter("probes_total", "p", "pod")
    merged = Merged(registry)
    merged.take("a", 1, {"probes_total": ((("web",), (3.0,)),)}, 0)
    assert merged.samples(["a"])["probes_total"] == {("web",): (3.0,)}
    assert merged.replaced("a", 2)
    assert "probes_total" not in merged.samples(["a"])

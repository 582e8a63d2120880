"""Thresholds, conditions and reclaim: tables, and time handed in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.eviction.policy import (
    Observation,
    Progress,
    conditions,
    disk_layout,
    grace_period_s,
    is_met,
    last_observed,
    observations,
    reclaim_steps,
)
from actors.eviction.thresholds import (
    SIGNALS,
    BadThreshold,
    DiskLayout,
    Threshold,
    configured_signal,
    parse_thresholds,
    supposed_threshold,
    with_containerfs,
)
from proto.agent.settings import DEFAULT_EVICTION_HARD
from proto.node.stats import FsStats, NodeStats

MIB = 1 << 20


def test_the_defaults() -> None:
    assert parse_thresholds(DEFAULT_EVICTION_HARD) == (
        Threshold("memory.available", amount=100 * MIB),
        Threshold("nodefs.available", percent=10.0),
        Threshold("nodefs.inodesFree", percent=5.0),
        Threshold("imagefs.available", percent=15.0),
        Threshold("imagefs.inodesFree", percent=5.0),
    )


@pytest.mark.parametrize("text", ["0%", "100%"])
def test_switched_off(text: str) -> None:
    assert parse_thresholds({"memory.available": text, "containerfs.available": "10%"}) == ()


@pytest.mark.parametrize(
    ("signal", "text", "complaint"),
    [
        ("cpu.available", "10%", "unsupported eviction signal cpu.available"),
        ("memory.available", "lots", "'lots' is neither a quantity nor a percentage"),
        ("memory.available", "x%", "'x%' is neither"),
        ("memory.available", "nan%", "nan% is not between"),
        ("memory.available", "101%", "101% is not between 0% and 100%"),
        ("memory.available", "-1%", "-1% is not between"),
        ("memory.available", "0", "0 is not positive"),
        ("memory.available", "-5Mi", "-5Mi is not positive"),
        ("memory.available", "", "'' is neither"),
    ],
)
def test_thresholds_that_make_no_sense(signal: str, text: str, complaint: str) -> None:
    with pytest.raises(BadThreshold, match=complaint):
        parse_thresholds({signal: text})


@pytest.mark.parametrize(
    ("threshold", "available", "met"),
    [
        (Threshold("memory.available", amount=100), 99, True),
        (Threshold("memory.available", amount=100), 100, False),
        (Threshold("memory.available", percent=10.0), 99, True),
        (Threshold("memory.available", percent=10.0), 100, False),
        (Threshold("nodefs.available", amount=100), 0, False),  # not observed
    ],
)
def test_met(threshold: Threshold, available: int, met: bool) -> None:
    seen = {"memory.available": Observation(available, 1000)}
    assert is_met(threshold, seen) is met


def test_memory_is_acted_on_first() -> None:
    seen = {signal: Observation(0, 1000) for signal in SIGNALS}
    progress = Progress().observe([Threshold(signal, amount=1) for signal in reversed(SIGNALS)], seen, 0.0)
    assert [threshold.signal for threshold in progress.acted_on] == list(SIGNALS)


def fs(device: int, capacity: int = 1000, inodes: int = 100) -> FsStats:
    return FsStats(path="/", device=device, capacity_bytes=capacity, available_bytes=10, inodes=inodes, inodes_free=5)


def node(imagefs: FsStats, containerfs: FsStats | None = None) -> NodeStats:
    return NodeStats(
        time=0.0,
        memory_capacity_bytes=100,
        memory_working_set_bytes=40,
        memory_available_bytes=60,
        nodefs=fs(1, inodes=0),
        imagefs=imagefs,
        containerfs=containerfs,
    )


def test_unmeasured_signals_are_not_observed() -> None:
    assert observations(node(fs(2, capacity=0, inodes=0))) == {
        "memory.available": Observation(60, 100),
        "nodefs.available": Observation(10, 1000),
    }


@pytest.mark.parametrize(
    ("imagefs", "containerfs", "layout"),
    [
        (fs(1), None, "one disk"),
        (fs(0, capacity=0), None, "one disk"),
        (fs(1), fs(3), "one disk"),  # "split" in the kubelet: no image would be removed for nodefs
        (fs(2), None, "images apart"),
        (fs(2), fs(1), "split"),
        (fs(2), fs(3), "split"),
        (fs(2), fs(0, capacity=0), "split"),  # it cannot be read now
    ],
)
def test_disks_of_images_and_writable_layers(imagefs: FsStats, containerfs: FsStats | None, layout: str) -> None:
    assert disk_layout(node(imagefs, containerfs)) == layout


def test_containerfs_is_observed_on_its_own_disk() -> None:
    seen = observations(node(fs(2), fs(1, capacity=500)))
    assert seen["containerfs.available"] == Observation(10, 500)
    assert observations(node(fs(2)))["containerfs.available"] == Observation(10, 1000), "those of imagefs"
    assert "containerfs.available" not in observations(node(fs(2), fs(0, capacity=0, inodes=0)))


@pytest.mark.parametrize(
    ("layout", "source"), [("one disk", "nodefs"), ("images apart", "imagefs"), ("split", "nodefs")]
)
def test_containerfs_has_the_thresholds_of_its_disk(layout: DiskLayout, source: str) -> None:
    configured = parse_thresholds(
        {"nodefs.available": "10%", "imagefs.available": "15%"},
        {"nodefs.inodesFree": "5%", "imagefs.inodesFree": "6%"},
        {"nodefs.inodesFree": 10.0, "imagefs.inodesFree": 20.0},
    )
    assert len(configured) == 4
    found = [one for one in with_containerfs(configured, layout) if one not in configured]
    percents = {"nodefs": (10.0, 5.0, 10.0), "imagefs": (15.0, 6.0, 20.0)}[source]
    assert found == [
        Threshold("containerfs.available", percent=percents[0]),
        Threshold("containerfs.inodesFree", percent=percents[1], grace_s=percents[2]),
    ]
    assert configured_signal("containerfs.available", layout) == f"{source}.available"
    assert configured_signal("allocatableMemory.available", layout) == "memory.available"


def test_plan_may_suppose_each_signal() -> None:
    for signal in SIGNALS:
        assert supposed_threshold(signal, "7") == (Threshold(signal, amount=7),)
    for signal, quantity in (("cpu.available", "1"), ("memory.available", "0%"), ("memory.available", "x")):
        with pytest.raises(BadThreshold):
            supposed_threshold(signal, quantity)


MEMORY, DISK = Threshold("memory.available", amount=1), Threshold("nodefs.available", amount=1)


def test_a_condition_holds_on_for_the_transition_period() -> None:
    held = last_observed({}, [MEMORY], 300.0, 0.0)
    assert conditions(held) == ("MemoryPressure",)
    held = last_observed(held, [DISK], 300.0, 299.0)
    assert conditions(held) == ("MemoryPressure", "DiskPressure")
    held = last_observed(held, [], 300.0, 300.0)
    assert conditions(held) == ("DiskPressure",)
    held = last_observed(held, [DISK], 300.0, 598.0)  # seen again: the period begins anew
    assert conditions(last_observed(held, [], 300.0, 897.0)) == ("DiskPressure",)
    assert conditions(last_observed(held, [], 300.0, 898.0)) == ()


@given(st.lists(st.tuples(st.floats(0.1, 50), st.booleans()), max_size=30), st.floats(0, 100))
def test_condition_holds_exactly_for_the_transition_period(looks: list[tuple[float, bool]], period: float) -> None:
    now, seen, held = 0.0, None, {}
    for step, met in looks:
        now += step
        held = last_observed(held, [MEMORY] if met else [], period, now)
        seen = now if met else seen
        assert bool(conditions(held)) == (met or (seen is not None and now - seen < period))


@pytest.mark.parametrize(
    ("signal", "layout", "steps"),
    [
        ("memory.available", "one disk", ()),
        ("allocatableMemory.available", "split", ()),
        ("pid.available", "images apart", ()),
        ("nodefs.available", "one disk", ("containers", "images")),
        ("nodefs.inodesFree", "images apart", ()),
        ("nodefs.available", "split", ("containers",)),
        ("imagefs.available", "images apart", ("containers", "images")),
        ("imagefs.inodesFree", "one disk", ("containers", "images")),
        ("imagefs.available", "split", ("images",)),
        ("containerfs.available", "one disk", ("containers", "images")),
        ("containerfs.inodesFree", "images apart", ("containers", "images")),
        ("containerfs.available", "split", ("containers",)),
    ],
)
def test_reclaim_steps(signal: str, layout: DiskLayout, steps: tuple[str, ...]) -> None:
    assert reclaim_steps(signal, layout) == steps


# Soft thresholds and minimum reclaim


HARD = Threshold("memory.available", amount=100, reclaim_amount=50)
SOFT = Threshold("memory.available", amount=300, grace_s=90.0)


def test_thresholds_of_every_kind():
    hard, soft = {"memory.available": "100", "nodefs.available": "10%"}, {"memory.available": "300"}
    found = parse_thresholds(
        hard,
        soft,
        {"memory.available": 90.0},
        {"nodefs.available": "5%", "memory.available": "50"},
        pods_are_limited=True,
    )
    assert found == (
        HARD,
        Threshold("memory.available", amount=300, grace_s=90.0, reclaim_amount=50),
        Threshold("allocatableMemory.available", amount=100, reclaim_amount=50),
        Threshold("nodefs.available", percent=10.0, reclaim_percent=5.0),
    )
    assert parse_thresholds({}, soft, {}, pods_are_limited=True) == (Threshold("memory.available", amount=300),)
    for wrong in ({"memory.available": "x"}, {"memory.available": "x%"}):
        with pytest.raises(BadThreshold):
            parse_thresholds(hard, minimum_reclaim=wrong)


@pytest.mark.parametrize(
    ("thresholds", "looks", "acted_on"),
    [
        # (available at each second in which it was looked) -> what is acted on after the last look
        ([HARD], [(0, 99)], [HARD]),
        ([HARD], [(0, 100)], []),
        ([HARD], [(0, 99), (1, 149)], [HARD]),  # over only with the minimum reclaim
        ([HARD], [(0, 99), (1, 150)], []),
        ([HARD], [(0, 99), (1, 150), (2, 149)], []),  # over once, it has to be met anew
        ([SOFT], [(0, 299)], []),
        ([SOFT], [(0, 299), (89, 299)], []),
        ([SOFT], [(0, 299), (90, 299)], [SOFT]),
        ([SOFT], [(0, 299), (50, 300), (90, 299)], []),  # the time begins anew
        ([SOFT, HARD], [(0, 99), (90, 99)], [HARD, SOFT]),
        ([SOFT, HARD], [(0, 250), (90, 99)], [HARD, SOFT]),
    ],
)
def test_thresholds_acted_on_after_some_looks(thresholds, looks, acted_on):
    progress = Progress()
    for now, available in looks:
        progress = progress.observe(thresholds, {"memory.available": Observation(available, 1000)}, now)
    assert list(progress.acted_on) == acted_on


@pytest.mark.parametrize(
    ("threshold", "maximum", "own", "grace"),
    [(HARD, 60, 30, 1), (SOFT, 60, 30, 30), (SOFT, 20, 30, 20), (SOFT, 0, 30, 0), (SOFT, 60, None, 60)],
)
def test_the_time_an_evicted_pod_gets(threshold, maximum, own, grace):
    assert grace_period_s(threshold, maximum, own) == grace

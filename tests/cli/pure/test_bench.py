"""Decisions of `supervisor bench`: figures and ratios, the cost while idle, the plan of its pods."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from actors.config.pods.static_pods import load
from proto.cri import labels
from proto.v1 import Pod, from_dict
from supervisor.cli.bench import figures, idle
from supervisor.cli.bench.figures import Figure
from supervisor.cli.bench.idle import Cost, Use
from supervisor.cli.bench.pods import plan as plans
from supervisor.cli.bench.pods.plan import Plan
from supervisor.cli.errors import CommandError

PLAN = Plan("0123abcd", 2, "registry.test/app:1", ("sleep", "3600"))


@pytest.mark.parametrize(
    ("values", "median", "p99"),
    [
        ([], None, None),
        ([3.0], 3.0, 3.0),
        ([4.0, 1.0], 2.5, 4.0),
        ([float(one) for one in range(100, 0, -1)], 50.5, 99.0),
        ([float(one) for one in range(1, 201)], 100.5, 198.0),
    ],
)
def test_percentile_is_the_nearest_rank(values: list[float], median: float | None, p99: float | None) -> None:
    assert (figures.median(values), figures.p99(values)) == (median, p99)


@pytest.mark.parametrize(
    ("value", "floor", "ratio"),
    [(3.0, 2.0, 1.5), (3.0, None, None), (None, 2.0, None), (3.0, 0.0, None), (0.0, 2.0, 0)],
)
def test_ratio_needs_both_and_a_floor_above_zero(value: float | None, floor: float | None, ratio: float | None) -> None:
    assert Figure("x", "ms", value, floor=floor).ratio == ratio


def test_times_are_converted_to_the_unit() -> None:
    found = figures.of_times("ask", "us", [0.001, 0.002, 0.003], [0.0005], 1e6)
    assert figures.cells(found) == ("ask", "2000 us", "3000 us", "500 us", "4.00")


def test_mean_names_its_number_of_calls() -> None:
    assert figures.of_mean("relist", 4, 0.02, [0.001]) == Figure("relist, mean of 4", "ms", 5.0, None, 1.0)
    assert figures.of_mean("relist", 0, 0.0, []) == Figure("relist, mean of 0", "ms", None)


def test_cells_of_what_was_not_measured_are_empty() -> None:
    assert figures.cells(Figure("memory (PSS)", "MB", None)) == ("memory (PSS)", "", "", "", "")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.1234, "ms", "0.123 ms"),
        (12.34, "MB", "12.3 MB"),
        (123.4, "us", "123 us"),
        (9.0, "", "9.00"),
        (None, "us", ""),
    ],
)
def test_values_have_three_digits(value: float | None, unit: str, text: str) -> None:
    assert figures.text(value, unit) == text


def test_json_has_null_for_what_was_not_measured() -> None:
    found = json.loads(json.dumps(figures.as_json(Figure("relist", "ms", 2.0, floor=1.0))))
    assert found == {"figure": "relist", "unit": "ms", "value": 2.0, "p99": None, "floor": 1.0, "ratio": 2.0}


def test_cost_counts_processes_that_lived_through_the_interval() -> None:
    before = {1: Use(1.0, 100), 2: Use(5.0, 10), 4: Use(9.0, 9)}
    after = {1: Use(1.2, 150), 2: Use(5.0, 4), 3: Use(7.0, 7)}
    assert idle.cost(before, after, [1, 2, 3, 4], 10.0, 50.0) == pytest.approx(Cost(2.0, 5.0, 50.0))
    assert idle.cost({}, {}, [1], 10.0, None) == Cost()


def test_processes_that_cannot_be_read_are_a_note(tmp_path: Path) -> None:
    found, notes = idle.measure([1 << 22], 0, 0.0, lambda _: None, tmp_path)
    assert [(one.name, one.value, one.floor) for one in found] == [(name, None, None) for name in idle.NAMES]
    assert "cannot read 1 of 1 processes" in notes[0]
    assert "cannot read /proc/PID/smaps_rollup" in notes[1]


def test_memory_is_unknown_when_one_process_hides_it(tmp_path: Path) -> None:
    for pid in (7, 8):
        (tmp_path / str(pid)).mkdir()
    (tmp_path / "7/smaps_rollup").write_text("Rss:  9 kB\nPss:  1000 kB\nPss_Dirty: 5 kB\n")
    assert idle.pss_mb([7], tmp_path) == 1.024
    assert idle.pss_mb([7, 8], tmp_path) is None


def pod(phase: str) -> Pod:
    return from_dict(Pod, {"metadata": {"name": "x"}, "spec": {"containers": []}, "status": {"phase": phase}})


@pytest.mark.parametrize(
    ("count", "problem"), [(3, ""), (4, "use --pods 3 or fewer"), (50, "the node has 2 and maxPods is 5")]
)
def test_pods_need_room_below_max_pods(count: int, problem: str) -> None:
    there = [pod("Running"), pod("Pending"), pod("Succeeded"), pod("Failed")]
    if not problem:
        plans.check_room(count, there, 5)
        return
    with pytest.raises(CommandError, match=problem):
        plans.check_room(count, there, 5)


def test_full_node_has_no_number_to_offer() -> None:
    with pytest.raises(CommandError, match="end some pods, or raise maxPods"):
        plans.check_room(1, [pod("Running")], 1)


def test_manifest_is_a_valid_static_pod() -> None:
    (name, other) = PLAN.names()
    assert (name, other) == ("nodevisor-bench-0123abcd-1", "nodevisor-bench-0123abcd-2")
    made = load("/m/x.json", plans.manifest(PLAN, name), "node")
    assert made.warnings == ()
    assert made.pod.metadata.labels == {plans.LABEL: PLAN.id}
    assert made.pod.spec.containers[0].command == PLAN.command
    assert made.pod.spec.termination_grace_period_seconds == 1


def test_empty_command_leaves_the_images_own() -> None:
    bare = PLAN._replace(command=())
    assert "command" not in json.loads(plans.manifest(bare, "x"))["spec"]["containers"][0]
    assert list(plans.container(bare, "sha256:1").command) == []


def test_bare_sandbox_belongs_to_no_node_agent() -> None:
    config = plans.sandbox(PLAN, "x")
    assert dict(config.labels) == {plans.FLOOR_LABEL: PLAN.id}
    assert not {labels.POD_UID, labels.POD_NAME, labels.POD_NAMESPACE} & set(config.labels)

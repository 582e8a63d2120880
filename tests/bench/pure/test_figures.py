"""The figures by name, and the readers of what the kernel and perf say."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.bench.cluster import Cluster, Step
from tests.bench.harness import usage
from tests.bench.measurements import idle
from tests.bench.measurements.idle import Idle
from tests.bench.measurements.restarts import Bare
from tests.bench.measurements.service import Service
from tests.bench.measurements.streams import Streams
from tests.bench.reporting.figures import of_cluster, of_idle, of_restarts, of_service, of_streams

STATUS = "Name:\tpython\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t7\n"


@pytest.mark.parametrize(
    ("text", "field", "expected"),
    [
        (STATUS, "voluntary_ctxt_switches", 150),
        (STATUS, "nonvoluntary_ctxt_switches", 7),
        (STATUS, "ctxt_switches", 0),
        ("rchar: 323\nsyscr: 10\n", "syscr", 10),
        ("", "syscr", 0),
    ],
)
def test_numbers_of_proc_are_read_by_field(text: str, field: str, expected: int) -> None:
    assert usage.number(text, field) == expected


def test_wakeups_are_by_process_without_threads_that_ended() -> None:
    one, two, three = (("probe", Path(f"/proc/1/task/{number}")) for number in (1, 2, 3))
    grown = usage.growth({one: 14, three: 2}, {one: 10, two: 50})
    assert grown == {one: 4, three: 2}
    assert idle.by_title_per_s(grown | {("pleg", one[1]): 8}, 2.0) == {"probe": 3.0, "pleg": 4.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# started on Mon\n\n10110,,raw_syscalls:sys_enter,109457942,100.00,,\n", 10110),
        ("<not supported>,,raw_syscalls:sys_enter,0,100.00,,\n", None),
        ("<not counted>,,raw_syscalls:sys_enter,0,0.00,,\n", None),
        ("88,,context-switches,109457942,100.00,,\n", None),
        ("", None),
    ],
)
def test_perf_gives_a_count_or_none(text: str, expected: int | None) -> None:
    assert idle.counted_calls(text) == expected


@pytest.mark.parametrize("calls", [idle.SYSTEM_CALLS, idle.READS_AND_WRITES])
def test_the_name_of_calls_says_what_is_counted(calls: str) -> None:
    found = dict(of_idle(Idle({"probe": 0.2, "pleg": 0.1}, {"probe": 20.0, "pleg": 10.0}, 90.0, calls), 0))
    assert found["idle with 0 pods, % of a core"] == 0.3
    assert found["idle with 0 pods, wake-ups a second"] == 30.0
    assert found[f"idle with 0 pods, {calls} a second"] == 90.0


def test_restarts_are_of_all_actors_and_of_each() -> None:
    found: dict[str, list[float]] = {}
    bare = Bare([1.0], [2.0])
    for name, value in of_restarts({"probe": [20.0, None], "pleg": [30.0]}, bare, " under load"):
        found.setdefault(name, []).append(value)
    assert found == {
        "actor in service again under load, ms": [20.0, math.inf, 30.0],
        "actor in service again under load, ms: probe": [20.0, math.inf],
        "actor in service again under load, ms: pleg": [30.0],
        "bare pidfd's exit seen under load, ms": [1.0],
        "bare fork of the next process under load, ms": [2.0],
    }


def test_streams_are_by_the_runtimes_own() -> None:
    found = of_streams([Streams(20, 100.0, 25.0, 5.0, 30.0, 40.0, 9.0, 3.0)])
    assert found["log of 20 MB, by bare TLS"] == [4.0]
    assert found["log of 20 MB, by reading the file"] == [20.0]
    assert found["exec of true, by containerd's own"] == [0.75]
    assert found["port-forward to the first byte, by containerd's own"] == [3.0]


def test_a_takeover_has_its_floor_and_touches_nothing() -> None:
    resting = Idle({}, {}, 0.0, idle.SYSTEM_CALLS)
    found = of_service(
        [
            Service(1.4, 1.6, 0.2, resting, 130.0, 100, 2.0, 0.1, 0),
            Service(1.3, 1.5, 0.2, resting, 130.0, 100, 1.9, 0.1, 2),
        ]
    )
    assert found["PSS with 0 pods, MB"] == [130.0, 130.0]
    assert found["start to first pod ready, s"] == [1.6, 1.5]
    assert found["takeover of 100 pods, s"] == [2.0, 1.9]
    assert found["takeover of 100 pods, containers touched"] == [0.0, 2.0]


def test_pods_of_an_api_server_are_by_bare_cri() -> None:
    found = of_cluster([Cluster([Step(1, 0.4, 0.3, 0.1, 150.0, 0.2, 0.1)], [20.0, 30.0], [5.0, 6.0])])
    assert found["1 API pod created to ready, by bare CRI"] == [2.0]
    assert found["1 API pod deleted to gone, by bare CRI"] == [pytest.approx(3.0)]
    assert found["ConfigMap change to file, ms"] == [20.0, 30.0]
    assert found["ConfigMap change to a bare watch, ms"] == [5.0, 6.0]

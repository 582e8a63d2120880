"""Every test has a marker, and a make target that runs it."""

import re
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.suite import purity
from tests.suite.long import LONG
from tests.suite.markers import CLUSTER, CONTAINERD, FIXTURES, FOLDERS, GUEST, MARKERS, PROCESS, PURE, marker_of
from tests.suite.needs import NEEDS
from tests.suite.selection import IN_GUEST, NODE, TEST, Facts, group_of, left_out, report

TESTS = Path(__file__).resolve().parents[2]


def test_each_folder_with_tests_has_a_marker_in_the_table() -> None:
    folders = {path.parent.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    assert folders - FOLDERS.keys() == set(), "add these folders to tests/suite/markers.py"
    assert FOLDERS.keys() - folders == set(), "these folders have no tests: take them out of tests/suite/markers.py"


def test_the_long_modules_are_there() -> None:
    assert [name for name in LONG if not (TESTS / name).is_file()] == []


@pytest.mark.parametrize(
    ("folder", "requested", "expected"),
    [
        ("probe/pure", (), PURE),
        ("probe", (), PROCESS),
        ("probe", ("tmp_path", "containerd"), CONTAINERD),
        ("pod_workers", ("containerd",), CONTAINERD),
        ("probe/pure", ("containerd", "control_plane"), CLUSTER),
        ("agent", ("embedded",), PROCESS),
        ("guest", ("guest",), GUEST),
        ("new", (), PROCESS),
    ],
)
def test_a_fixture_raises_the_marker_of_the_folder(folder: str, requested: tuple[str, ...], expected: str) -> None:
    assert marker_of(folder, requested) == expected


def test_every_marker_is_one_that_pytest_knows(pytestconfig: pytest.Config) -> None:
    known = {line.partition(":")[0].partition("(")[0] for line in pytestconfig.getini("markers")}
    assert {*MARKERS, *FOLDERS.values(), *FIXTURES.values(), "needs"} <= known


@pytest.mark.parametrize(
    ("facts", "by_test", "by_node"),
    [
        (Facts(PURE), "", TEST),
        (Facts(PROCESS), "", TEST),
        (Facts(CONTAINERD), CONTAINERD, ""),
        (Facts(CLUSTER), CLUSTER, ""),
        (Facts(PROCESS, ("openssl",)), "needs openssl", ""),
        (Facts(PROCESS, ("openssl",), ("openssl",)), "needs openssl", ""),
        (Facts(PROCESS, ("root",)), "", TEST),
        (Facts(PROCESS, ("root",), ("root",)), "lacks root", TEST),
        (Facts(PROCESS, fixtures=("embedded",)), "", ""),
        (Facts(CONTAINERD, ("root",), ("root",), ("embedded",)), CONTAINERD, ""),
        (Facts(GUEST), GUEST, GUEST),
        (Facts(CONTAINERD, ("systemd",), ("systemd",)), GUEST, GUEST),
        (Facts(CONTAINERD, ("systemd",)), CONTAINERD, ""),
    ],
)
def test_a_test_is_left_out_for_a_reason(facts: Facts, by_test: str, by_node: str) -> None:
    assert (left_out(TEST, facts), left_out(NODE, facts)) == (by_test, by_node)


@pytest.mark.parametrize("marker", MARKERS)
@pytest.mark.parametrize("needed", [(), *((name,) for name in NEEDS)])
def test_each_test_is_run_by_one_of_the_targets(marker: str, needed: tuple[str, ...]) -> None:
    facts = Facts(marker, needed)
    assert "" in (left_out(TEST, facts), left_out(NODE, facts), left_out(IN_GUEST, facts))


def test_left_out_tests_are_reported_with_counts_and_command() -> None:
    counts = Counter({CONTAINERD: 763, "needs openssl": 12, "lacks root": 3, "lacks user namespaces": 4})
    first, second = report(TEST, counts)
    assert first == "Left out: 775 tests (containerd: 763, needs openssl: 12). Run them: make test-node"
    assert second.startswith("Left out: 7 tests (without user namespaces: 4, without root: 3). Run them: make test, as")
    assert report(TEST, Counter()) == []
    assert report(TEST, Counter({GUEST: 2})) == ["Left out: 2 tests (guest: 2). Run them: make test-guest"]
    assert report(NODE, Counter({TEST: 5})) == ["Left out: 5 tests, which `make test` runs."]


def test_tests_of_one_module_fixture_stay_on_one_worker() -> None:
    assert group_of("agent/test_ten_pods.py", CONTAINERD, {"function", "module"}) == "agent/test_ten_pods.py"
    assert group_of("agent/test_objects.py", CONTAINERD, {"function", "session"}) == ""
    assert group_of("probe/pure/test_policy.py", PURE, ()) == "probe/pure/test_policy.py"
    assert group_of("agent/test_server.py", CLUSTER, {"module"}, ("served", "control_plane")) == "control_plane"
    assert group_of("agent/test_reboot.py", CLUSTER, {"session"}, ("full_control_plane",)) == "full_control_plane"


@pytest.mark.parametrize(
    ("event", "argument", "seen"),
    [
        ("subprocess.Popen", "/bin/true", ["subprocess.Popen /bin/true"]),
        ("socket.__new__", "socket", ["socket.__new__ socket"]),
        ("open", "/etc/hosts", []),
    ],
)
def test_a_pure_test_is_watched(event: str, argument: object, seen: list[str]) -> None:
    watch = purity.Watch.__new__(purity.Watch)  # without a hook of its own
    watch._seen, watch._is_on, watch._sleep = [], False, time.sleep
    watch.hear(event, (argument,))
    watch.start()
    watch.hear(event, (argument,))
    assert watch.stop() == seen


def test_no_module_gives_itself_a_marker_of_the_table() -> None:
    by_hand = re.compile(rf"pytest\.mark\.({'|'.join(MARKERS)})\b")
    modules = [path for path in TESTS.rglob("*.py") if "suite" not in path.parts]
    assert [str(path.relative_to(TESTS)) for path in modules if by_hand.search(path.read_text())] == []

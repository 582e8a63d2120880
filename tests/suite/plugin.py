"""The pytest side of markers, needs and targets. `--target=test`, `node` and `guest` are what make uses."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import PATIENCE
from tests.suite import markers, needs, scheduling, selection
from tests.suite.long import LONG
from tests.suite.purity import Watch

TESTS = Path(__file__).resolve().parents[1]
_GROUPS = "nodevisor_groups"
_facts_of = pytest.StashKey[selection.Facts]()
_left_out = pytest.StashKey[Counter[str]]()
_watch = Watch()
_began = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--target",
        choices=selection.TARGETS,
        help="run the tests of this make target, and say which were left out",
    )
    parser.addoption("--budget-s", type=float, help="begin no test later than so many seconds, and pure ones first")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_left_out] = Counter()
    # A shell starts what it runs in the background deaf to SIGINT, and so would be all that tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Report(config), "nodevisor-left-out")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give the test its marker, before `-m` selects by it, and its own limit of time the machine's patience."""
    facts = item.stash[_facts_of] = _facts(item)
    item.add_marker(facts.marker)
    limit = item.get_closest_marker("timeout")
    if limit is not None and PATIENCE != 1:
        item.add_marker(pytest.mark.timeout(limit.args[0] * PATIENCE), append=False)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out what the target does not run, and put the long ones first."""
    target = config.getoption("--target")
    chosen, others = [], []
    for item in items:
        why = selection.left_out(target, item.stash[_facts_of]) if target else ""
        config.stash[_left_out][why] += bool(why)
        (others if why else chosen).append(item)
    if others:
        config.hook.pytest_deselected(items=others)
    if config.getoption("--budget-s"):
        chosen.sort(key=lambda item: item.get_closest_marker(markers.PURE) is None)
    elif target:
        chosen.sort(key=lambda item: selection.rank(_module(item), LONG))
    items[:] = chosen


def _facts(item: pytest.Item) -> selection.Facts:
    callspec = getattr(item, "callspec", None)
    parameters = [value for value in callspec.params.values() if isinstance(value, str)] if callspec else []
    requested = {*getattr(item, "fixturenames", ()), *parameters}
    asked = tuple(name for mark in item.iter_markers("needs") for name in mark.args)
    marker = markers.marker_of(Path(_module(item)).parent.as_posix(), requested)
    return selection.Facts(marker, asked, tuple(needs.missing(asked)), frozenset(requested))


def _module(item: pytest.Item) -> str:
    return os.path.relpath(item.path, TESTS)


def _group(item: pytest.Item) -> str:
    if mark := item.get_closest_marker("xdist_group"):
        return str(mark.args[0] if mark.args else mark.kwargs["name"])
    info = getattr(item, "_fixtureinfo", None)
    scopes = {one.scope for found in info.name2fixturedefs.values() for one in found} if info else set()
    return selection.group_of(_module(item), item.stash[_facts_of].marker, scopes, getattr(item, "fixturenames", ()))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """A worker tells the process that hands out the tests which of them stay together.

    Before xdist's own hook, which says that this worker is ready: the groups are read once all workers are.
    """
    given = getattr(session.config, "workerinput", {})
    if _GROUPS in given:
        groups = {item.nodeid: _group(item) for item in session.items}
        scheduling.write(Path(given[_GROUPS]), {test: group for test, group in groups.items() if group})


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test with missing needs. Only a test requested by name gets here: targets leave it out."""
    budget_s = item.config.getoption("--budget-s")
    if budget_s and time.monotonic() - _began > budget_s:
        pytest.skip("time is up; make test runs it")
    missing = needs.missing(tuple(name for mark in item.iter_markers("needs") for name in mark.args))
    if missing:
        one = needs.NEEDS[missing[0]]
        how = f"; run: apt-get install -y {one.package}" if one.package else ""
        pytest.fail(f"cannot run this test here: no {one.what}{how}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a `pure` test that is none."""
    if item.get_closest_marker(markers.PURE) is None:
        return (yield)
    _watch.start()
    try:
        result = yield
    finally:
        seen = _watch.stop()
    if seen:
        pytest.fail(f"this test is not pure: {'; '.join(seen[:5])}; move it to a folder of `process`", pytrace=False)
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells the process that reports what it left out."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = dict(session.config.stash[_left_out])


class _Report:
    """In the process that hands out the tests: groups, and after pytest's closing line what was left out."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._counts = config.stash[_left_out]
        self._groups = tempfile.TemporaryDirectory(prefix="nv-groups-")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[_GROUPS] = str(Path(self._groups.name, "groups.json"))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        if config.getoption("dist") != "loadgroup":
            return None
        return scheduling.GroupScheduling(config, log, Path(self._groups.name, "groups.json"))

    def pytest_unconfigure(self) -> None:
        self._groups.cleanup()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Each worker of xdist collects all tests: the last one tells for all."""
        told = getattr(node, "workeroutput", {}).get("left_out")
        if told is not None:
            self._counts.clear()
            self._counts.update(told)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Iterator[None]:
        result = yield
        target = self._config.getoption("--target")
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if target and reporter and not os.environ.get("PYTEST_XDIST_WORKER"):
            for line in selection.report(target, +self._counts):
                reporter.write_line(line)
        return result

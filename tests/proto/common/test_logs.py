"""Log lines, as text and as JSON."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from proto.common import logs


def record(level: int, message: str = "pod \u201cweb\u201d is %s", exc_info: Any = None) -> logging.LogRecord:
    return logging.LogRecord("actors.probe", level, "/x/policy.py", 12, message, ("ready",), exc_info)


@pytest.mark.parametrize(
    ("level", "letter", "name", "v"),
    [
        (logs.TRACE, "I", "info", 6),
        (logging.DEBUG, "I", "info", 4),
        (logging.INFO, "I", "info", 2),
        (logs.NOTICE, "I", "info", 0),
        (logging.WARNING, "W", "warning", None),
        (logging.ERROR, "E", "error", None),
    ],
)
def test_a_line_has_its_level_and_actor(level: int, letter: str, name: str, v: int | None) -> None:
    text = logs.Formatter("probe").format(record(level))
    assert text[0] == letter
    assert re.fullmatch(r".\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ policy\.py:12\] probe: pod \u201cweb\u201d is ready", text)
    entry = json.loads(logs.JSONFormatter("probe").format(record(level)))
    assert (entry["level"], entry["logger"], entry["msg"]) == (name, "probe", "pod \u201cweb\u201d is ready")
    assert (entry["caller"], entry.get("v")) == ("policy.py:12", v)


def test_an_entry_of_a_pods_worker_has_the_pod_as_a_key() -> None:
    entry = record(logging.WARNING)
    assert "pod" not in json.loads(logs.JSONFormatter("pod_workers").format(entry))
    entry.__dict__ |= {logs.POD: ("default", "web-vm")}
    shown = json.loads(logs.JSONFormatter("pod_workers").format(entry))
    assert shown["pod"] == {"name": "web-vm", "namespace": "default"}


def test_a_traceback_stays_on_the_json_line() -> None:
    try:
        raise KeyError("x")
    except KeyError:
        line = logs.JSONFormatter("probe").format(record(logging.ERROR, exc_info=sys.exc_info()))
    assert "\n" not in line
    assert "KeyError: 'x'" in json.loads(line)["err"]


@pytest.fixture
def quiet() -> Iterator[None]:
    """The root's handlers, level and logger class are restored."""
    root, kind = logging.getLogger(), logging.getLoggerClass()
    before = root.handlers[:], root.level, logging.raiseExceptions
    yield
    logs.setup("x", 2)
    logging.setLoggerClass(kind)
    root.handlers[:], logging.raiseExceptions = before[0], before[2]
    root.setLevel(before[1])


@pytest.mark.parametrize(
    ("vmodule", "raised"),
    [
        ({"policy": 4}, {"actors.probe.policy", "actors.pleg.policy"}),
        ({"pol*": 4}, {"actors.probe.policy", "actors.pleg.policy"}),
        ({"*/probe/*": 4}, {"actors.probe.policy", "actors.probe.late"}),
        ({"policy": 0}, set()),
        ({"pleg/policy": 4, "pol*": 1}, set()),
        ({"*/pleg/policy": 4, "pol*": 1}, {"actors.pleg.policy"}),
        ({"pol*": 1, "*/pleg/policy": 4}, set()),
        ({}, set()),
    ],
)
def test_vmodule_raises_the_verbosity_of_matching_files(quiet: None, vmodule: dict[str, int], raised: set[str]) -> None:
    early = ["actors.probe.policy", "actors.pleg.policy", "actors.pleg.actor"]
    for name in early:
        logging.getLogger(name)
    logs.setup("probe", 2, "text", vmodule)
    logging.Logger.manager.loggerDict.pop("actors.probe.late", None)  # a module that is imported later
    names = [*early, "actors.probe.late"]
    assert {name for name in names if logging.getLogger(name).isEnabledFor(logging.DEBUG)} == raised
    assert all(logging.getLogger(name).isEnabledFor(logging.INFO) for name in names)
    logs.set_verbosity(4)
    assert all(logging.getLogger(name).isEnabledFor(logging.DEBUG) for name in names)
    logs.setup("probe", 2)
    assert not any(logging.getLogger(name).isEnabledFor(logging.DEBUG) for name in names)

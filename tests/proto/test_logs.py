"""Log lines, as text and as JSON."""

from __future__ import annotations

import json
import logging
import sys
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
    assert text.endswith("probe       pod \u201cweb\u201d is ready")
    entry = json.loads(logs.JSONFormatter("probe").format(record(level)))
    assert (entry["level"], entry["actor"], entry["msg"]) == (name, "probe", "pod \u201cweb\u201d is ready")
    assert (entry["caller"], entry.get("v")) == ("policy.py:12", v)


def test_a_traceback_stays_on_the_json_line() -> None:
    try:
        raise KeyError("x")
    except KeyError:
        line = logs.JSONFormatter("probe").format(record(logging.ERROR, exc_info=sys.exc_info()))
    assert "\n" not in line
    assert "KeyError: 'x'" in json.loads(line)["err"]

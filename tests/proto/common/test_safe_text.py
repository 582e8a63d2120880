"""Foreign text in paths, log lines, tables and on terminals."""

from __future__ import annotations

import json
import logging
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.common import logs, safe_text
from proto.v1 import Event, Pod
from proto.v1.codec import from_dict
from supervisor.cli.errors import CommandError
from supervisor.cli.pods.events import _print as print_events
from supervisor.cli.views import render
from supervisor.cli.views.pod_description import lines

CLEAR = "\x1b[2J\x1b]0;owned\x07"
EVIL = [CLEAR, "\x9b31m", "\r", "\b\b", "\x7f", "\u202egnp.exe", "\u2066", "\u2028", "\0", "\udcff", "\x1bP1$r\x1b\\"]
HARMLESS = "Grüße, 世界 🐳 ~!@#$%^&*()[]{}|\\\"'"


def is_calm(text: str) -> bool:
    """Nothing in it but printable text and line ends commands a terminal."""
    return not any(unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") and one not in "\n\t" for one in text)


@pytest.mark.parametrize("evil", EVIL)
def test_control_sequences_are_escaped(evil: str) -> None:
    assert is_calm(safe_text.shown(f"a{evil}b"))
    assert is_calm(safe_text.one_line(f"a{evil}b"))
    assert safe_text.shown(f"a{evil}b") != f"a{evil}b"


def test_ordinary_text_stays_as_it_is() -> None:
    assert safe_text.shown(f"{HARMLESS}\n\t") == f"{HARMLESS}\n\t"
    assert safe_text.one_line(HARMLESS) == HARMLESS
    assert safe_text.one_line("a\nb\tc\rd\x1b") == r"a\nb\tc\rd\x1b"


@given(st.text())
def test_text_stays_on_one_line_and_in_its_directory(text: str) -> None:
    assert len(safe_text.one_line(text).splitlines()) <= 1
    if not safe_text.component_problem(text):
        assert text not in (".", "..")
        assert "/" not in text
        assert is_calm(text)


@given(st.dictionaries(st.text(), st.text()))
def test_json_for_a_terminal_is_the_same_json(value: dict[str, str]) -> None:
    for text in (render.json_line, render.json_text):
        try:
            shown = text(value)
        except UnicodeEncodeError:
            return  # half of a surrogate pair is in no JSON
        assert json.loads(shown) == value
        assert not re.search("[\x7f-\x9f\u2028\u2029\u202a-\u202e]", shown)


# Logs

FORGED = "E1123 04:05:06.000001 supervisor  the disk is on fire"


def logged(formatter: logging.Formatter, message: str, error: Exception | None = None) -> str:
    info = (type(error), error, None) if error is not None else None
    return formatter.format(logging.LogRecord("n", logging.WARNING, "file.py", 1, "%s", (message,), info))


@pytest.mark.parametrize("evil", [*EVIL, f"\n{FORGED}", f"\r\n{FORGED}", f"\u2028{FORGED}"])
def test_foreign_text_cannot_begin_a_log_line(evil: str) -> None:
    for text in (
        logged(logs.Formatter("config"), f"cannot use {evil}"),
        logged(logs.Formatter("config"), "cannot use it", ValueError(f"bad {evil}")),
    ):
        assert is_calm(text)
        assert len([line for line in text.splitlines() if re.match(r"[IWE]\d{4} ", line)]) == 1
    assert len(logged(logs.Formatter("config"), f"cannot use {evil}").splitlines()) == 1


@pytest.mark.parametrize("evil", EVIL)
def test_a_log_line_of_json_is_json(evil: str) -> None:
    text = logged(logs.JSONFormatter("config"), f"cannot use {evil}")
    assert is_calm(text)
    assert json.loads(text)["msg"] == f"cannot use {evil}"


# The command line


def evil_pod(evil: str) -> Pod:
    ended = {"exitCode": 1, "reason": evil, "message": f"first\nEvents:\n  {evil}"}
    status = {"name": "c", "state": {"terminated": ended}, "imageID": evil}
    return from_dict(
        Pod,
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": {"note": evil}},
            "spec": {
                "containers": [
                    {"name": "c", "image": evil, "command": ["sh", evil], "env": [{"name": "E", "value": evil}]}
                ]
            },
            "status": {"message": evil, "containerStatuses": [status], "conditions": [{"type": evil, "status": evil}]},
        },
    )


def evil_event(evil: str) -> Event:
    about = {"kind": "Pod", "name": "p", "namespace": "ns", "uid": "u"}
    return from_dict(
        Event,
        {
            "metadata": {"name": "e.1", "namespace": "ns"},
            "involvedObject": about,
            "type": "Warning",
            "reason": "Unhealthy",
            "message": f"Liveness probe failed: {evil}",
            "source": {"component": "kubelet"},
            "firstTimestamp": "2026-01-02T03:04:05Z",
            "lastTimestamp": "2026-01-02T03:04:05Z",
            "count": 1,
        },
    )


@pytest.mark.parametrize("evil", EVIL)
def test_description_escapes_the_containers_text(evil: str) -> None:
    described = lines(evil_pod(evil), [evil_event(evil)], 0.0)
    assert is_calm("\n".join(described))
    assert [line for line in described if line.startswith("Events:")] == ["Events:"]


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize("colour", [False, True])
def test_events_escape_the_containers_text(
    evil: str, colour: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "colours", lambda _out=None: colour)
    monkeypatch.setenv("COLUMNS", "300")
    print_events([evil_event(evil)], None)
    print_events([evil_event(evil.replace("\udcff", ""))], "json")
    assert is_calm(capsys.readouterr().out)


@pytest.mark.parametrize("evil", EVIL)
def test_errors_of_actors_are_escaped(evil: str, capsys: pytest.CaptureFixture[str]) -> None:
    CommandError(f"cannot do it: {evil}").show()
    assert is_calm(capsys.readouterr().err)


def test_commands_print_through_render() -> None:
    """Other than what writes escape sequences of its own, and what has no text of others."""
    own = {"render.py", "tap.py", "completion.py", "kubelet_flags.py"}
    top = Path(__file__).parents[3] / "supervisor"
    found = {path.name for path in top.rglob("*.py") if re.search(r"click\.s?echo\(", path.read_text())}
    assert found <= own, "use render.echo"

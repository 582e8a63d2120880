"""Paths are UTF-8 in every process of the agent, in every locale."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from actors.runtime.oci.helper import helper_command
from proto.common import interpreter
from supervisor.cli.run.agent import START
from supervisor.core.upgrade.release import becoming, command, own

ROOT = Path(__file__).resolve().parents[2]
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""A locale that each machine has, without Python's exceptions for it."""
PLAIN = {"LC_ALL": "C.UTF-8"}
"""A locale for which Python does not choose UTF-8 mode by itself. Without a process's variables: `-I` ignores them."""
LINES = {
    "module": interpreter.command("supervisor.core.agent", "3"),
    "start": START,
    "release": command(own(), "supervisor.core.upgrade.facts"),
    "upgrade": becoming(own(), 3, [], None),
    "helper": helper_command("root"),
}
MODE = "import sys; print(sys.flags.utf8_mode)"
_LINE_OF_PYTHON = re.compile(r'\[.*"-(?:P|I", "-S)", |^START = ')

_AGAIN = """
import json, os, sys
from proto.common import interpreter
os.write(2, b".")
interpreter.enter_utf8_mode()
print(json.dumps([os.getpid(), sys.getfilesystemencoding(), list(os.fsencode(sys.argv[1])), os.read(0, 9).decode()]))
"""


@pytest.mark.parametrize("name", LINES)
def test_each_interpreter_of_the_agent_is_in_utf8_mode(name: str) -> None:
    line = list(LINES[name])
    options = line[: next(index for index, word in enumerate(line) if word in ("-c", "-m"))]
    for environment in (ASCII, PLAIN):
        run = subprocess.run([*options, "-c", MODE], capture_output=True, text=True, env=environment, check=True)
        assert run.stdout == "1\n"


def test_no_command_line_of_python_lacks_utf8_mode() -> None:
    paths = (path for top in ("actors", "supervisor", "proto") for path in (ROOT / top).rglob("*.py"))
    lines = [
        f"{path}: {line}" for path in paths for line in path.read_text().splitlines() if _LINE_OF_PYTHON.search(line)
    ]
    assert len(lines) > 7
    assert [line for line in lines if "*UTF8," not in line] == []


@pytest.mark.parametrize(("environment", "times"), [(ASCII, 2), (PLAIN, 1), ({**ASCII, "PYTHONUTF8": "1"}, 1)])
def test_commands_enter_utf8_mode_once(environment: dict[str, str], times: int) -> None:
    word = "größe 日本".encode() + b"\xff"
    process = subprocess.Popen(
        [sys.executable, "-c", _AGAIN, word],
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    said, errors = process.communicate(b"kept", timeout=60)
    assert process.returncode == 0, errors
    expected = f'[{process.pid}, "utf-8", {list(word)}, "kept"]\n'
    assert (said.decode(), errors) == (expected, b"." * times)


@pytest.mark.needs("locales")
@pytest.mark.parametrize("charset", ["ISO-8859-1", "EUC-JP", "GB18030"])
def test_arguments_keep_their_bytes_in_any_locale(tmp_path: Path, charset: str) -> None:
    locale = {"ISO-8859-1": "de_DE", "EUC-JP": "ja_JP", "GB18030": "zh_CN"}[charset]
    subprocess.run(["localedef", "-i", locale, "-f", charset, tmp_path / "there"], check=True, timeout=60)
    word = "größe 日本".encode() + b"\xff"
    run = subprocess.run(
        [sys.executable, "-c", _AGAIN, word],
        env={"LOCPATH": str(tmp_path), "LC_ALL": "there", "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert f'"utf-8", {list(word)}, ""]' in run.stdout.decode()
    assert run.stderr == b".."

"""The console: its lines run the same commands, with the same completion and exit codes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from proto.agent.remote_console import ConsoleKey
from proto.pods.status import Pods
from supervisor.cli import common, group
from supervisor.cli.common import Session
from supervisor.cli.console.lines import complete, run_line
from supervisor.cli.console.repl import history_file
from tests.cli.fake_agent import FakeAgent
from tests.cli.test_commands import agent_with, make_pod


def test_commands_run_in_turn_until_one_fails(runner: CliRunner, run_dir: Path) -> None:
    with agent_with(run_dir, make_pod()):
        arguments = ["console", "--run-dir", str(run_dir), "-c", "pods -o json", "-c", "restart nobody", "-c", "ps"]
        result = runner.invoke(group, arguments)
    assert result.exit_code == 1
    assert '"kind": "PodList"' in result.stdout
    assert "ACTOR" not in result.stdout
    assert "cannot restart nobody" in result.stderr


def test_lines_may_come_from_a_file(runner: CliRunner, run_dir: Path) -> None:
    with agent_with(run_dir, make_pod()):
        result = runner.invoke(
            group, ["console", "--run-dir", str(run_dir)], input="# a comment\n\nps\nexit\nno-such-command\n"
        )
    assert result.exit_code == 0
    assert "ACTOR" in result.stdout


def test_the_consoles_run_dir_wins_over_the_environments(
    run_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODEVISOR_RUN_DIR", "/nowhere")
    with agent_with(run_dir):
        assert run_line("ps", str(run_dir)) == 0
    assert "supervisor" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("", 0, ""),
        ("  # nothing", 0, ""),
        ("nonsense", 2, "No such command"),
        ("pod", 2, "No such command 'pod'. Did you mean: pods? See `help`."),
        ("ps --nonsense", 2, "No such option '--nonsense'. See `help ps`."),
        ("ps 'open", 2, "cannot parse the line"),
        ("start", 2, "cannot run start in the console"),
        ("console", 2, "cannot run console in the console"),
        ("ps", 1, "cannot reach the agent"),
    ],
)
def test_a_line_ends_with_the_commands_exit_code(
    line: str, code: int, said: str, run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_line(line, str(run_dir)) == code
    assert said in capsys.readouterr().err


def test_help_is_the_commands_help(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_line("help", str(run_dir)) == 0
    assert run_line("help logs", str(run_dir)) == 0
    out = capsys.readouterr().out
    assert "Run commands on a running agent" in out
    assert "--follow" in out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rest", ["restart"]),
        ("restart ", ["status"]),
        ("restart s", ["status"]),
        ("restart x", []),
        ("logs w", ["web-node"]),
        ("logs t", ["a/twice", "b/twice"]),
        ("logs a/t", ["a/twice"]),
        ("logs web-node -c ", ["c"]),
        ("pods -o ", ["json", "yaml"]),
        ("logs --ta", ["--tail"]),
        ("why p", ["pod/"]),
        ("why pod/w", ["pod/web-node"]),
        ("why actor/s", ["actor/status"]),
        ("events --for pod/a/t", ["pod/a/twice"]),
        ("events --for n", ["node/"]),
        ("ps 'open", []),
    ],
)
def test_completion_knows_commands_options_actors_and_pods(
    line: str, words: list[str], run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "COMPLETION_TIMEOUT_S", 20.0)  # a busy machine's answer may come later
    pods = Pods(pods=(make_pod(), make_pod("twice", "a"), make_pod("twice", "b")))
    with FakeAgent(run_dir, {"status": lambda _: pods}):
        assert sorted(word for word, _ in complete(line, str(run_dir))) == words


def test_help_names_the_program(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_line("help", str(run_dir)) == 0
    assert capsys.readouterr().out.startswith("Usage: supervisor [OPTIONS] COMMAND")


def test_completion_is_silent_without_an_agent(run_dir: Path) -> None:
    assert complete("restart ", str(run_dir)) == []
    assert complete("logs ", str(run_dir)) == []


def test_history_is_private_and_under_the_state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = history_file()
    assert path == tmp_path / "nodevisor" / "history"
    assert os.stat(path).st_mode & 0o077 == 0


def test_no_place_for_history_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    assert history_file() is None


@pytest.mark.parametrize(
    "line",
    [
        *("fault kill probe", "fault list", "fault end --all", "upgrade", "upgrade --check", "exec web -- true"),
        *("attach web", "port-forward web 0:80", "images remove x", "images pull x", "state probe"),
    ],
)
@pytest.mark.parametrize("role", ["read", "operate"])
def test_role_below_debug_cannot_act(
    line: str, role: str, runner: CliRunner, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.cli.agent.upgrade.own", lambda: pytest.fail("code of a release was executed"))
    with agent_with(run_dir, make_pod()) as agent:
        result = runner.invoke(group, ["console", "--run-dir", str(run_dir), "--role", role, "-c", line])
    assert result.exit_code == 1
    assert f"it needs the role debug, this console has {role}" in result.stderr
    assert {type(asked).__name__ for _, asked in agent.asked} <= {"ListActors", "ListPods"}


@pytest.mark.parametrize("line", ["deaths", "deaths volume", "why pod/web", "fault list", "record show", "config show"])
def test_local_files_are_not_read_for_a_remote_agent(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    key = ConsoleKey(name="ops", role="operate", public="a" * 40, secret="b" * 40, server="c" * 40)
    assert run_line(line, Session("tcp://127.0.0.1:1", "operate", key)) == 2
    said = capsys.readouterr()
    assert "run it on the agent's machine" in said.err
    assert said.out == ""

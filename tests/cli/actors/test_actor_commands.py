"""state, mailbox, stacks, profile, ask, eval, start, stop, kill, top actors and tap's filters, on real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import fields

from proto.agent.actor import Ping
from proto.agent.settings import Settings
from supervisor.cli import group
from supervisor.cli.actors import top
from supervisor.cli.actors.ask import build
from supervisor.cli.agent import why
from supervisor.cli.errors import CommandError
from supervisor.cli.streams.tap import route_of
from supervisor.sockets.client import Client
from tests.cli.actors.test_real_agent import running
from tests.harness import stop_process, wait_for


@pytest.fixture
def agent(run_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An agent that leaves stopped actors to the watchdog, so that a test can look at one."""
    with running(run_dir, "0") as process:
        yield process


@pytest.fixture
def invoke(agent: subprocess.Popen[bytes], runner: CliRunner, run_dir: Path) -> Any:
    def run(*arguments: str, code: int = 0) -> Result:
        result = runner.invoke(group, [*arguments, "--run-dir", f"{run_dir}/run"])
        assert result.exit_code == code, result.output
        return result

    return run


def row(run_dir: Path, name: str) -> Any:
    with Client(run_dir / "run") as client:
        return next(one for one in client.actors() if one.name == name)


def test_stopped_actor_stays_stopped_until_started(invoke: Any, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why, "PEERS_S", 20.0)  # the supervisor of a busy machine may answer later
    assert "stopped" in invoke("stop", "probe").stdout
    assert (row(run_dir, "probe").state, row(run_dir, "probe").pid) == ("stopped", 0)
    assert "stopped (on request)" in invoke("ps").stdout
    said = "Actor probe is kept stopped by an operator: `supervisor start probe` starts it"
    assert invoke("why", "actor/probe").stdout.splitlines()[0] == said
    assert json.loads(invoke("start", "probe", "-o", "json").stdout)["incarnation"] == 2
    assert (row(run_dir, "probe").state, row(run_dir, "probe").held) == ("ready", False)


def test_kill_waits_for_the_next_incarnation(invoke: Any, run_dir: Path) -> None:
    before = row(run_dir, "probe")
    found = json.loads(invoke("kill", "probe", "-o", "json").stdout)
    assert (found["incarnation"], found["state"]) == (before.incarnation + 1, "ready")
    assert row(run_dir, "probe").last_death == "killed by SIGKILL"


def test_kill_of_an_unknown_actor_fails(invoke: Any) -> None:
    assert "no such actor; there are: status, probe" in invoke("kill", "nobody", code=1).stderr


def test_state_shows_any_part_of_an_actor(invoke: Any) -> None:
    assert "ready: true" in invoke("state", "status").stdout
    settings = json.loads(invoke("state", "status", "settings", "-o", "json").stdout)
    assert settings["node_name"] == "node"
    assert len(settings) == len(fields(Settings))
    assert invoke("state", "status", "settings.node_name").stdout == "'node'\n"
    assert "there is no 'nothing'" in invoke("state", "status", "settings.nothing", code=1).stderr


@pytest.mark.parametrize("command", ["state", "mailbox"])
def test_inside_of_an_actor_with_a_hung_handler_is_shown(command: str, invoke: Any, run_dir: Path) -> None:
    over = run_dir / "over"
    hung = f"[__import__('time').sleep(0.05) for _ in iter(lambda: __import__('os').path.exists({str(over)!r}), True)]"
    with Client(run_dir / "run", role="debug") as client:
        from proto.agent.actor import Evaluate  # noqa: PLC0415

        hang = threading.Thread(target=lambda: client.ask("probe", Evaluate(expression=hung), 60))
        hang.start()
        try:
            wait_for(lambda: "In its handler: Evaluate" in invoke("mailbox", "probe").stdout, 20, "it hangs")
            invoke(command, "probe")
            assert "sleep" in invoke("stacks", "probe").stdout or "Evaluate" in invoke("mailbox", "probe").stdout
        finally:
            over.touch()
            hang.join()


def test_stacks_of_a_stopped_process_are_the_kernels(invoke: Any, run_dir: Path) -> None:
    pid = row(run_dir, "probe").pid
    stop_process(pid)
    try:
        text = invoke("stacks", "probe").stdout
    finally:
        os.kill(pid, signal.SIGCONT)
    assert f"the kernel shows of process {pid}" in text
    assert "T (stopped)" in text


def test_profile_is_text_svg_or_json(invoke: Any, tmp_path: Path) -> None:
    svg = tmp_path / "probe.svg"
    assert "wrote" in invoke("profile", "probe", "0.2", "--waits", "--svg", str(svg)).stdout
    assert ET.parse(svg).getroot().tag.endswith("svg")
    assert "TOTAL    SELF  FRAME" in invoke("profile", "probe", "0.1", "--waits").stdout
    assert json.loads(invoke("profile", "probe", "0.1", "--waits", "-o", "json").stdout)["samples"]


def test_ask_sends_any_message_and_lists_them(invoke: Any) -> None:
    assert "mailbox: 0" in invoke("ask", "probe", "Ping").stdout
    assert json.loads(invoke("ask", "supervisor", "ListActors", "with_memory=false", "-o", "json").stdout)["rows"]
    assert "ListPods" in invoke("ask", "status").stdout
    there = "there is no such actor; there are supervisor, status, probe\n"
    assert invoke("ask", "nobody", code=1).stderr == f"supervisor: cannot ask nobody: {there}"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (["v=loud"], "field 'v': Expected `int`, got `str`"),
        (["v=1.5"], "field 'v': Expected `int`, got `float`"),
        (["w=1"], "it has no field 'w'; it has v"),
        (["v"], "write FIELD=VALUE"),
        ([], "field 'v' is missing"),
    ],
)
def test_wrong_field_of_a_message_is_named(values: list[str], problem: str) -> None:
    with pytest.raises(CommandError, match=problem.replace("`", ".")):
        build("probe", "SetVerbosity", values)


def test_field_of_text_is_taken_as_it_is() -> None:
    assert build("eviction", "PlanEviction", ["signal=memory.available", "quantity=5"]).quantity == "5"  # type: ignore[attr-defined]
    assert build("probe", "Ping", []) == Ping()


def test_eval_needs_the_role_debug(invoke: Any) -> None:
    assert "it needs the role debug" in invoke("eval", "probe", "1 + 1", code=1).stderr
    assert invoke("eval", "--role", "debug", "probe", "actor.name").stdout == "'probe'\n"
    assert "ZeroDivisionError" in invoke("eval", "--role", "debug", "probe", "1 / 0", code=1).stderr
    assert invoke("eval", "--role", "debug", "probe", "actor.ready").stdout == "True\n"


@pytest.mark.parametrize(
    ("role", "line", "code"),
    [
        ("read", "ps", 0),
        ("read", "restart probe", 1),
        ("operate", "restart probe", 0),
        ("operate", "ask status FindPod namespace=a name=b", 1),
        ("debug", "eval probe 1", 0),
    ],
)
def test_role_of_a_console_limits_its_commands(role: str, line: str, code: int, invoke: Any) -> None:
    invoke("console", "--role", role, "-c", line, code=code)


def test_top_actors_has_cpu_memory_and_messages(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "ANSWER_S", 20.0)  # an actor of a busy machine may answer later
    found = {one["name"]: one for one in json.loads(invoke("top", "actors", "-o", "json").stdout)}
    assert set(found) == {"supervisor", "forkserver", "status", "probe"}
    assert found["probe"]["cpu"] is not None
    assert found["probe"]["memory_kib"] > 1000
    assert found["probe"]["mailbox"] == 0
    assert found["supervisor"]["rate"] is None or found["supervisor"]["rate"] == 0


@pytest.mark.parametrize(
    ("text", "route"),
    [("pleg", ("", "pleg")), ("a->b", ("a", "b")), ("a->", ("a", "")), ("", ("", ""))],
)
def test_route_names_sender_and_receiver(text: str, route: tuple[str, str]) -> None:
    assert route_of(text) == route


@pytest.mark.parametrize(
    "arguments",
    [
        ("console->probe", "--type", "Ping"),
        ("probe", "--grep", "from console"),
        ("", "--type", "Ping", "--slower-than", "0.001us"),
    ],
)
def test_tap_shows_only_what_its_filters_take(arguments: tuple[str, ...], invoke: Any, run_dir: Path) -> None:
    over = threading.Event()

    def send() -> None:
        with Client(run_dir / "run") as client:
            while not over.is_set():
                client.ask("probe", Ping())
                client.ask("status", Ping())

    sender = threading.Thread(target=send)
    sender.start()
    try:
        lines = invoke("tap", *arguments, "--count", "3", "-o", "json").stdout.splitlines()
    finally:
        over.set()
        sender.join()
    assert {json.loads(line)["type"] for line in lines} == {"Ping"}
    if "probe" in arguments[0]:
        assert {json.loads(line)["actor"] for line in lines} == {"probe"}


@pytest.mark.parametrize(("option", "value"), [("--slower-than", "soon"), ("--grep", "(")])
def test_wrong_filter_is_refused(option: str, value: str, invoke: Any) -> None:
    invoke("tap", "probe", option, value, code=2)


WITH_EXAMPLE = """
    ps top state mailbox tap ask stacks profile start stop kill restart plan eval describe verbosity timeline console
"""


@pytest.mark.parametrize("command", WITH_EXAMPLE.split())
def test_help_has_an_example(command: str, runner: CliRunner) -> None:
    lines = [line.strip() for line in runner.invoke(group, [command, "--help"]).stdout.splitlines()]
    assert any(line.startswith(f"Example: supervisor {command}") for line in lines), lines

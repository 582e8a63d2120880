"""Upgrade without drain: another release takes over the running agent, and gives it back."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from proto.agent.supervisor import GetUpgrade, StartUpgrade
from proto.wire.errors import ActorDead, ActorError, AskTimeout, Refused
from supervisor.sockets.client import CannotReach, Client
from tests.agent.agent import Agent
from tests.agent.embedded import embedded_agent
from tests.agent.recovery.upgrading import another_release, change, release_of, serving, there_and_back, upgrade
from tests.harness import wait_for


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another release."""
    return another_release(tmp_path / "other")


@pytest.fixture
def agent() -> Iterator[Agent]:
    with embedded_agent(prepare=serving) as started:
        yield started


@pytest.mark.timeout(900)
@pytest.mark.needs("busybox")
def test_pods_and_clients_notice_no_upgrade_there_and_back(agent: Agent, other: Path) -> None:
    there_and_back(agent, other)


@pytest.mark.parametrize(
    ("path", "before", "after", "problem"),
    [
        (
            "actors/eviction/actor.py",
            "    async def rebuild(self) -> None:",
            "    async def rebuild(self) -> None:\n        raise KeyError('new')\n\n    async def old(self) -> None:",
            "KeyError: 'new'",
        ),
        (
            "supervisor/core/daemon.py",
            "class Daemon:",
            "raise ImportError('not this time')\nclass Daemon:",
            "not this time",
        ),
        (
            "supervisor/core/daemon.py",
            "        if upgrade is not None:\n            upgrade.begin(self)",
            "        raise RuntimeError('no daemon')",
            "no daemon",
        ),
    ],
    ids=["an actor fails its trial", "the supervisor does not start", "the supervisor fails with children taken over"],
)
@pytest.mark.timeout(400)
def test_former_release_comes_back(agent: Agent, other: Path, path: str, before: str, after: str, problem: str) -> None:
    change(other / path, before, after)
    pid = agent.rows()["supervisor"]["pid"]
    found = upgrade(agent, "--to", str(other))
    assert found.returncode == 1
    assert problem in found.stderr, found.stderr + agent.log.read_text()[-3000:]
    wait_for(agent.all_ready, 60, "every actor is ready again")
    assert agent.rows()["supervisor"]["pid"] == pid
    assert release_of(agent) == "former"
    agent.kill_actors("pleg")


@pytest.mark.parametrize("fails", [False, True], ids=["it starts", "it does not start"])
@pytest.mark.timeout(400)
def test_service_manager_hears_of_the_next_self(
    other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    if fails:
        begin = "        if upgrade is not None:\n            upgrade.begin(self)"
        change(other / "supervisor/core/daemon.py", begin, "        raise RuntimeError('no daemon')")
    with service_manager(tmp_path / "notify") as lines:
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "400000")
        with embedded_agent() as agent:
            monkeypatch.undo()
            wait_for(lambda: "WATCHDOG=1" in lines, 20, "the watchdog is fed")
            assert upgrade(agent, "--to", str(other)).returncode == fails
            before = lines.count("WATCHDOG=1")
            wait_for(lambda: lines.count("WATCHDOG=1") > before, 20, "the next self feeds it")
            assert release_of(agent) == ("former" if fails else "other")
    assert "STOPPING=1" in lines


@contextlib.contextmanager
def service_manager(path: Path) -> Iterator[list[str]]:
    """The lines that it has got. It reads at once, as systemd does: the kernel keeps no more than ten messages."""
    lines: list[str] = []

    def read() -> None:
        while data := manager.recv(4096):
            lines.extend(data.decode().splitlines())

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield lines
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
                end.sendto(b"", str(path))  # the last one: all before it has been read
            reader.join()


def test_broken_releases_are_refused_before_anything_changes(agent: Agent, other: Path, tmp_path: Path) -> None:
    pids = {name: row["pid"] for name, row in agent.rows().items()}
    (other / "actors/pleg/actor.py").write_text("this is no Python\n")
    (tmp_path / "empty").mkdir()
    for place, problem in ((other, "actor pleg cannot be imported: SyntaxError"), (tmp_path / "empty", "neither")):
        found = upgrade(agent, "--to", str(place))
        assert found.returncode == 1
        assert problem in found.stderr
    assert {name: row["pid"] for name, row in agent.rows().items()} == pids


def test_check_says_what_would_happen_and_does_nothing(agent: Agent, other: Path) -> None:
    pids = {name: row["pid"] for name, row in agent.rows().items()}
    found = upgrade(agent, "--check", "--to", str(other))
    assert "then restart, one by one:" in found.stdout
    assert "pod_workers, " in found.stdout
    assert {name: row["pid"] for name, row in agent.rows().items()} == pids


def test_check_as_json_has_the_release_and_the_actors(agent: Agent, other: Path) -> None:
    found = json.loads(upgrade(agent, "--check", "--to", str(other), "-o", "json").stdout)
    assert set(found) == {"python", "place", "actors", "notes"}
    assert found["place"] == str(other)
    assert {"pleg", "pod_workers"} <= set(found["actors"])


@pytest.mark.timeout(400)
def test_commands_and_followers_go_on_through_an_upgrade(agent: Agent, other: Path, tmp_path: Path) -> None:
    """One question after the other, and two followers, beside the exec of the next self."""
    own = [sys.executable, "-m", "supervisor"]
    lines = [["top", "actors", "-w", "-o", "json"], ["events", "--processes", "-o", "json"]]
    files = [(tmp_path / line[0]).open("w+") for line in lines]
    followers = [
        subprocess.Popen([*own, *line, "--run-dir", str(agent.run_dir)], stdout=file, stderr=subprocess.STDOUT)
        for line, file in zip(lines, files, strict=True)
    ]
    problems: list[str] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            try:
                with Client(agent.run_dir) as client:
                    client.actors()
            except ActorError as error:
                problems.append(str(error))

    asker = threading.Thread(target=ask)
    try:
        wait_for(lambda: all(Path(file.name).stat().st_size for file in files), 60, "both follow")
        asker.start()
        assert upgrade(agent, "--to", str(other)).returncode == 0
        before = [Path(file.name).stat().st_size for file in files]
        agent.kill_actors("pleg")
        wait_for(
            lambda: all(Path(file.name).stat().st_size > size for file, size in zip(files, before, strict=True)),
            60,
            "both follow the next self",
        )
        assert [one.poll() for one in followers] == [None, None]
        assert problems == []
    finally:
        over.set()
        for one in followers:
            one.send_signal(signal.SIGINT)
            one.wait(30)
        for file in files:
            file.close()
        if asker.ident is not None:
            asker.join()


def test_the_supervisor_itself_judges_a_release(agent: Agent, tmp_path: Path) -> None:
    pids = {name: row["pid"] for name, row in agent.rows().items() if name != "forkserver"}
    python = tmp_path / "python"
    python.write_bytes(b"neither ELF nor a script")
    python.chmod(0o757)
    order = StartUpgrade(python=str(python), place=str(tmp_path))
    with Client(agent.run_dir) as client:
        with pytest.raises(Refused, match="has mode 0757"):
            client.ask("supervisor", order)
        python.chmod(0o755)
        client.ask("supervisor", order)
    wait_for(lambda: f"did not start: cannot execute {python}" in verdict(agent), 60, "the exec has failed")
    wait_for(agent.all_ready, 60, "every actor is ready")
    assert {name: row["pid"] for name, row in agent.rows().items() if name != "forkserver"} == pids
    agent.kill_actors("pleg")


def verdict(agent: Agent) -> str:
    try:
        with Client(agent.run_dir) as client:
            return client.ask("supervisor", GetUpgrade(), 2.0).verdict
    except (CannotReach, ActorDead, AskTimeout):  # it executes its next self
        return ""

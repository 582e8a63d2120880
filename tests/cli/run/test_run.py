"""`supervisor run` with a fake agent, from the start to every kind of end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from actors.objects.parsing.load import MAX_BYTES
from supervisor.cli import group
from supervisor.cli.errors import CommandError
from supervisor.cli.run import session, sources
from tests.harness import alive, wait_for

PROGRAM = """
import sys
from pathlib import Path
from supervisor.cli.run.command import Session
start = [sys.executable, "-m", "tests.cli.run.directory_agent"]
sys.exit(Session([Path(arg) for arg in sys.argv[1:]], [], start).run())
"""
ROOT = Path(__file__).parents[3]
DEADLINE_S = 30.0
RUNS = r"with pid (\d+)"


class Run:
    """One running session; what it has printed so far is `text`."""

    def __init__(self, tmp: Path, manifests: Path) -> None:
        self.tmp = tmp
        self.out = tmp.parent / f"out-{time.monotonic_ns()}.txt"
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, manifests],
                stdout=out,
                stderr=out,
                env={**os.environ, "TMPDIR": str(tmp), "NODEVISOR_SESSIONS_DIR": str(tmp / "sessions")},
                cwd=ROOT,
            )

    @property
    def text(self) -> str:
        return self.out.read_text()

    def wait_for(self, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + DEADLINE_S
        while not (found := re.search(pattern, self.text, re.MULTILINE)):
            assert time.monotonic() < deadline, f"{pattern!r} is not in:\n{self.text}"
            assert self.process.poll() is None or re.search(pattern, self.text, re.MULTILINE), self.text
            time.sleep(0.02)
        return found

    def agent_pid(self) -> int:
        return int(self.wait_for(RUNS)[1])

    def directories(self) -> list[Path]:
        return list(self.tmp.glob("nodevisor-*"))


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    directory = tmp_path / "manifests"
    directory.mkdir()
    (directory / "web.yaml").write_text("{}")
    (directory / ".hidden.yaml").write_text("{}")
    return directory


@pytest.fixture
def start(run_dir: Path, manifests: Path) -> Iterator[Callable[[], Run]]:
    runs: list[Run] = []
    tmp = run_dir / "t"  # short, because sockets are below it
    tmp.mkdir()

    def starter() -> Run:
        runs.append(Run(tmp, manifests))
        return runs[-1]

    yield starter
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()
            # The agent ends a moment after its session, and takes its sockets from the directory that is deleted next.
            if found := re.search(RUNS, run.text):
                wait_for(lambda pid=int(found[1]): not alive(pid), DEADLINE_S, "the agent ends")


def test_pod_changes_are_shown_and_the_end_of_the_start(start: Callable[[], Run], manifests: Path) -> None:
    (manifests / "web.yaml").rename(manifests / "slow.yaml")
    run = start()
    run.wait_for(r"^ +\d+\.\ds  slow +0/1 +ContainerCreating$")
    (run.directories()[0] / "slow.pulled").touch()
    run.wait_for(r"^ +\d+\.\ds  slow +1/1 +Running$")
    run.wait_for(r"^All pods are ready or completed after \d+\.\d s\.$")
    assert ".hidden" not in run.text
    assert f"console --run-dir {run.directories()[0]}/run" in run.text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_pods_then_agent_and_removes_directory(start: Callable[[], Run], number: int) -> None:
    run = start()
    run.wait_for("All pods are ready")
    agent = run.agent_pid()
    run.process.send_signal(number)
    run.wait_for(r"web +gone$")
    assert run.process.wait(DEADLINE_S) == 0
    assert run.text.rstrip().endswith("The pods and the agent have ended.")
    assert not alive(agent)
    assert run.directories() == []


def test_added_manifest_becomes_a_pod(start: Callable[[], Run], manifests: Path) -> None:
    run = start()
    run.wait_for("All pods are ready")
    (run.directories()[0] / "manifests" / "more.yaml").write_text("{}")
    run.wait_for(r"more +1/1 +Running$")
    assert not (manifests / "more.yaml").exists()


def test_second_signal_ends_the_agent_and_leaves_pods(start: Callable[[], Run], manifests: Path) -> None:
    (manifests / "stay.yaml").write_text("{}")
    run = start()
    run.wait_for("All pods are ready")
    agent = run.agent_pid()
    run.process.send_signal(signal.SIGINT)
    run.wait_for("Ending the pods")
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(DEADLINE_S) == 130
    assert "pods that had not ended stay" in run.text
    assert f"start --run-dir={run.directories()[0]}/run" in run.text
    assert not alive(agent)
    assert not (run.tmp / "sessions").exists(), "no other session clears what was left on purpose"


def test_dead_agent_is_reported_with_the_end_of_its_log(start: Callable[[], Run], manifests: Path) -> None:
    (manifests / "die.yaml").write_text("{}")
    run = start()
    assert run.process.wait(DEADLINE_S) == 1
    assert "The agent ended by itself (exit code 3). The end of its log:" in run.text
    assert "out of luck" in run.text


def test_agent_killed_while_pods_run_leaves_their_files(start: Callable[[], Run]) -> None:
    run = start()
    run.wait_for("All pods are ready")
    os.kill(run.agent_pid(), signal.SIGKILL)
    assert run.process.wait(DEADLINE_S) == 1
    assert "The agent ended by itself (SIGKILL)" in run.text
    assert f"Their files stay in {run.directories()[0]}" in run.text


def test_the_agent_ends_when_its_session_is_killed(start: Callable[[], Run]) -> None:
    run = start()
    run.wait_for("All pods are ready")
    agent = run.agent_pid()
    run.process.kill()
    wait_for(lambda: not alive(agent), DEADLINE_S, "the agent ends")


def test_next_session_clears_a_killed_one(start: Callable[[], Run]) -> None:
    killed, live = start(), start()
    killed.wait_for("All pods are ready")
    live.wait_for("All pods are ready")
    there = Path(killed.wait_for(r", in (\S+):")[1])
    pod = there / "root/pods/uid-web"
    pod.mkdir(parents=True)
    agent = killed.agent_pid()
    killed.process.kill()
    killed.process.wait()
    # It has no lock that is waited for, and takes its sockets from the directory, where the next agent's would be.
    wait_for(lambda: not alive(agent), DEADLINE_S, "the agent ends")
    after = start()
    after.wait_for(f"Ending what an earlier session left in {re.escape(str(there))}, which was killed")
    wait_for(lambda: (there / "agent.log").read_text().count("--pod-manifest-path") == 2, DEADLINE_S, "another agent")
    pod.rmdir()  # as an agent does
    after.wait_for("All pods are ready")
    assert not there.exists()
    assert live.process.poll() is None
    for run in (live, after):
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(DEADLINE_S) == 0
    assert killed.directories() == []
    assert not (killed.tmp / "sessions").exists()


def test_session_that_cannot_be_cleared_stops_no_other(start: Callable[[], Run], run_dir: Path) -> None:
    """Its interpreter is gone."""
    dead = run_dir / "t" / "nodevisor-abcdefgh"
    (dead / "root" / "pods" / "uid").mkdir(parents=True)
    (dead / "manifests").mkdir()
    records = run_dir / "t" / "sessions"
    records.mkdir(mode=0o700)
    record = session.Record(directory=str(dead), command=("/gone/bin/python",), cgroup_root="", boot=session.boot_id())
    (records / "nodevisor-abcdefgh.json").write_bytes(msgspec.json.encode(record))
    run = start()
    run.wait_for(rf"^Cannot clear {dead} of an earlier session: .*/gone/bin/python")
    run.wait_for("All pods are ready")
    assert (records / "nodevisor-abcdefgh.json").exists()


def test_directory_beside_manifests_does_not_stop_the_end(start: Callable[[], Run]) -> None:
    run = start()
    run.wait_for("All pods are ready")
    (run.directories()[0] / "manifests" / "more").mkdir()
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(DEADLINE_S) == 0
    assert run.directories() == []


def test_warnings_of_the_agent_are_shown(start: Callable[[], Run], manifests: Path) -> None:
    (manifests / "complain.yaml").write_text("{}")
    start().wait_for(r"^config: cannot use complain.yaml: line 1$")


def test_advice_is_shown_once_and_again_at_the_end(start: Callable[[], Run], manifests: Path) -> None:
    (manifests / "stuck.yaml").write_text("{}")
    run = start()
    run.wait_for(r"^stuck cannot get the image : its registry cannot be reached; connect to the network")
    run.wait_for(r"^ +\d+\.\ds  web +1/1 +Running$")
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(DEADLINE_S) == 0
    assert (
        run.text.splitlines()[-1]
        == "Not all pods got ready: stuck cannot get the image : its registry cannot be reached."
    )
    assert run.text.count("connect to the network") == 1


def test_solved_obstacle_is_not_shown_at_the_end(start: Callable[[], Run], manifests: Path) -> None:
    (manifests / "stuck.yaml").write_text("{}")
    run = start()
    run.wait_for(r"^stuck cannot get the image")
    (run.directories()[0] / "stuck.pulled").touch()
    run.wait_for("All pods are ready")
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(DEADLINE_S) == 0
    assert run.text.rstrip().endswith("The pods and the agent have ended.")


def test_missing_manifest_is_wrong_usage(runner: CliRunner) -> None:
    result = runner.invoke(group, ["run", "/nonexistent.yaml"])
    assert result.exit_code == 2
    assert "/nonexistent.yaml" in result.output


def test_manifests_of_the_same_name_are_both_copied(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "web.yaml").write_text(name)
    found = sources.read([tmp_path / "a", tmp_path / "b" / "web.yaml"])
    assert sources.write(found.copies, tmp_path / "copies") == 2
    assert sorted(file.read_text() for file in (tmp_path / "copies").iterdir()) == ["a", "b"]


# Sources that are no usual files


def test_empty_directory_is_named(start: Callable[[], Run], manifests: Path) -> None:
    (manifests / "web.yaml").unlink()
    run = start()
    run.wait_for(rf"^There is no file in {re.escape(str(manifests))}; hidden files")
    run.wait_for(r"on 0 manifests")


def test_content_of_a_pipe_is_a_manifest(tmp_path: Path) -> None:
    """As with `run <(helm template ...)`."""
    reads, writes = os.pipe()
    os.write(writes, b"kind: Pod")
    os.close(writes)
    try:
        found = sources.read([Path(f"/dev/fd/{reads}")])
    finally:
        os.close(reads)
    assert found == sources.Found((sources.Copy(f"{reads}.yaml", b"kind: Pod"),), ())


def test_pipe_is_read_up_to_its_writers_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pods")
    content = b"# " + b"x" * 200_000
    writer = threading.Thread(target=(tmp_path / "pods").write_bytes, args=[content], daemon=True)
    writer.start()
    found = sources.read([tmp_path / "pods"])
    writer.join(DEADLINE_S)
    assert found.copies == (sources.Copy("pods.yaml", content),)


@pytest.mark.parametrize("kind", ["pipe", "socket", "file"])
def test_standard_input_is_read(kind: str, tmp_path: Path) -> None:
    program = "from supervisor.cli.run import sources; print(sources.read([sources.Path('/dev/stdin')]).copies[0])"
    (tmp_path / "pod.yaml").write_text("kind: Pod")
    ours, theirs = socket.socketpair()
    with ours, theirs, (tmp_path / "pod.yaml").open() as file:
        ours.sendall(b"kind: Pod")
        ours.shutdown(socket.SHUT_WR)
        stdin = {"pipe": {"input": "kind: Pod"}, "socket": {"stdin": theirs}, "file": {"stdin": file}}[kind]
        line = [sys.executable, "-c", program]
        done = subprocess.run(line, capture_output=True, text=True, timeout=DEADLINE_S, check=True, cwd=ROOT, **stdin)
    name = "stdin" if kind == "file" else "stdin.yaml"
    assert done.stdout == f"Copy(name='{name}', content=b'kind: Pod')\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_pipe_without_a_writer_can_be_interrupted(number: int, run_dir: Path) -> None:
    os.mkfifo(run_dir / "pods")
    with subprocess.Popen(
        [sys.executable, "-m", "supervisor", "run", run_dir / "pods"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(run_dir), "NODEVISOR_SESSIONS_DIR": str(run_dir / "sessions")},
        cwd=ROOT,
    ) as process:
        assert process.stderr is not None
        try:
            said = process.stderr.readline()
            assert said == f"supervisor: it waits for the content of {run_dir}/pods; Ctrl-C ends it\n"
            process.send_signal(number)
            assert process.wait(DEADLINE_S) == {signal.SIGINT: 130, signal.SIGTERM: -signal.SIGTERM}[number]
        finally:
            process.terminate()
    assert [path.name for path in run_dir.iterdir()] == ["pods"]


def test_source_that_is_too_large_is_refused(tmp_path: Path) -> None:
    assert sources.MOST_BYTES >= MAX_BYTES
    with (tmp_path / "pod.yaml").open("wb") as file:
        file.truncate(sources.MOST_BYTES + 1)
    for source in (tmp_path / "pod.yaml", tmp_path):
        with pytest.raises(CommandError, match=r"cannot read .*/pod\.yaml: is larger than \d+ bytes"):
            sources.read([source])


def test_endless_pipe_is_refused(tmp_path: Path) -> None:
    with subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE) as endless:
        assert endless.stdout is not None
        with pytest.raises(CommandError, match="is larger than"):
            sources.read([Path(f"/dev/fd/{endless.stdout.fileno()}")])
        endless.stdout.close()
        endless.wait(DEADLINE_S)


def test_named_device_or_socket_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        for path in (Path("/dev/zero"), tmp_path / "s"):
            with pytest.raises(CommandError, match=f"cannot read {path}: it is neither a file nor a pipe"):
                sources.read([path])
    assert sources.read([tmp_path]).empty == (tmp_path,), "in a directory they are left out"


def test_hidden_file_that_is_named_is_copied(tmp_path: Path) -> None:
    (tmp_path / ".pod.yaml").write_text("{}")
    assert sources.read([tmp_path / ".pod.yaml"]).copies == (sources.Copy("pod.yaml", b"{}"),)


def test_copies_that_cannot_be_written_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "session").mkdir()
    with pytest.raises(CommandError, match=r"cannot write .*: File name too long; free space, or set TMPDIR"):
        sources.write([sources.Copy("x" * 300, b"")], tmp_path / "session" / "manifests")
    assert not (tmp_path / "session").exists()

"""`supervisor bench` against real agents on a runtime that only keeps records, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from actors._cri.client import Cri
from proto.agent.actor import Ping, Pong
from proto.agent.remote_console import ConsoleKey
from proto.agent.settings import Settings
from proto.agent.supervisor import ListActors
from proto.common.machine import procfs
from proto.pods.status import ListPods, Pods
from proto.wire.errors import Refused
from proto.wire.message import Message
from supervisor.cli import group
from supervisor.cli.bench.asks import ECHO, Floor
from supervisor.cli.bench.pods import bare
from supervisor.cli.bench.pods import plan as plans
from supervisor.cli.bench.pods.ending import Ending, interrupts
from supervisor.cli.bench.pods.manifests import Manifests
from supervisor.cli.common import Session
from supervisor.cli.console.lines import run_line
from supervisor.cli.errors import CommandError
from supervisor.host import settings_file
from tests.bench.harness.agent import Agent
from tests.bench.harness.null_runtime import null_runtime
from tests.cli.fake_agent import FakeAgent
from tests.cli.test_commands import agent_with, make_pod
from tests.containerd.images import BUSYBOX
from tests.harness import Stalls, wait_for

QUICK = ("--rounds", "1", "--seconds", "0.2")
PODS = ("--pods", "2", "--image", BUSYBOX)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cri]:
    with null_runtime(tmp_path_factory.mktemp("null")) as cri:
        yield cri


@pytest.fixture(scope="module")
def agent(runtime: Cri, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(runtime.endpoint, tmp_path_factory.mktemp("agent")) as one:
        yield one


def bench(run_dir: Path, *words: str) -> Result:
    return CliRunner().invoke(group, ["bench", "--run-dir", str(run_dir), *words])


def nothing_left(agent: Agent, runtime: Cri) -> bool:
    return not list(agent.manifests.iterdir()) and not runtime.list_pod_sandbox().result() and not agent.pods()


def test_each_actor_has_a_row_beside_a_floor(agent: Agent) -> None:
    with Stalls() as machine:
        done = bench(Path(agent.client.run_dir), *QUICK, "-o", "json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    rows = {one["figure"]: one for one in found["figures"]}
    for name in [row.name for row in agent.client.actors()[2:]]:
        assert rows[f"ask of {name}"]["ratio"] > 0
    stalled_us = machine.longest_s * 1e6
    assert 0 < rows["ask of an actor"]["floor"] < 10_000 + stalled_us
    assert 0 < rows["ask of an actor"]["p99"] < 100_000 + stalled_us  # where others work, too
    assert rows["runtime Version, through pleg"]["value"] > 0 < rows["runtime Version, through pleg"]["floor"]
    assert rows["idle, wake-ups a second"]["value"] >= 0
    assert rows["memory (PSS)"]["value"] > 10
    assert rows["memory (PSS)"]["floor"] > 0
    assert found["processes"] == len(agent.client.actors())
    assert found["runtime"] == "null 1.0"
    assert found["notes"] == []


def test_table_has_a_line_for_each_figure(agent: Agent) -> None:
    done = bench(Path(agent.client.run_dir), *QUICK)
    assert done.exit_code == 0, done.stderr
    first, headers, *lines = done.stdout.splitlines()
    assert first.startswith(f"agent at {agent.client.run_dir}: ")
    assert headers.split() == ["FIGURE", "THIS", "AGENT", "P99", "FLOOR", "RATIO"]
    assert any(line.startswith("ask of pleg ") for line in lines)
    assert done.stderr == ""


def test_without_pods_nothing_is_written(agent: Agent, runtime: Cri) -> None:
    before = sorted(agent.manifests.iterdir())
    assert bench(Path(agent.client.run_dir), *QUICK).exit_code == 0
    assert sorted(agent.manifests.iterdir()) == before == []
    assert not runtime.list_pod_sandbox().result()


@pytest.mark.needs("cgroups")
def test_pods_are_measured_and_removed(agent: Agent, runtime: Cri) -> None:
    done = bench(Path(agent.client.run_dir), *QUICK, *PODS, "-o", "json")
    assert done.exit_code == 0, done.stderr
    rows = {one["figure"]: one for one in json.loads(done.stdout)["figures"]}
    assert rows["2 pods up"]["ratio"] > 0 < rows["2 pods gone"]["ratio"]
    assert nothing_left(agent, runtime)


def test_leftovers_of_a_killed_benchmark_are_named(agent: Agent, runtime: Cri) -> None:
    plan = plans.Plan("feedbeef", 1, BUSYBOX, ())
    sandbox = runtime.run_pod_sandbox(plans.sandbox(plan, "x")).result()
    try:
        done = bench(Path(agent.client.run_dir), *QUICK, *PODS)
        assert done.exit_code == 1
        assert sandbox in done.stderr
        assert "another benchmark runs or was killed" in done.stderr
    finally:
        runtime.remove_pod_sandbox(sandbox).result()


@pytest.fixture
def refused(run_dir: Path, runtime: Cri) -> Iterator[Any]:
    """Runs --pods 2 against an agent with one pod and other settings; the message of the refusal."""
    manifests = run_dir / "manifests"
    manifests.mkdir()

    def refusal(*words: str, **settings: Any) -> str:
        usual = {"container_runtime_endpoint": runtime.endpoint, "pod_manifest_path": str(manifests)}
        settings_file.write(Settings(run_dir=str(run_dir), **(usual | settings)))
        done = bench(run_dir, *QUICK, *(words or PODS))
        assert done.exit_code == 1
        assert done.stdout == ""
        assert list(manifests.iterdir()) == []
        return done.stderr

    with agent_with(run_dir, make_pod()) as fake:
        yield refusal
        assert {type(asked) for _, asked in fake.asked} <= {ListActors, ListPods}


def test_pods_that_cannot_start_are_refused_before_any_measurement(refused: Any, run_dir: Path) -> None:
    assert "use --pods 1 or fewer" in refused(max_pods=2)
    assert "the agent has no staticPodPath" in refused(pod_manifest_path="")
    assert "No such file or directory; it must be a directory" in refused(pod_manifest_path=str(run_dir / "none"))
    (run_dir / "file").touch()
    assert "Not a directory; it must be a directory" in refused(pod_manifest_path=str(run_dir / "file"))
    assert "cannot use the container runtime" in refused(container_runtime_endpoint=f"unix://{run_dir}/none.sock")
    assert "the agent has no container runtime" in refused(container_runtime_endpoint="")
    assert "cannot use --image Bad Name" in refused("--pods", "1", "--image", "Bad Name")


def test_manifests_of_a_killed_benchmark_are_named(refused: Any, run_dir: Path) -> None:
    (run_dir / "other").mkdir()
    (run_dir / "other/nodevisor-bench-feedbeef-1.json").touch()
    assert f"{run_dir}/other/nodevisor-bench-feedbeef-1.json" in refused(pod_manifest_path=str(run_dir / "other"))


def test_agent_without_a_runtime_has_the_other_rows(run_dir: Path) -> None:
    settings_file.write(Settings(run_dir=str(run_dir), container_runtime_endpoint=f"unix://{run_dir}/none.sock"))
    with FakeAgent(run_dir, {"status": answer}):
        done = bench(run_dir, *QUICK, "-o", "json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert "cannot use the container runtime" in found["notes"][0]
    assert [one["figure"] for one in found["figures"] if one["ratio"]] == ["ask of an actor", "ask of status"]


def answer(request: Message) -> Message:
    return Pong(mailbox=0) if isinstance(request, Ping) else Pods(pods=())


def test_actor_that_refuses_is_a_note(run_dir: Path) -> None:
    def refuse(request: Message) -> Message | Exception:
        return Refused("NotHere", "not now") if isinstance(request, Ping) else Pods(pods=())

    with FakeAgent(run_dir, {"status": refuse}):
        done = bench(run_dir, *QUICK)
    assert done.exit_code == 0, done.stderr
    assert "note: ask of status: not now" in done.stdout


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--pods", "1"), "--pods and --image belong together"),
        (("--image", "x"), "--pods and --image belong together"),
        (("--pods", "51", "--image", "x"), "51 is not in the range"),
        (("--pods", "0", "--image", "x"), "0 is not in the range"),
        ((*PODS, "--command", "sh 'x"), "cannot read --command: No closing quotation"),
        (("--rounds", "0"), "0 is not in the range"),
        (("--seconds", "0"), "0.0 is not in the range"),
    ],
)
def test_wrong_options_are_refused(words: tuple[str, ...], problem: str, run_dir: Path) -> None:
    done = bench(run_dir, *words)
    assert done.exit_code == 2
    assert problem in done.stderr


@pytest.mark.parametrize("role", ["read", "operate"])
def test_role_below_debug_measures_and_starts_no_pods(role: str, run_dir: Path) -> None:
    words = ["console", "--run-dir", str(run_dir), "--role", role, "-c"]
    with FakeAgent(run_dir, {"status": answer}) as fake:
        done = CliRunner().invoke(group, [*words, "bench --rounds 1 --seconds 0.2"])
        assert done.exit_code == 0, done.stderr
        done = CliRunner().invoke(group, [*words, "bench --pods 1 --image x"])
    assert done.exit_code == 1
    assert f"it needs the role debug, this console has {role}" in done.stderr
    assert {type(asked) for _, asked in fake.asked} == {ListActors, ListPods, Ping}


def test_remote_console_refuses_it(capsys: pytest.CaptureFixture[str]) -> None:
    key = ConsoleKey(name="ops", role="debug", public="a" * 40, secret="b" * 40, server="c" * 40)
    assert run_line("bench", Session("tcp://127.0.0.1:1", "debug", key)) == 2
    assert "run it on the agent's machine" in capsys.readouterr().err


@pytest.mark.needs("root")
def test_sandboxes_that_cannot_be_removed_are_named_with_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bare, "CLEAR_S", 0.5)
    plan = plans.Plan("0123abcd", 2, BUSYBOX, ())
    with Ending() as ending:
        with null_runtime(tmp_path) as cri:
            ours = Cri(cri.endpoint)
            pods = bare.BarePods(ours, plan, "sha256:1", ending)
            pods.start()
        (line,) = pods.clear()
        ours.close()
    assert line.startswith("cannot remove each sandbox of the benchmark: the container runtime failed ListPodSandbox: ")
    crictl = f"crictl --runtime-endpoint {ours.endpoint}"
    listed = f"{crictl} pods -q --label nodevisor-bench-floor=0123abcd"
    assert line.endswith(f"; do `{listed} | xargs -r {crictl} rmp -f`")


def test_signals_end_a_measurement_in_order(agent: Agent, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "supervisor", "bench", "--run-dir", agent.client.run_dir, "--rounds", "20"]
    process = subprocess.Popen(
        [*map(str, command), "--seconds", "0.1"], env=os.environ | {"TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE
    )
    wait_for(lambda: [*tmp_path.glob("nodevisor-bench-*/echo.sock")], 30, "the floor's process")
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (130, b"")
    assert list(tmp_path.iterdir()) == []


def test_ignored_signals_stay_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts(), Ending() as ending:
            os.kill(os.getpid(), signal.SIGHUP)
            ending.check()
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(KeyboardInterrupt):
                ending.check()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


# Files and the echo


def test_manifest_is_never_written_over_or_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    target = tmp_path / "target"
    (tmp_path / "m/one.json").write_text("theirs")
    (tmp_path / "m/two.json").symlink_to(target)
    with Manifests(str(tmp_path / "m")) as manifests:
        for name in ("one", "two"):
            with pytest.raises(CommandError, match="File exists"):
                manifests.add(name, b"ours")
        manifests.remove_all(pytest.fail)
    assert (tmp_path / "m/one.json").read_text() == "theirs"
    assert (tmp_path / "m/two.json").is_symlink()
    assert not target.exists()


def test_file_that_took_a_manifests_place_stays(tmp_path: Path) -> None:
    left: list[str] = []
    with Manifests(str(tmp_path)) as manifests:
        for name in ("one", "two", "three"):
            manifests.add(name, b"ours")
        (tmp_path / "new").write_text("theirs")
        (tmp_path / "new").rename(tmp_path / "one.json")
        (tmp_path / "two.json").unlink()
        manifests.remove_all(left.append)
    assert left == [f"cannot remove {tmp_path}/one.json: another file has taken its place; look at it"]
    assert [path.name for path in tmp_path.iterdir()] == ["one.json"]


def test_echo_ends_with_the_block_and_with_its_standard_input(tmp_path: Path) -> None:
    with Floor() as floor:
        assert len(floor.round_trips(3)) == 3
        (echo,) = echoes()
    assert echo not in echoes()
    command = [sys.executable, ECHO, str(tmp_path / "x.sock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        wait_for((tmp_path / "x.sock").exists, 20)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 0


def echoes() -> list[int]:
    """This process's echoes."""
    return [pid for pid in procfs.children(os.getpid()) if ECHO in procfs.title(pid)]

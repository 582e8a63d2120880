"""why, deaths, record and `config history`: an empty answer is true, and what cannot be known is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from proto.agent.settings import Settings
from proto.common.machine import procfs
from proto.node.runtime import PullsUnderWay, PullUnderWay
from proto.node.stats import GetThrottling, Throttling
from proto.pods.config import SourceProblem, Sources
from proto.pods.events import Events
from proto.pods.status import Pods
from proto.v1 import Event, Pod, from_dict
from proto.waits.record import Wait
from proto.waits.table import Slots
from proto.wire.message import Message
from supervisor.cli import group
from supervisor.cli.agent import why
from supervisor.host import settings_file
from supervisor.process import death_log
from supervisor.process.death_log import Death
from tests.cli.fake_agent import Answer, FakeAgent, row
from tests.cli.test_commands import make_pod

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = (["deaths"], ["deaths", "pleg"], ["record", "show"], ["record", "show", "pleg"], ["record", "export"])
COMMANDS += (["config", "history"], ["why", "node"], ["why", "pod/web"])


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in's thread may need longer for its first answer on a busy machine."""
    monkeypatch.setattr(why, "PEERS_S", 20.0)
    monkeypatch.setattr(why, "STATUS_S", 2.0)


def run(runner: CliRunner, run_dir: Path, *arguments: str) -> Result:
    return runner.invoke(group, [*arguments, "--run-dir", str(run_dir)])


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_missing_run_directory_is_an_error(arguments: list[str], runner: CliRunner, run_dir: Path) -> None:
    result = run(runner, run_dir / "absent", *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"supervisor: cannot find an agent: there is no directory {run_dir}/absent; ")


def test_why_waits_longer_for_an_agent_without_records(
    runner: CliRunner, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(why, "PEERS_S", 0.01)
    monkeypatch.setattr(why, "STATUS_S", 20.0)
    asked: list[float] = []
    ask = why._actors

    def ask_and_count(directory: Path, timeout_s: float) -> object:
        asked.append(timeout_s)
        return ask(directory, timeout_s)

    monkeypatch.setattr(why, "_actors", ask_and_count)
    with FakeAgent(run_dir, {"pleg": lambda _: None}) as agent:
        answer = agent.supervisor
        agent.answers["supervisor"] = lambda request: answer(request) if len(asked) == 2 else None
        result = run(runner, run_dir, "why", "node")
        assert (result.exit_code, asked) == (0, [0.01, 20.0]), result.output


PROGRAM = """
import ctypes, os, sys
from supervisor.cli import main
# Without CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH (capset(2)) root has the rights of other users here.
others = ~((1 << 1) | (1 << 2)) & 0xFFFFFFFF
head = (ctypes.c_uint32 * 2)(0x20080522, 0)
if os.geteuid() == 0:
    now = (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capget(head, now) == 0
    now[0] &= others
    now[1] &= others
    assert ctypes.CDLL(None).capset(head, now) == 0
main()
"""


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_unreadable_run_directory_is_an_error(arguments: list[str], run_dir: Path) -> None:
    run_dir.chmod(0)
    line = [sys.executable, "-c", PROGRAM, *arguments, "--run-dir", str(run_dir)]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=30, check=False, cwd=ROOT)
    finally:
        run_dir.chmod(0o700)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"supervisor: cannot read {run_dir}: Permission denied; commands run as the user who started the agent\n"
    )


# deaths


def test_run_directory_without_a_log_has_no_deaths(runner: CliRunner, run_dir: Path) -> None:
    assert run(runner, run_dir, "deaths").stdout == "No deaths.\n"
    assert run(runner, run_dir, "deaths", "pleg").stdout == "No deaths of pleg.\n"


def test_deaths_of_an_unknown_actor_are_an_error(runner: CliRunner, run_dir: Path) -> None:
    (run_dir / "deaths").mkdir()
    former = Death(time=1.5, actor="former", incarnation=1, cause="killed", reason="killed by SIGKILL")
    death_log.append(run_dir / "deaths", former)
    result = run(runner, run_dir, "deaths", "plegg")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("supervisor: cannot show deaths of plegg: no such actor; there are certificates, ")
    assert "killed by SIGKILL" in run(runner, run_dir, "deaths", "former").stdout


def test_log_that_cannot_be_read_is_an_error(runner: CliRunner, run_dir: Path) -> None:
    (run_dir / "deaths").mkdir()
    (run_dir / "deaths" / "log").symlink_to("/etc/passwd")
    result = run(runner, run_dir, "deaths")
    assert result.exit_code == 1
    assert f"cannot read {run_dir}/deaths/log: Too many levels of symbolic links" in result.stderr


# record, config history


def test_actor_without_a_recording_names_those_with_one(runner: CliRunner, run_dir: Path) -> None:
    (run_dir / "recorder").mkdir()
    for name in ("probe-1.rec", "pleg-2.rec", "pleg-1.rec"):
        (run_dir / "recorder" / name).touch()
    result = run(runner, run_dir, "record", "show", "plegg")
    assert result.stderr == f"supervisor: no recording of plegg in {run_dir}; there are those of pleg, probe\n"


def test_history_without_an_agents_settings_is_an_error(runner: CliRunner, run_dir: Path) -> None:
    result = run(runner, run_dir, "config", "history")
    assert result.exit_code == 1
    assert f"no agent has run in {run_dir}; start one" in result.stderr
    settings_file.write(Settings(run_dir=str(run_dir), root_dir=f"{run_dir}/root"))
    assert run(runner, run_dir, "config", "history", "-o", "json").stdout == "[]\n"


# why


def agent(run_dir: Path, status: Answer, **others: Answer) -> FakeAgent:
    settings_file.write(Settings(run_dir=str(run_dir), node_name="node"))
    return FakeAgent(run_dir, {"status": status, **others})


def test_why_takes_a_static_pod_without_the_nodes_name(runner: CliRunner, run_dir: Path) -> None:
    with agent(run_dir, lambda _: Pods(pods=(make_pod(),))):
        said = [run(runner, run_dir, "why", name) for name in ("pod/web", "pod/default/web", "pod/web-node")]
        unknown = [run(runner, run_dir, "why", name) for name in ("pod/nope", "pod/default/nope")]
    assert {one.stdout for one in said} == {"Pod default/web-node is Running and waits for nothing.\n"}
    assert [one.stderr for one in unknown] == [
        "supervisor: cannot find pod 'nope'; `supervisor pods` lists all pods\n",
        "supervisor: cannot find pod default/nope; `supervisor pods` lists all pods\n",
    ]


@pytest.mark.parametrize("name", ["web", "web-node", "default/web-node"])
def test_why_says_that_status_does_not_answer(name: str, runner: CliRunner, run_dir: Path) -> None:
    with agent(run_dir, lambda _: None):
        result = run(runner, run_dir, "why", f"pod/{name}")
    assert (result.exit_code, result.stdout) == (1, "")
    said = f"cannot tell why pod {name} waits: no wait of it is recorded, and status does not answer"
    assert result.stderr == f"supervisor: {said}; see `supervisor why actor/status`\n"


def test_why_does_not_ask_a_status_that_is_not_in_service(runner: CliRunner, run_dir: Path) -> None:
    with agent(run_dir, lambda _: Pods(pods=(make_pod(),))) as fake:
        fake.rows = (row("status", pid=0, state="backoff"),)
        result = run(runner, run_dir, "why", "pod/web")
    assert "status does not answer" in result.stderr
    assert [type(message).__name__ for _, message in fake.asked] == ["ListActors"]


CRASHED = {"name": "c", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "x"}}}
CRASHED |= {"lastState": {"terminated": {"exitCode": 143, "startedAt": "2026-01-01T00:00:00Z"}}}


def crashing() -> Pod:
    status = {"phase": "Running", "containerStatuses": [CRASHED]}
    return msgspec.structs.replace(make_pod(), status=from_dict(Pod, {"status": status}).status)


def told(reason: str, message: str) -> Event:
    involved = {"kind": "Pod", "uid": "uid-default-web-node", "fieldPath": "spec.containers{c}"}
    said = {"reason": reason, "message": message, "lastTimestamp": "2026-01-01T00:01:00Z"}
    return from_dict(Event, {"metadata": {"name": "e"}, "involvedObject": involved, **said})


def test_why_has_the_status_and_events_of_a_crash_loop(runner: CliRunner, run_dir: Path) -> None:
    """The record of the back-off stays as the way to it."""
    found = Events(
        events=(
            told("Unhealthy", "Liveness probe failed: broken"),
            told("Killing", "Container c failed liveness probe, will be restarted"),
        ),
        revision=1,
    )
    record = Wait(kind="retry", waiter="pod/default/web-node", what="container c: CrashLoopBackOff", error="back-off")
    with recorded(run_dir, record), agent(run_dir, lambda _: Pods(pods=(crashing(),)), events=lambda _: found):
        text = run(runner, run_dir, "why", "pod/web-node", "-o", "json").stdout
    (cause,) = json.loads(text)["causes"]
    assert cause["sentence"] == (
        "Pod default/web-node is not ready: its container c is killed and restarted: Liveness probe failed: broken; "
        "2 restarts so far; see supervisor logs web-node -c c"
    )
    assert (cause["code"], cause["links"][0]["what"]) == ("retry", record.what)


BACK_OFF = Wait(
    kind="retry",
    waiter="pod/default/web-node",
    what="container c: CrashLoopBackOff",
    error="it ended with exit code 143; back-off 20s restarting failed container=c",
)


def test_why_of_a_short_name_has_the_last_end_and_its_last_line(runner: CliRunner, run_dir: Path) -> None:
    logs = run_dir / "logs" / "default_web-node_uid-default-web-node" / "c"
    logs.mkdir(parents=True)
    entry = "2026-01-01T00:00:00.000000000Z stderr F "
    (logs / "2.log").write_text(f"{entry}{'x' * 9000}\n{entry}FATAL: no \x1b[2Jdatabase\n{entry}\n")
    with recorded(run_dir, BACK_OFF), agent(run_dir, lambda _: Pods(pods=(crashing(),))):
        settings_file.write(Settings(run_dir=str(run_dir), node_name="node", pod_logs_dir=str(run_dir / "logs")))
        said = [run(runner, run_dir, "why", name).stdout.splitlines()[0] for name in ("pod/web", "pod/web-node")]
        (logs / "2.log").unlink()
        (logs / "2.log").symlink_to("/etc/hostname")
        linked = run(runner, run_dir, "why", "pod/web").stdout
    begin = "Pod default/web-node is not ready: its container c ends with exit code 143 (SIGTERM)"
    end = ", and is restarted; 2 restarts so far; see supervisor logs web-node -c c"
    assert said == [f"{begin}, last with 'FATAL: no \\x1b[2Jdatabase'{end}"] * 2
    assert linked.startswith(f"{begin}{end}"), "a link is not followed"


def test_why_asks_for_a_cpu_limit_behind_a_probes_timeout(runner: CliRunner, run_dir: Path) -> None:
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    status = {"name": "c", "containerID": "containerd://abc", "state": running}
    status = {"phase": "Running", "containerStatuses": [status]}
    pod = msgspec.structs.replace(make_pod(), status=from_dict(Pod, {"status": status}).status)
    found = Events(events=(told("Unhealthy", "Readiness probe failed: command timed out"),), revision=1)
    held = Throttling(limit_milli=10, periods=5, throttled_periods=4, throttled_ms=300, over_s=0.5)
    for answer, said in (
        (held, "its container is throttled in 4 of its 5 CPU periods in the last 0.5 s, 0.3 s in all, by limits.cpu"),
        (Throttling(), "command timed out; correct the probe or what it asks\n"),
        (None, "command timed out; correct the probe or what it asks\n"),
    ):
        peers: dict[str, Answer] = {"events": lambda _: found, "stats": partial(_says_maybe, answer)}
        with agent(run_dir, lambda _: Pods(pods=(pod,)), **peers) as fake:
            assert said in run(runner, run_dir, "why", "pod/web").stdout
            (asked,) = [message for _, message in fake.asked if isinstance(message, GetThrottling)]
        assert (asked.pod_uid, asked.container_id) == ("uid-default-web-node", "abc")


def _says_maybe(answer: Message | None, _: Message) -> Message | None:
    return answer


def test_why_tells_the_progress_of_a_pull(runner: CliRunner, run_dir: Path) -> None:
    name = "docker.io/library/big:1"
    call = Wait(kind="cri", waiter=f"image/{name}", target="cri", what="PullImage")
    pull = PullUnderWay(name=name, began=0.0, done_bytes=2_500_000, total_bytes=10_000_000, layers_done=1, layers=4)
    pod = Wait(kind="condition", waiter="pod/default/web-node", target=f"image/{name}")
    (run_dir / "waits").mkdir()
    tables = [
        Slots(run_dir / "waits" / one, one, 1, procfs.start_time(os.getpid())) for one in ("image_pull", "runtime")
    ]
    for wait in (call, pod):
        tables[0].write(tables[0].take(), wait)
    with agent(run_dir, lambda _: Pods(pods=(make_pod(),)), runtime=lambda _: PullsUnderWay(pulls=(pull,))):
        said = run(runner, run_dir, "why", "pod/web").stdout.splitlines()[0]
    for table in tables:
        table.close()
    assert said.endswith("; 2.5 of 10.0 MB so far, 1 of 4 layers"), said


@contextmanager
def recorded(run_dir: Path, record: Wait) -> Iterator[None]:
    """This process is pod_workers, with one wait."""
    (run_dir / "waits").mkdir()
    slots = Slots(run_dir / "waits" / "pod_workers", "pod_workers", 1, procfs.start_time(os.getpid()))
    slots.write(slots.take(), record)
    try:
        yield
    finally:
        slots.close()


def test_why_names_the_users_of_a_busy_mount(runner: CliRunner, run_dir: Path, tmp_path: Path) -> None:
    error = f'TearDown failed for volume "data" : unmount {tmp_path}: device or resource busy'
    record = Wait(kind="retry", waiter="pod/default/web-node", error=error)
    with recorded(run_dir, record), agent(run_dir, lambda _: Pods(pods=(make_pod(),))):
        alone = run(runner, run_dir, "why", "pod/web-node").stdout
        with subprocess.Popen(["sleep", "60"], cwd=tmp_path) as user:
            used = run(runner, run_dir, "why", "pod/web-node").stdout
            user.kill()
    assert "end the processes that use it\n" in alone
    assert f"end the processes that use it (process {user.pid} sleep: working directory)\n" in used


def test_why_names_the_labels_that_a_rejected_pod_asks_for(runner: CliRunner, run_dir: Path) -> None:
    pod = make_pod()
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_selector={"disk": "ssd"}))
    record = Wait(kind="admission", waiter="pod/default/web-node", what="NodeAffinity: no match", target="rejected")
    with recorded(run_dir, record), agent(run_dir, lambda _: Pods(pods=(pod,))):
        said = run(runner, run_dir, "why", "pod/web-node").stdout
    assert "this node's labels (it asks for disk=ssd)\n" in said


def _says(answer: Message, _: Message) -> Message:
    return answer


def test_why_has_the_same_keys_and_sentence_as_json(runner: CliRunner, run_dir: Path) -> None:
    for pods in ((make_pod(),), (crashing(),)):
        answer = Pods(pods=pods)
        with agent(run_dir, partial(_says, answer)):
            text = run(runner, run_dir, "why", "pod/web").stdout
            found = json.loads(run(runner, run_dir, "why", "pod/web", "-o", "json").stdout)
        assert text == found["sentence"] + "\n"
        assert list(found) == ["subject", "sentence", "causes", "took_ms"]
        assert all(list(one) == ["code", "sentence", "links", "severity"] for one in found["causes"])
    assert len(found["causes"]) == 1


def test_why_names_the_manifest_that_is_refused(runner: CliRunner, run_dir: Path) -> None:
    sources = Sources(pods={}, problems=(SourceProblem(file="/m/web.yaml", line=3, field="spec.x", problem="unknown"),))
    with agent(run_dir, lambda _: Pods(pods=()), config=lambda _: sources):
        found = [run(runner, run_dir, "why", name) for name in ("pod/web", "pod/default/web-node", "pod/other")]
    said = "waits for its manifest, which is refused: /m/web.yaml:3: spec.x: unknown; correct it\n"
    assert [one.stdout for one in found] == [f"Pod web {said}", f"Pod default/web-node {said}", ""]
    assert found[2].stderr == (
        "supervisor: cannot find pod 'other'; `supervisor pods` lists all pods; "
        "refused manifests: /m/web.yaml:3: spec.x: unknown\n"
    )


def test_why_says_that_no_agent_runs(runner: CliRunner, run_dir: Path) -> None:
    (run_dir / "waits").mkdir()
    Slots(run_dir / "waits" / "pleg", "pleg", 1, 1).close()
    said = {name: run(runner, run_dir, "why", name).stdout for name in ("node", "pod/web", "actor/pleg")}
    end = "waits for the agent, which is not running (it was stopped): start it; pods go on meanwhile\n"
    assert said == {"node": f"Node {end}", "pod/web": f"Pod web {end}", "actor/pleg": f"Actor pleg {end}"}


@pytest.mark.parametrize("arguments", [["config", "show"], ["images"]], ids=" ".join)
def test_unreadable_settings_are_an_error(arguments: list[str], run_dir: Path) -> None:
    test_unreadable_run_directory_is_an_error(arguments, run_dir)

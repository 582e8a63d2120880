"""The commands against a fake agent with real sockets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from proto.agent.actor import Counter, Description
from proto.agent.settings import Settings
from proto.agent.supervisor import ActorRow, ActorRows, RestartActor
from proto.pods.status import Pods
from proto.v1 import Pod, from_dict
from proto.wire.errors import Refused
from proto.wire.message import Message
from supervisor.cli import group
from supervisor.cli.agent.processes import ps_rows
from supervisor.cli.views.pod_changes import PodChanges
from supervisor.host import settings_file
from tests.cli.fake_agent import FakeAgent, row

T = "2026-11-20T13:34:33.1Z"


def make_pod(name: str = "web-node", namespace: str = "default", containers: tuple[str, ...] = ("c",)) -> Pod:
    return from_dict(
        Pod,
        {
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"},
            "spec": {"nodeName": "node", "containers": [{"name": c} for c in containers]},
            "status": {
                "phase": "Running",
                "podIP": "10.0.0.7",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [
                    {"name": c, "ready": True, "restartCount": 0, "state": {"running": {"startedAt": T}}}
                    for c in containers
                ],
            },
        },
    )


def agent_with(run_dir: Path, *pods: Pod) -> FakeAgent:
    return FakeAgent(run_dir, {"status": lambda _: Pods(pods=pods)})


def run(runner: CliRunner, run_dir: Path, *arguments: str) -> Result:
    return runner.invoke(group, [*arguments, "--run-dir", str(run_dir)])


COMMANDS = [
    ["ps"],
    ["restart", "x"],
    ["stop"],
    ["describe", "x"],
    ["pods"],
    ["pods", "--watch"],
    ["objects"],
    ["top"],
    ["logs", "x"],
    ["events"],
    ["events", "--watch"],
    ["events", "--processes"],
    ["describe", "pod", "x"],
    ["tap", "x"],
    ["tap"],
    ["top", "actors"],
    ["state", "x"],
    ["mailbox", "x"],
    ["stacks", "x"],
    ["profile", "x", "1"],
    ["ask", "pleg", "Ping"],
    ["eval", "x", "1", "--role", "debug"],
    ["kill", "x"],
    ["timeline"],
    ["bench"],
    ["stop", "x"],
    ["start", "pleg"],
    ["console", "-c", "ps"],
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_without_an_agent_every_command_fails_on_stderr(arguments: list[str], runner: CliRunner, run_dir: Path) -> None:
    result = run(runner, run_dir, *arguments)
    assert result.exit_code == 1
    assert "cannot reach the agent: nothing listens on" in result.stderr
    assert "ERR" not in result.stdout.upper()


@pytest.mark.parametrize(
    "command",
    ["start", "ps", "restart", "stop", "describe", "pods", "top", "objects", "logs", "events", "console", "bench"],
)
def test_every_command_has_help(command: str, runner: CliRunner) -> None:
    result = runner.invoke(group, [command, "--help"])
    assert result.exit_code == 0
    assert "--run-dir" in result.stdout


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("pod", "No such command 'pod'. Did you mean: pods?"),
        ("stat", "No such command 'stat'. Did you mean: state, start, restart?"),
        ("xyz", "No such command 'xyz'.\n"),
        ("-x", "No such option"),
    ],
)
def test_unknown_command_is_answered_with_similar_ones(word: str, said: str, runner: CliRunner) -> None:
    result = runner.invoke(group, [word])
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize("value", ["nan", "inf", "1e300", "-1", "x"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["restart", "status"],
        ["stop"],
        ["kill", "status"],
        ["start", "status"],
        ["ask", "status", "ListPods"],
        ["eval", "status", "1", "--role", "debug"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_impossible_timeout_is_refused_before_the_request(
    arguments: list[str], value: str, runner: CliRunner, run_dir: Path
) -> None:
    with agent_with(run_dir) as agent:
        result = run(runner, run_dir, *arguments, "--timeout", value)
    assert isinstance(result.exception, SystemExit)
    if arguments[0] != "start":  # its flags are the kubelet's: exit code and text, too
        assert result.exit_code == 2
        assert "Invalid value for '--timeout'" in result.stderr
    assert result.exit_code != 0
    assert agent.asked == []


def test_bench_refuses_seconds_that_are_no_number(runner: CliRunner, run_dir: Path) -> None:
    result = run(runner, run_dir, "bench", "--seconds", "nan")
    assert result.exit_code == 2
    assert "Invalid value for '--seconds': 'nan' is not a valid number." in result.stderr


def test_the_run_dir_may_come_from_the_environment(
    runner: CliRunner, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODEVISOR_RUN_DIR", str(run_dir))
    with agent_with(run_dir):
        assert runner.invoke(group, ["ps"]).exit_code == 0


def test_ps_is_a_tree_and_plain_when_not_a_terminal(runner: CliRunner, run_dir: Path) -> None:
    with agent_with(run_dir):
        result = run(runner, run_dir, "ps")
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["ACTOR", "supervisor", "forkserver", "status"]
    assert lines[3].startswith("    status ")
    assert result.stdout.isascii()


def test_ps_draws_the_tree_on_a_terminal() -> None:
    rows = tuple(row(name) for name in ("supervisor", "forkserver", "a", "b"))
    assert [line[0] for line in ps_rows(rows, drawn=True)] == ["supervisor", "└─ forkserver", "   ├─ a", "   └─ b"]


def test_ps_shows_the_time_of_the_next_start() -> None:
    down = ActorRow(name="a", pid=0, state="backoff", incarnation=3, uptime_s=0, restarts=2, restart_in_s=1.25)
    (line,) = ps_rows((down,), drawn=False)
    assert line[1:6] == ["", "backoff 1.2s", "3", "", "2"]


def test_ps_for_programs_has_every_field(runner: CliRunner, run_dir: Path) -> None:
    with agent_with(run_dir):
        rows = json.loads(run(runner, run_dir, "ps", "-o", "json").stdout)
    assert rows[2] == {
        "name": "status",
        "pid": 1,
        "state": "ready",
        "incarnation": 1,
        "uptime_s": 3.0,
        "restarts": 0,
        "last_death": "",
        "mailbox": 0,
        "pss_kib": 0,
        "cpu_s": 0.0,
        "restart_in_s": 0.0,
        "held": False,
        "deaths": [],
        "degraded": False,
    }


def restarting(agent: FakeAgent) -> None:
    def answer(request: Message) -> Message | Exception:
        if isinstance(request, RestartActor):
            return row(request.name, pid=9, incarnation=2)
        return ActorRows(rows=agent.rows)

    agent.answers["supervisor"] = answer


def test_restart_prints_old_and_new_process(runner: CliRunner, run_dir: Path) -> None:
    with agent_with(run_dir) as agent:
        restarting(agent)
        text = run(runner, run_dir, "restart", "status")
        data = json.loads(run(runner, run_dir, "restart", "status", "-o", "json").stdout)
    assert "status: pid 1 -> 9, incarnation 1 -> 2, ready in " in text.stdout
    assert (data["pid"], data["incarnation"], data["previous"]["pid"]) == (9, 2, 1)


def test_restart_of_an_unknown_actor_fails(runner: CliRunner, run_dir: Path) -> None:
    with agent_with(run_dir) as agent:
        restarting(agent)
        result = run(runner, run_dir, "restart", "nobody")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "supervisor: cannot restart nobody: no such actor; there are status\n"


def test_refusal_is_printed_with_its_reason(runner: CliRunner, run_dir: Path) -> None:
    with FakeAgent(run_dir, {"status": lambda _: Refused("Starting", "not yet")}):
        result = run(runner, run_dir, "pods")
    assert (result.exit_code, result.stderr) == (1, "supervisor: not yet (Starting)\n")


def test_describe_shows_counters_and_state(runner: CliRunner, run_dir: Path) -> None:
    said = Description(
        name="probe",
        pid=5,
        incarnation=2,
        uptime_s=61,
        mailbox=0,
        tasks=1,
        timers=2,
        pending_asks=0,
        dropped={"undecodable": 3},
        messages=(Counter(type="Ping", handled=4, total_ms=2.0, max_ms=1.0),),
        state={"workers": {"a": 1}},
    )
    with FakeAgent(run_dir, {"probe": lambda _: said}):
        text = run(runner, run_dir, "describe", "probe").stdout
        data = json.loads(run(runner, run_dir, "describe", "probe", "-o", "json").stdout)
    assert "undecodable 3" in text
    assert "  Ping         4        0   0.500     1.000" in text
    assert "  workers:\n    a: 1\n" in text
    assert (data["state"], data["messages"][0]["type"]) == ({"workers": {"a": 1}}, "Ping")


# pods


def test_pods_are_a_table(runner: CliRunner, run_dir: Path) -> None:
    with agent_with(run_dir, make_pod(), make_pod("b-node", "kube-system")):
        lines = run(runner, run_dir, "pods").stdout.splitlines()
        filtered = run(runner, run_dir, "pods", "-n", "kube-system").stdout.splitlines()
        named = run(runner, run_dir, "pods", "web").stdout.splitlines()
    assert lines[0].split() == ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP"]
    assert lines[1].split() == ["default", "web-node", "1/1", "Running", "0", "<unknown>", "10.0.0.7"]
    assert [line.split()[1] for line in filtered[1:]] == ["b-node"]
    assert [line.split()[1] for line in named[1:]] == ["web-node"]


def test_pods_not_begun_are_listed_with_their_reason(runner: CliRunner, run_dir: Path) -> None:
    said = Description(
        name="pod_workers", pid=5, incarnation=2, uptime_s=61, mailbox=0, tasks=1, timers=2, pending_asks=0, dropped={},
        messages=(), state={"not_begun": {"default/st-vm": "it waits for the container runtime"}},
    )  # fmt: skip
    with FakeAgent(run_dir, {"status": lambda _: Pods(pods=()), "pod_workers": lambda _: said}):
        shown = run(runner, run_dir, "pods")
        described = run(runner, run_dir, "describe", "pod", "st-vm")
    line = "pod default/st-vm is not begun: it waits for the container runtime\n"
    assert (shown.exit_code, shown.stderr) == (0, line)
    assert described.exit_code == 1
    assert described.stderr.endswith(line)


def test_no_pods_is_reported_on_stderr(runner: CliRunner, run_dir: Path) -> None:
    with agent_with(run_dir):
        result = run(runner, run_dir, "pods")
        data = json.loads(run(runner, run_dir, "pods", "-o", "json").stdout)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "No pods found.\n")
    assert data == {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": []}


def test_pods_for_programs_are_a_v1_list(runner: CliRunner, run_dir: Path) -> None:
    with agent_with(run_dir, make_pod()):
        data = json.loads(run(runner, run_dir, "pods", "-o", "json").stdout)
        same = yaml.safe_load(run(runner, run_dir, "pods", "-o", "yaml").stdout)
    assert data == same
    (item,) = data["items"]
    assert (item["apiVersion"], item["kind"], item["metadata"]["name"]) == ("v1", "Pod", "web-node")
    assert item["status"]["containerStatuses"][0]["state"] == {"running": {"startedAt": T}}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nobody", "cannot find pod 'nobody' in any namespace"),
        ("x/web-node", "cannot find pod 'web-node' in namespace x"),
        ("twice-node", "cannot choose pod 'twice-node': there is one in a, b; write NAMESPACE/twice-node"),
    ],
)
def test_ambiguous_or_unknown_pod_is_an_error(name: str, message: str, runner: CliRunner, run_dir: Path) -> None:
    with agent_with(run_dir, make_pod(), make_pod("twice-node", "a"), make_pod("twice-node", "b")):
        result = run(runner, run_dir, "pods", name)
    assert result.exit_code == 1
    assert message in result.stderr


def test_watch_prints_a_pod_again_only_when_it_changed() -> None:
    changes = PodChanges()
    pod = make_pod()
    assert [line.name for line, _ in changes.since_last([pod], 0.0)[0]] == ["web-node"]
    assert changes.since_last([pod], 100.0) == ([], [])
    changed = from_dict(Pod, {"metadata": {"uid": pod.metadata.uid, "name": "web-node"}, "status": {"phase": "Failed"}})
    assert [line.status for line, _ in changes.since_last([changed], 100.0)[0]] == ["Failed"]
    found, removed = changes.since_last([], 100.0)
    assert (found, [line.name for line in removed]) == ([], ["web-node"])
    assert len(changes.since_last([changed], 100.0)[0]) == 1


# logs


@pytest.fixture
def log_dir(run_dir: Path) -> Path:
    run_dir.joinpath("logs").mkdir()
    settings_file.write(Settings(run_dir=str(run_dir), node_name="node", pod_logs_dir=f"{run_dir}/logs"))
    return run_dir / "logs"


def write_log(log_dir: Path, pod: Pod, container: str, *lines: str) -> None:
    directory = log_dir / f"{pod.metadata.namespace}_{pod.metadata.name}_{pod.metadata.uid}" / container
    directory.mkdir(parents=True)
    directory.joinpath("0.log").write_text("".join(f"{T} {line}\n" for line in lines))


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([], "one\nerror\nlong line\n"),
        (["--tail", "1"], "line\n"),
        (["--tail", "0"], ""),
        (["--timestamps"], "".join(f"{T[:-1]}00000000Z {line}\n" for line in ("one", "error", "long line"))),
        (["--since", "1s"], ""),
        (["--since", "1000000h"], "one\nerror\nlong line\n"),
    ],
)
def test_logs_print_the_containers_output(
    options: list[str], shown: str, runner: CliRunner, run_dir: Path, log_dir: Path
) -> None:
    pod = make_pod()
    write_log(log_dir, pod, "c", "stdout F one", "stderr F error", "stdout P long ", "stdout F line")
    with agent_with(run_dir, pod):
        result = run(runner, run_dir, "logs", "web", *options)
    assert (result.exit_code, result.stdout, result.stderr) == (0, shown, "")


def test_logs_name_the_default_container_of_several(runner: CliRunner, run_dir: Path, log_dir: Path) -> None:
    pod = make_pod(containers=("a", "b"))
    write_log(log_dir, pod, "a", "stdout F from a")
    write_log(log_dir, pod, "b", "stdout F from b")
    with agent_with(run_dir, pod):
        first = run(runner, run_dir, "logs", "default/web-node")
        second = run(runner, run_dir, "logs", "web", "-c", "b")
        wrong = run(runner, run_dir, "logs", "web", "-c", "x")
    assert (first.stdout, first.stderr) == ("from a\n", "Defaulted container 'a' out of: a, b\n")
    assert (second.stdout, second.stderr) == ("from b\n", "")
    assert "cannot find container 'x' in pod default/web-node; it has a, b" in wrong.stderr


def test_following_ends_when_the_pod_is_gone(runner: CliRunner, run_dir: Path, log_dir: Path) -> None:
    pod, answers = make_pod(), 0

    def listed(_: Message) -> Pods:
        nonlocal answers
        answers += 1
        return Pods(pods=(pod,) if answers < 3 else ())

    write_log(log_dir, pod, "c", "stdout F one")
    with FakeAgent(run_dir, {"status": listed}):
        result = run(runner, run_dir, "logs", "web", "-f")
    assert (result.exit_code, result.stdout) == (0, "one\n")


def test_missing_log_is_an_error(runner: CliRunner, run_dir: Path, log_dir: Path) -> None:
    with agent_with(run_dir, make_pod()):
        result = run(runner, run_dir, "logs", "web")
    assert result.exit_code == 1
    assert "cannot read the log of container 'c'" in result.stderr
    assert "0.log: No such file or directory" in result.stderr


# streams


def test_process_events_as_json_are_one_object_a_line(runner: CliRunner, run_dir: Path) -> None:
    with agent_with(run_dir):
        result = run(runner, run_dir, "events", "--processes", "--count", "1", "-o", "json")
    assert json.loads(result.stdout) == {"event": "PeerStates", "peers": []}


def test_tap_prints_sender_and_message(runner: CliRunner, run_dir: Path) -> None:
    record: dict[str, Any] = {"type": "Ping", "source": "supervisor", "incarnation": 1, "queued_ms": 1, "failed": True}
    with agent_with(run_dir) as agent:
        agent.publish_tap("status", record)
        result = run(runner, run_dir, "tap", "status", "--count", "1")
    assert "Ping             from supervisor #1" in result.stdout
    assert "FAILED" in result.stdout

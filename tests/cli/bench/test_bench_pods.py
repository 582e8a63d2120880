"""`supervisor bench --pods` with a real agent on a real runtime: nothing of it is left, however it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from proto.cri import api_pb2 as pb
from supervisor.cli.bench.pods.plan import FLOOR_LABEL, LABEL, PREFIX
from tests.agent.agent import Agent, pod
from tests.containerd import ContainerdInstance
from tests.containerd.images import BUSYBOX
from tests.harness import stop_process, wait_for

QUICK = ("--rounds", "1", "--seconds", "0.1")
PODS = (*QUICK, "--pods", "2", "--image", BUSYBOX)
ENDS_S = 100


@pytest.fixture(scope="module")
def agent(containerd: ContainerdInstance) -> Iterator[Agent]:
    """An agent with a pod of its own, which no benchmark may touch."""
    with closing(Agent(containerd)) as one:
        one.start()
        one.write("web", pod("web"))
        wait_for(one.running, 60, f"the pod runs; log: {one.log}")
        yield one


@pytest.fixture(autouse=True)
def _untouched(agent: Agent) -> Iterator[None]:
    before = agent.running()
    yield
    assert agent.running() == before
    assert_nothing_left(agent)


def assert_nothing_left(agent: Agent) -> None:
    assert [path.name for path in agent.manifests.iterdir()] == ["web.yaml"]
    assert len(agent.sandboxes()) == 1
    # config has told pod_workers of the removal; status hears of it a moment later.
    wait_for(lambda: list(agent.pods()) == ["web"], 10, "no pod of the benchmark is shown")


def begin(agent: Agent, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "supervisor", "bench", "--run-dir", str(agent.run_dir), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=ENDS_S)
    return process.returncode, out, err


def has_sandbox(agent: Agent, label: str) -> bool:
    found = agent.containerd.cri.list_pod_sandbox(pb.PodSandboxFilter()).result()
    return any(label in one.labels for one in found)


STAGES: dict[str, Callable[[Agent], bool]] = {
    "without the agent": lambda agent: has_sandbox(agent, FLOOR_LABEL),
    "manifests": lambda agent: any(path.name.startswith(PREFIX) for path in agent.manifests.iterdir()),
    "of the agent": lambda agent: has_sandbox(agent, LABEL),
}


def test_two_pods_have_ratios_and_leave_nothing(agent: Agent) -> None:
    code, out, err = end(begin(agent, *PODS, "-o", "json"))
    assert (code, err) == (0, "")
    found = json.loads(out)
    rows = {one["figure"]: one for one in found["figures"]}
    for name in ("2 pods up", "2 pods gone"):
        assert 0.2 < rows[name]["ratio"] < 50
    assert found["pods"] == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stage", STAGES)
def test_interrupted_benchmark_removes_its_pods(stage: str, number: signal.Signals, agent: Agent) -> None:
    process = begin(agent, *PODS)
    wait_for(lambda: process.poll() is not None or STAGES[stage](agent), 60, f"a benchmark {stage}")
    process.send_signal(number)
    assert end(process) == (130, "", "")


def test_program_that_ends_is_an_error(agent: Agent) -> None:
    code, _, err = end(begin(agent, *PODS, "--command", "sh -c 'exit 3'"))
    assert code == 1
    assert "ended soon with exit code 3; name a program that goes on with --command" in err


def test_program_that_is_missing_is_an_error(agent: Agent) -> None:
    code, out, err = end(begin(agent, *PODS, "--command", "/no/such/program"))
    assert code == 1
    assert "ask of an actor" in out
    assert "cannot measure pods without the agent: StartContainer: " in err
    assert "/no/such/program" in err


def test_image_that_does_not_exist_is_an_error(agent: Agent) -> None:
    code, _, err = end(begin(agent, *QUICK, "--pods", "1", "--image", "127.0.0.1:1/none:1"))
    assert code == 1
    assert "cannot pull --image 127.0.0.1:1/none:1: " in err


def test_end_of_the_agent_is_an_error_and_its_next_start_removes_the_rest(agent: Agent) -> None:
    process = begin(agent, *PODS)
    wait_for(lambda: process.poll() is not None or STAGES["of the agent"](agent), 60, "pods of the agent")
    stop_process(process.pid)  # else it may be past the agent's pods before the agent has ended
    agent.stop()
    process.send_signal(signal.SIGCONT)
    code, _, err = end(process)
    assert code == 1
    assert "the agent has ended" in err
    assert [path.name for path in agent.manifests.iterdir()] == ["web.yaml"]
    assert not has_sandbox(agent, FLOOR_LABEL)
    agent.start()
    wait_for(lambda: len(agent.sandboxes()) == 1 and list(agent.pods()) == ["web"], 60, "the rest is removed")

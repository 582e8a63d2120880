"""kubeletCgroups: the agent's own processes are in the cgroup that it names, and no other process is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from actors._cgroup import fs
from actors._cgroup.hierarchy import hierarchy, own_cgroups
from supervisor.cli.agent import own_cgroup
from supervisor.host.host_setup import HostSetupError
from tests.agent.agent import Agent, is_ready, pod
from tests.agent.embedded import embedded_agent
from tests.cgroups import remove_cgroups
from tests.harness import wait_for

ENTER = "import sys; from supervisor.cli.agent import own_cgroup; own_cgroup.enter(sys.argv[1], '/kubepods'); "
SHOW = "import subprocess; print(subprocess.run(['cat', '/proc/self/cgroup'], capture_output=True, text=True).stdout)"


@pytest.fixture
def name() -> Iterator[str]:
    top = f"nv-own-{os.getpid()}"
    yield f"/{top}/agent"
    remove_cgroups(top)


def cgroups_of(pid: int) -> set[str]:
    return set(own_cgroups(f"/proc/{pid}/cgroup").values())


def named(agent: Agent) -> str:
    return f"/{agent.dir.name}/agent"


def configure(agent: Agent) -> None:
    config = yaml.safe_load(agent.config.read_text()) | {"kubeletCgroups": named(agent)}
    agent.config.write_text(yaml.safe_dump(config))


@pytest.mark.needs("cgroups")
def test_children_are_in_the_cgroup_too(name: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", ENTER + SHOW, name], capture_output=True, text=True, check=True)
    shown = tmp_path / "cgroup"
    shown.write_text(done.stdout.strip())
    mounted = {path.removesuffix(name) for path in hierarchy().paths(name)}
    assert list(own_cgroups(str(shown)).values()).count(name) == len(mounted)
    assert fs.processes_below(name, hierarchy()) == set()


@pytest.mark.parametrize("inside", ["/kubepods", "kubepods/burstable"])
def test_a_cgroup_of_pods_is_refused(inside: str) -> None:
    with pytest.raises(HostSetupError, match="pods are ended and limited there"):
        own_cgroup.enter(inside, "/kubepods")


@pytest.mark.needs("mounts")
def test_every_actor_is_in_the_cgroup_and_no_pod_is() -> None:
    with embedded_agent(prepare=configure) as agent:
        agent.write("web", pod("web"))
        wait_for(lambda: is_ready(agent.pod("web")), 60, f"it runs; log: {agent.log}")
        assert agent.process is not None
        agent.kill_actors("pod_workers")
        pids = {agent.process.pid} | {row["pid"] for row in agent.rows().values() if row["pid"]}
        assert all(named(agent) in cgroups_of(pid) for pid in pids)
        uid = agent.pod("web")["metadata"]["uid"]
        of_pods = fs.processes_below(f"/{agent.dir.name}/kubepods", hierarchy())
        assert of_pods, uid
        assert all(named(agent) not in cgroups_of(pid) for pid in of_pods)

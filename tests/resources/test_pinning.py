"""Exclusive CPUs on this machine: a whole agent with its own runtime, the static policy, and containers that run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors._cri.errors import CriError
from tests.agent.agent import Agent, container, pod
from tests.agent.changing import cgroups
from tests.agent.embedded import embedded_agent
from tests.harness import wait_for

CPUS = sorted(os.sched_getaffinity(0))
pytestmark = [
    pytest.mark.needs("cgroups"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(len(CPUS) < 2, reason="one CPU is reserved, and one is given to a pod"),
]


def configure(agent: Agent) -> None:
    """The static policy with all CPUs reserved but the last."""
    config = yaml.safe_load(agent.config.read_text())
    config |= {
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": ",".join(map(str, CPUS[:-1])),
        "cpuManagerReconcilePeriod": "1s",
        "cpuManagerPolicyOptions": {"strict-cpu-reservation": "false"},
    }
    agent.config.write_text(yaml.safe_dump(config))


@pytest.fixture
def agent() -> Iterator[Agent]:
    with embedded_agent(prepare=configure) as one:
        yield one


def guaranteed(name: str) -> dict[str, Any]:
    amounts = {"cpu": "1", "memory": "32Mi"}
    return pod(name, container("c", resources={"limits": amounts, "requests": amounts}))


def allowed(agent: Agent, name: str) -> str:
    """The CPUs that the first process of a pod's container may use now. Empty while it does not run."""
    try:
        ids = [identity for identity, found in agent.running().items() if found == f"{name}-vm/c"]
        answer = agent.containerd.cri.exec_sync(ids[0], ["grep", "Cpus_allowed_list", "/proc/1/status"], 10).result()
    except (CriError, IndexError):
        return ""
    return str(answer.stdout.decode().split()[-1])


def ranges(cpus: list[int]) -> str:
    return str(cpus[0]) if len(cpus) == 1 else f"{cpus[0]}-{cpus[-1]}"


def state(agent: Agent) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((agent.root_dir / "cpu_manager_state").read_text())
    return found


def test_guaranteed_pod_has_a_cpu_alone_and_others_leave_it(agent: Agent) -> None:
    every, rest, own = ranges(CPUS), ranges(CPUS[:-1]), str(CPUS[-1])
    agent.write("free", pod("free"))
    wait_for(lambda: allowed(agent, "free") == every, 60, f"a pod uses all CPUs; log: {agent.log}")
    agent.write("pinned", guaranteed("pinned"))
    wait_for(lambda: allowed(agent, "pinned") == own, 60, f"it is pinned; log: {agent.log}")
    wait_for(lambda: allowed(agent, "free") == rest, 10, "the other pod leaves its CPU")
    assert list(state(agent)["entries"].values()) == [{"c": own}]
    agent.write("later", pod("later"))
    wait_for(lambda: allowed(agent, "later") == rest, 60, "a later pod does not get it either")

    agent.kill_actors("resources")
    agent.kill_actors("pod_workers", "resources")
    assert [allowed(agent, name) for name in ("pinned", "free", "later")] == [own, rest, rest]
    restarts = [item["status"]["containerStatuses"][0]["restartCount"] for item in agent.pods().values()]
    assert restarts == [0, 0, 0]

    quotas = {
        Path(directory, file).read_text().strip()
        for top in cgroups(agent.dir.name)
        for directory, _, files in os.walk(top)
        for file in ("cpu.cfs_quota_us",)
        if file in files and agent.pod("pinned")["metadata"]["uid"] in directory
    }
    assert quotas <= {"-1"}
    Path(agent.manifests, "pinned.yaml").unlink()
    wait_for(lambda: allowed(agent, "free") == allowed(agent, "later") == every, 60, "they get it back")
    assert "entries" not in state(agent)


def test_pod_too_big_is_refused_by_the_manager_first(agent: Agent) -> None:
    """As the kubelet, whose predicates come later."""
    amounts = {"cpu": "1000", "memory": "32Mi"}
    agent.write("big", pod("big", container("c", resources={"limits": amounts, "requests": amounts})))
    wait_for(lambda: agent.pod("big").get("status", {}).get("phase") == "Failed", 60, f"log: {agent.log}")
    status = agent.pod("big")["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "Allocate failed due to not enough cpus available to satisfy request" in status["message"]


def test_pod_that_does_not_fit_takes_no_cpu_from_the_next(agent: Agent) -> None:
    agent.stop()
    unfit = guaranteed("a-unfit")
    unfit["spec"]["nodeSelector"] = {"no": "such"}
    for name, manifest in (("a-unfit", unfit), ("fits", guaranteed("fits"))):
        agent.write(name, manifest)
    agent.start()
    wait_for(lambda: allowed(agent, "fits") == str(CPUS[-1]), 60, f"it has a CPU alone; log: {agent.log}")
    wait_for(lambda: agent.pod("a-unfit").get("status", {}).get("reason") == "NodeAffinity", 60, "is rejected")


def test_running_pod_gets_its_cpu_when_the_policy_comes(agent: Agent) -> None:
    """As the kubelet, which admits all pods anew after its restart. The pod is not restarted."""
    static = agent.config.read_text()
    state_file = agent.root_dir / "cpu_manager_state"
    agent.stop()
    agent.config.write_text(
        yaml.safe_dump(yaml.safe_load(static) | {"cpuManagerPolicy": "none", "cpuManagerPolicyOptions": {}})
    )
    state_file.unlink()
    agent.start()
    for name, manifest in (("first", guaranteed("first")), ("free", pod("free"))):
        agent.write(name, manifest)
    wait_for(lambda: allowed(agent, "first") == allowed(agent, "free") == ranges(CPUS), 60, f"log: {agent.log}")
    agent.stop()
    agent.config.write_text(static)
    state_file.unlink()
    agent.start()
    wait_for(lambda: allowed(agent, "first") == str(CPUS[-1]), 60, f"it has a CPU alone; log: {agent.log}")
    wait_for(lambda: allowed(agent, "free") == ranges(CPUS[:-1]), 60, f"the other leaves it; log: {agent.log}")
    agent.write("second", guaranteed("second"))
    wait_for(lambda: agent.pod("second").get("status", {}).get("phase") == "Failed", 60, "no CPU is left for it")
    restarts = [agent.pod(name)["status"]["containerStatuses"][0]["restartCount"] for name in ("first", "free")]
    assert restarts == [0, 0]


def test_damaged_state_file_stops_only_pods_that_need_it(agent: Agent) -> None:
    agent.stop()
    path = agent.root_dir / "cpu_manager_state"
    path.write_text("{")
    agent.start(wait=False)
    agent.write("free", pod("free"))
    agent.write("pinned", guaranteed("pinned"))
    wait_for(lambda: agent.rows().get("resources", {}).get("state") == "degraded", 60, "the actor cannot start")
    wait_for(lambda: allowed(agent, "free"), 60, f"a pod without CPUs of its own runs; log: {agent.log}")
    assert f'delete the CPU manager checkpoint file "{path}"' in agent.log.read_text()
    assert "resources" in agent.command("describe", "pod_workers").stdout
    assert allowed(agent, "pinned") == ""
    path.unlink()
    wait_for(lambda: allowed(agent, "pinned") == str(CPUS[-1]), 90, f"it starts after all; log: {agent.log}")

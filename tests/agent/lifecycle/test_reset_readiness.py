"""The feature gate ChangeContainerStatusOnKubeletRestart: readiness after a restart of the agent, and of its actors."""

from collections.abc import Iterator
from contextlib import closing

import pytest
import yaml

from tests.agent.agent import SLEEP, Agent, container, pod
from tests.containerd import ContainerdInstance
from tests.harness import wait_for

PROBE = {"exec": {"command": ["test", "-e", "/tmp/ok"]}, "periodSeconds": 1, "failureThreshold": 1000}
"""No failure changes the readiness that a success has given."""


@pytest.fixture
def agent(containerd: ContainerdInstance) -> Iterator[Agent]:
    with closing(Agent(containerd)) as one:
        config = yaml.safe_load(one.config.read_text())
        gates = {**config.get("featureGates", {}), "ChangeContainerStatusOnKubeletRestart": True}
        one.config.write_text(yaml.safe_dump({**config, "featureGates": gates}))
        one.start()
        yield one


def readiness(agent: Agent, name: str) -> bool | None:
    """None while no container is shown."""
    for one in agent.pod(name).get("status", {}).get("containerStatuses", ()):
        return bool(one["ready"]) if "running" in one["state"] else None
    return None


def test_container_is_unready_after_a_restart_until_it_is_probed(agent: Agent) -> None:
    probed = container("c", f"touch /tmp/ok; {SLEEP}", readinessProbe=PROBE)
    agent.write("probed", pod("probed", probed))
    agent.write("plain", pod("plain", container("c")))
    wait_for(lambda: readiness(agent, "probed") and readiness(agent, "plain"), 60, f"ready; log: {agent.log}")
    before = sorted(agent.running())
    (identity,) = [one for one, name in agent.running().items() if name.startswith("probed-")]
    agent.containerd.cri.exec_sync(identity, ["rm", "/tmp/ok"], 20).result()

    agent.kill_actors("probe", "pod_workers")
    agent.write("later", pod("later", container("c")))
    wait_for(lambda: readiness(agent, "later"), 60, f"the actors serve again; log: {agent.log}")
    assert readiness(agent, "probed"), "the agent goes on"

    assert agent.stop() == 0
    agent.start()
    wait_for(lambda: readiness(agent, "probed") is False, 60, f"not ready; log: {agent.log}")
    wait_for(lambda: readiness(agent, "plain"), 60, "it has no probe")
    agent.containerd.cri.exec_sync(identity, ["touch", "/tmp/ok"], 20).result()
    wait_for(lambda: readiness(agent, "probed"), 60, f"probed; log: {agent.log}")
    assert set(before) <= set(agent.running()), "no container was restarted"

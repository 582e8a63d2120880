"""An agent with a container runtime of its own: from a manifest to a running pod, and on when the runtime is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.agent import Agent, container, is_ready, pod
from tests.agent.embedded import answered, embedded_agent
from tests.harness import wait_for

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def agent() -> Iterator[Agent]:
    with embedded_agent() as one:
        yield one


def test_a_pod_runs_and_goes_on_when_the_runtime_is_killed(agent: Agent) -> None:
    wait_for(lambda: agent.rows().get("runtime", {}).get("state") == "ready", 20, "the runtime is in service, too")
    assert "container runtime: embedded" in agent.log.read_text()
    probe = {"exec": {"command": ["test", "-e", "/tmp/up"]}, "periodSeconds": 1}
    script = "touch /tmp/up; trap exit TERM; while true; do sleep 0.2 & wait $!; done"
    agent.write("web", pod("web", container("main", script, readinessProbe=probe)))
    wait_for(lambda: is_ready(agent.pod("web")), 60, f"the pod is ready; log: {agent.log}")
    before = agent.running()
    assert list(before.values()) == ["web-vm/main"]
    assert agent.pod("web")["status"]["podIP"]
    for _ in range(3):
        agent.kill_actors("runtime", timeout_s=60)
    wait_for(lambda: answered(agent.running) == before, 60, "the very same container runs")
    item = agent.pod("web")
    assert item["status"]["containerStatuses"][0]["restartCount"] == 0
    path = Path(agent.manifests, "web.yaml")
    path.unlink()
    wait_for(lambda: answered(agent.sandboxes) == [], 60, f"the pod goes; log: {agent.log}")

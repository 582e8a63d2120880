"""The agent starts with another cgroupRoot while pods run: they move there, and the limits of all of them hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agent.agent import SLEEP, Agent, container, is_ready, pod
from tests.agent.changing import UNIFIED, content, pod_cgroups, processes
from tests.agent.embedded import answered, embedded_agent
from tests.harness import wait_for

pytestmark = [pytest.mark.needs("cgroups"), pytest.mark.timeout(300)]
LIMIT = 64 << 20
RESOURCES = {"requests": {"memory": "32Mi"}, "limits": {"memory": "64Mi"}}
LIMIT_FILE = "memory.max" if UNIFIED else "memory.limit_in_bytes"


@pytest.fixture
def agent() -> Iterator[Agent]:
    with embedded_agent() as one:
        yield one


def moved(agent: Agent, name: str) -> list[Path]:
    """The pod's cgroups below the new root."""
    uid = agent.pod(name)["metadata"]["uid"]
    return [path for path in pod_cgroups(agent.dir.name) if "moved" in str(path) and uid in path.name.replace("_", "-")]


def limits(agent: Agent, name: str) -> set[int]:
    """Of the pod's memory, below the new root."""
    return {int(text) for path in moved(agent, name) if (text := content(path / LIMIT_FILE).strip())}


def restart_in(agent: Agent, root: str) -> None:
    agent.stop()
    config = yaml.safe_load(agent.config.read_text()) | {"cgroupRoot": root}
    agent.config.write_text(yaml.safe_dump(config))
    agent.start()


def state(agent: Agent, name: str) -> tuple[str, int]:
    """(Phase, restart count)."""
    status: dict[str, Any] = agent.pod(name).get("status", {})
    counts = [one["restartCount"] for one in status.get("containerStatuses", ())]
    return str(status.get("phase")), counts[0] if counts else -1


def lasting(agent: Agent) -> dict[str, str]:
    """Running containers without those of `crashing`, which run for an instant at any time (id: pod/container)."""
    return {identity: name for identity, name in agent.running().items() if not name.startswith("crashing")}


def test_running_pods_move_into_the_hierarchy_of_the_settings(agent: Agent) -> None:
    agent.write("web", pod("web", container("c", SLEEP, resources=RESOURCES)))
    agent.write("once", pod("once", container("c", SLEEP, resources=RESOURCES), restartPolicy="Never"))
    agent.write("crashing", pod("crashing", container("c", "exit 3", resources=RESOURCES)))
    wait_for(lambda: is_ready(agent.pod("web")) and is_ready(agent.pod("once")), 60, f"they run; log: {agent.log}")
    wait_for(lambda: state(agent, "crashing")[1] >= 0, 60, f"it has ended; log: {agent.log}")
    before = lasting(agent)
    assert sorted(before.values()) == ["once-vm/c", "web-vm/c"]

    restart_in(agent, f"/{agent.dir.name}")
    agent.kill_actors("pod_workers")
    wait_for(lambda: answered(lambda: lasting(agent)) == before, 60, "the same run, once the runtime serves again")
    assert (state(agent, "web"), state(agent, "once")) == (("Running", 0), ("Running", 0))

    restart_in(agent, f"/{agent.dir.name}/moved")
    wait_for(lambda: state(agent, "web") == ("Running", 1), 90, f"it was ended and started; log: {agent.log}")
    wait_for(lambda: state(agent, "once") == ("Failed", 0), 60, f"it is not started again; log: {agent.log}")
    # The count is shown from the new container's creation on.
    wait_for(lambda: any(processes(path) for path in moved(agent, "web")), 60, "it runs in its new cgroup")
    assert limits(agent, "web") == {LIMIT}
    # It is started again, in a cgroup that is not the runtime's, which has no limits.
    wait_for(lambda: limits(agent, "crashing") == {LIMIT}, 90, f"its cgroup is limited; log: {agent.log}")

    after = lasting(agent)
    assert list(after.values()) == ["web-vm/c"]
    restart_in(agent, f"/{agent.dir.name}/moved")
    agent.kill_actors("pod_workers")
    wait_for(lambda: answered(lambda: lasting(agent)) == after, 60, "the same runs, once the runtime serves again")

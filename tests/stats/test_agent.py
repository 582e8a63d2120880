"""An agent whose pods have no cgroups of their own, and which names the cgroups of its system containers."""

from __future__ import annotations

import contextlib
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from actors._cgroup import fs
from actors._cgroup.hierarchy import hierarchy
from actors._cgroup.quantities.resources import PodLimits
from tests.agent.agent import Agent, is_ready, pod
from tests.agent.embedded import embedded_agent
from tests.harness import wait_for
from tests.ports import free_ports


def configure(agent: Agent) -> None:
    """Without pod cgroups; the agent removes the cgroups below its root at its end."""
    chosen = {"cgroupsPerQOS": False, "enforceNodeAllocatable": ["none"], "systemCgroups": f"/{agent.dir.name}/misc"}
    agent.config.write_text(yaml.safe_dump(yaml.safe_load(agent.config.read_text()) | chosen))
    for name in ("misc", "runtime"):
        fs.create(f"/{agent.dir.name}/{name}", PodLimits(), hierarchy())
    agent.flags += ["--runtime-cgroups", f"/{agent.dir.name}/runtime"]


@pytest.fixture
def runtimes_cgroup() -> Iterator[None]:
    """Remove the embedded runtime's own cgroup, where pods without one are, unless it is another runtime's, too."""
    made = [path for path in hierarchy().paths("/nodevisor") if not os.path.isdir(path)]
    yield
    for path in made:
        with contextlib.suppress(OSError):
            os.rmdir(path)


def get(port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, ConnectionError):
        return ""


@pytest.mark.usefixtures("runtimes_cgroup")
@pytest.mark.needs("root", "mounts", "cgroups")
def test_pods_are_measured_without_pod_cgroups() -> None:
    (port,) = free_ports(1)
    with embedded_agent("--page-address", f"127.0.0.1:{port}", prepare=configure) as agent:
        agent.write("loose", pod("loose"))
        wait_for(lambda: is_ready(agent.pod("loose")), 60, f"it runs; log: {agent.log}")
        uid = agent.pod("loose")["metadata"]["uid"]

        def shown() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(get(port, "/stats/summary") or '{"pods": []}')
            return found if any(one["podRef"]["uid"] == uid for one in found["pods"]) else {}

        summary = wait_for(shown, 30, "the summary has the pod")
        (loose,) = (one for one in summary["pods"] if one["podRef"]["uid"] == uid)
        (only,) = loose["containers"]
        assert loose["memory"]["workingSetBytes"] == only["memory"]["workingSetBytes"] > 0
        assert loose["cpu"]["usageCoreNanoSeconds"] == only["cpu"]["usageCoreNanoSeconds"] > 0
        assert loose["process_stats"]["process_count"] > 0
        assert "psi" not in loose["cpu"]
        assert {"runtime", "misc", "pods"} <= {one["name"] for one in summary["node"]["systemContainers"]}
        name = loose["podRef"]["name"]
        assert f'pod_memory_working_set_bytes{{pod="{name}"' in get(port, "/metrics/resource")
        assert f'container="{only["name"]}"' in get(port, "/metrics/cadvisor")

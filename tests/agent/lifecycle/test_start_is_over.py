"""A start of the agent ends: a later kill of pod_workers alone is no start."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path

import pytest

from actors.pod_workers.api_pods.api_admission_gate import ALONE_AFTER_S
from proto.common import rfc3339
from proto.pods.pod_workers import ListPodWorkers
from proto.wire.errors import ActorError
from supervisor.sockets.client import Client
from tests.agent.agent import condition, container, is_ready, pod
from tests.agent.api_source import ApiSource
from tests.agent.embedded import embedded_agent
from tests.harness import wait_for

pytestmark = pytest.mark.timeout(300)

PROBE = {"exec": {"command": ["true"]}, "periodSeconds": 1}


def test_killed_pod_workers_does_not_wait_for_the_server() -> None:
    """Its workers are there at once. A kill before the end of the wait repeats it."""
    with embedded_agent(api=True) as agent:
        with closing(ApiSource(agent)) as api:
            api.add(pod("web", container("c", readinessProbe=PROBE)))
            api.wait_ready("web")
        assert agent.stop() == 0
        saved = Path(agent.root_dir, "nodevisor", "pod_workers.json")
        before = saved.read_text() if saved.exists() else ""
        agent.start()
        with closing(Client(agent.run_dir)) as client:

            def has_worker() -> bool:
                with suppress(ActorError):
                    return len(client.ask("pod_workers", ListPodWorkers(), 0.5).pods) == 1
                return False

            wait_for(has_worker, 30, f"the server does not answer; log: {agent.log}")
            wait_for(lambda: saved.exists() and saved.read_text() != before, 10, "it has saved that the wait is over")
            for _ in range(2):
                agent.kill_actors("pod_workers")
                wait_for(has_worker, ALONE_AFTER_S - 1, f"it goes on; log: {agent.log}")
        with closing(ApiSource(agent)):
            wait_for(lambda: not agent.sandboxes(), 60, "gone")


def test_pod_that_began_anew_keeps_its_times_over_kills() -> None:
    """An earlier start of the agent has rejected it. No API server has the times."""
    port = {"ports": [{"containerPort": 18080, "hostPort": 18080}]}
    with embedded_agent() as agent:
        for name, phase in (("first", "Running"), ("second", "Failed")):
            agent.write(name, pod(name, container("c", **port), hostNetwork=True))
            wait_for(lambda name=name, phase=phase: agent.pod(name).get("status", {}).get("phase") == phase, 60, name)
        (agent.manifests / "first.yaml").unlink()
        wait_for(lambda: not agent.running(), 60, "the port is free")
        assert agent.stop() == 0
        agent.start()
        wait_for(lambda: condition(agent.pod("second"), "Ready") == "True", 60, f"log: {agent.log}")
        shown = agent.pod("second")["status"]
        wait_for(lambda: rfc3339.now() > max(one["lastTransitionTime"] for one in shown["conditions"]), 5)
        for name, killed in {"a": ["status"], "b": ["pod_workers"], "c": ["pod_workers", "status"]}.items():
            agent.kill_actors(*killed)
            agent.write(name, pod(name))
            wait_for(lambda name=name: is_ready(agent.pod(name)), 60, f"it serves new pods again; log: {agent.log}")
            assert agent.pod("second")["status"]["conditions"] == shown["conditions"], f"after a kill of {killed}"

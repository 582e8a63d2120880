"""Ephemeral storage beyond a pod's limits: the pod is evicted, its neighbours stay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
import yaml

from tests.agent.agent import Agent, container, pod
from tests.agent.api_source import ApiSource
from tests.containerd import ContainerdInstance
from tests.harness import wait_for

WRITE = "dd if=/dev/zero of=/{}/f bs=1M count=4 2>/dev/null; sleep 1000"


@pytest.fixture(scope="module")
def api(containerd: ContainerdInstance) -> Iterator[ApiSource]:
    with closing(Agent(containerd, api=True)) as agent:
        config = yaml.safe_load(agent.config.read_text())
        agent.config.write_text(yaml.safe_dump({**config, "volumeStatsAggPeriod": "1s"}))
        agent.start()
        with closing(ApiSource(agent)) as source:
            yield source


@pytest.mark.timeout(300)
def test_pod_above_its_storage_limit_is_evicted(api: ApiSource) -> None:
    mounts = [{"name": "v", "mountPath": "/v"}]
    sized = {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]}
    limit = {"limits": {"ephemeral-storage": "1Mi"}}
    logs = "for i in $(seq 400); do head -c 8000 /dev/zero | tr '\\0' x; echo; done; sleep 1000"
    api.add(pod("volume", container("c", WRITE.format("v"), volumeMounts=mounts), **sized))
    api.add(pod("modest", container("c", volumeMounts=mounts), **sized))
    beside = container("d", resources={"limits": {"ephemeral-storage": "1Gi"}})
    api.add(pod("logs", container("c", logs, resources=limit), beside))
    expected = {
        "volume": 'Usage of EmptyDir volume "v" exceeds the limit "1Mi". ',
        "logs": 'Container c exceeded its local ephemeral storage limit "1Mi". ',
    }
    for name, message in expected.items():
        shown = api.wait_phase(name, "Failed", 90)
        assert (shown.status.reason, shown.status.message) == ("Evicted", message)
    api.wait_ready("modest")
    wait_for(lambda: not any(one.startswith("volume/") for one in api.agent.running().values()), 30, "it has ended")

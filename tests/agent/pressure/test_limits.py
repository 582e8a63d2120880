"""Pods beyond their own limits end with the kubelet's reason; their neighbour keeps its CPU time and stays ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from proto.node.stats import GetPodUsages, PodUsages
from proto.v1 import Pod, PodStatus
from supervisor.sockets.client import Client
from tests.agent.agent import container, pod
from tests.agent.api_source import ApiSource
from tests.agent.pressure.pressing import pressed, volume_pod, write
from tests.cgroups import DRIVER
from tests.containerd import ContainerdInstance
from tests.harness import PATIENCE, wait_for
from tests.runtime.instance import EmbeddedInstance

pytestmark = pytest.mark.timeout(300)

CORES = 0.2
"""Quota of the neighbour, which would use more."""
SPAN_S = 2.0
LEAST = 0.8
"""Share of its CPU time before or after, whichever is less: other programs of the machine take some, too."""
TRIES = 2
"""Tries of a measurement that other load of the machine may disturb once."""
OOM_TRIES = 4
PIDS = 120


@pytest.fixture(scope="module")
def beside(containerd: ContainerdInstance) -> Iterator[ApiSource]:
    """An agent with a pod `neighbour` that computes all the time and is probed each second."""
    amounts = {"cpu": f"{CORES * 1000:g}m", "memory": "32Mi"}
    within_s = round(10 * PATIENCE)  # the runtime's start of a command counts against the quota, too
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1, "timeoutSeconds": within_s, "failureThreshold": 1}
    own = container(
        "c", "while :; do :; done", resources={"requests": amounts, "limits": amounts}, readinessProbe=probe
    )
    with pressed(containerd, {"podPidsLimit": PIDS}) as api:
        api.add(pod("neighbour", own))
        api.wait_ready("neighbour")
        yield api


class Neighbour:
    """Its CPU time and readiness while a test runs. A context manager."""

    def __init__(self, api: ApiSource) -> None:
        self._api, self._uid = api, api.pods["neighbour"].metadata.uid
        self._client = Client(api.agent.run_dir)
        self.rates: tuple[float, float, float] = (0.0, 0.0, 0.0)
        """Cores that it got before, meanwhile and after."""

    def kept_its_time(self) -> bool:
        before, meanwhile, after = self.rates
        return meanwhile >= LEAST * min(before, after)

    def _cpu_s(self) -> tuple[float, float]:
        """(CPU time, time)."""
        answer: PodUsages = self._client.ask("stats", GetPodUsages(max_age_s=0.0))
        return next(one.cpu_usage_ns for one in answer.pods if one.pod_uid == self._uid) / 1e9, time.monotonic()

    def _rate(self, began: tuple[float, float]) -> float:
        """Cores that it got since, over at least SPAN_S: quota comes in periods of 0.1 s."""
        time.sleep(max(0.0, began[1] + SPAN_S - time.monotonic()))
        used, now = self._cpu_s()
        return (used - began[0]) / (now - began[1])

    def _ready_since(self) -> str | None:
        shown = wait_for(lambda: self._api.status("neighbour"), 10, "its status")
        (ready,) = [one for one in shown.status.conditions if one.type == "Ready"]
        assert ready.status == "True"
        return str(ready.last_transition_time)

    def __enter__(self) -> Neighbour:
        self._since, self._before = self._ready_since(), self._rate(self._cpu_s())
        self._began = self._cpu_s()
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        with closing(self._client):
            if kind is not None:
                return
            self.rates = (self._before, self._rate(self._began), self._rate(self._cpu_s()))
            assert self._ready_since() == self._since, "it stayed ready"


def ended(api: ApiSource, subject: dict[str, Any], let_go: Callable[[Pod], None] = lambda _: None) -> PodStatus:
    """Run a pod to its end, with its neighbour watched; return its status. `let_go` is called after its creation."""
    name, rates = subject["metadata"]["name"], []
    for _ in range(TRIES):
        with Neighbour(api) as neighbour:
            let_go(api.add(subject))
            status = api.wait_phase(name, "Failed", 60).status
        api.delete(name, 0)
        api.wait_gone(name)
        if neighbour.kept_its_time():
            return status
        rates.append(neighbour.rates)
    raise AssertionError(f"the neighbour's cores before, meanwhile and after: {rates}")


def test_memory(beside: ApiSource) -> None:
    """The reason is the runtime's. containerd says `Error` if the kill comes before its answer to the start.

    With the systemd driver, containerd before its pull request 12714 may also hear of the kill after the end.
    """

    def let_go(hog: Pod) -> None:
        beside.wait_phase(hog.metadata.name, "Running")
        volumes = beside.agent.root_dir / "pods" / hog.metadata.uid / "volumes/kubernetes.io~empty-dir"
        (volumes / "v/go").touch()

    limit = {"resources": {"limits": {"memory": "64Mi"}}}
    tries = OOM_TRIES if DRIVER == "systemd" and not isinstance(beside.agent.containerd, EmbeddedInstance) else 1
    reasons: list[str | None] = []
    while "OOMKilled" not in reasons:
        assert len(reasons) < tries, reasons
        script = f"until test -e /v/go; do sleep 0.1; done; exec {write('/v/f', 300)}"
        hog = volume_pod(f"memory{len(reasons)}", script, "Memory", **limit)
        hog["spec"]["restartPolicy"] = "Never"
        (own,) = ended(beside, hog, let_go).container_statuses
        assert own.state.terminated is not None
        assert own.state.terminated.exit_code == 137
        reasons.append(own.state.terminated.reason)


def test_processes(beside: ApiSource) -> None:
    """The kernel refuses to fork, which the shell takes for its end; no kubelet has a reason of its own for that."""
    bomb = pod("processes", container("c", "while :; do sleep 1000 & done"), restartPolicy="Never")
    (own,) = ended(beside, bomb).container_statuses
    assert own.state.terminated is not None
    assert own.state.terminated.reason == "Error"
    assert own.state.terminated.exit_code not in (0, 137)


def test_empty_dir(beside: ApiSource) -> None:
    hog = volume_pod("volume", write("/v/f", 8))
    hog["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] = "2Mi"
    status = ended(beside, hog)
    assert (status.reason, status.message) == ("Evicted", 'Usage of EmptyDir volume "v" exceeds the limit "2Mi". ')
    assert "DisruptionTarget" not in [one.type for one in status.conditions]


def test_ephemeral_storage(beside: ApiSource) -> None:
    limit = {"resources": {"limits": {"ephemeral-storage": "2Mi"}}}
    status = ended(beside, pod("storage", container("c", f"{write('/f', 8)}; exec sleep 1000", **limit)))
    assert status.reason == "Evicted"
    assert status.message == "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "
    assert "DisruptionTarget" not in [one.type for one in status.conditions]

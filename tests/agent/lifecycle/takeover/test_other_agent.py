"""A node whose pods a kubelet has served between two starts of the agent, and the API server is away at the second."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from proto.pods.pod_workers import EvictPod, ListPodWorkers
from proto.wire.errors import ActorError
from supervisor.sockets.client import Client
from tests.agent.agent import Agent, container, pod
from tests.agent.api_source import ApiSource
from tests.agent.lifecycle.takeover.kubelet import serve_as_kubelet, wait_said_up
from tests.containerd import ContainerdInstance
from tests.harness import wait_for

pytestmark = pytest.mark.timeout(300)

STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.1; done"
NAMES = ("stays", "evicted", "retried")
WAITS = "1 pods accepted before do not run"


def lives(agent: Agent) -> dict[str, str]:
    """Pod to the ID of its running container."""
    return {name.removesuffix("/c"): identity for identity, name in agent.running().items()}


def saved(agent: Agent) -> str:
    """The newer of the two checkpoints."""
    files = [Path(agent.root_dir, "nodevisor", f"pod_workers{end}.json") for end in ("", "-recent")]
    texts = [path.read_text() for path in files if path.exists()]
    return max(texts, key=lambda text: json.loads(text)["data"]["number"], default="")


class Node:
    """Three pods of an API server. Without the server, the agent is between its two starts.

    It was told to evict `retried`, and ended meanwhile. Then another agent has ended the sandbox of `evicted`.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        agent.start()
        with closing(ApiSource(agent)) as source, closing(Client(agent.run_dir)) as client:
            for name in NAMES:
                script = {"script": STUBBORN} if name == "retried" else {}
                source.add(pod(name, container("c", **script), terminationGracePeriodSeconds=600))
            source.wait_ready(*NAMES)
            self.pods = dict(source.pods)
            uid = self.pods["retried"].metadata.uid
            assert uid is not None
            wait_said_up(agent, "retried", uid)
            client.ask("pod_workers", EvictPod(pod_uid=uid, reason="Evicted", message="m", grace_period_s=600), 10.0)
        self.before = lives(agent)
        assert self.before.keys() == set(NAMES)
        assert agent.stop() == 0
        self.end("evicted")

    def end(self, name: str) -> None:
        """Stop a pod's sandbox."""
        for one in self.agent.containerd.cri.list_pod_sandbox().result():
            if one.metadata.name == name:
                self.agent.containerd.cri.stop_pod_sandbox(one.id).result()

    def restart(self) -> int:
        """Start the agent anew; the length of its log before."""
        if self.agent.process is not None and self.agent.process.poll() is None:
            assert self.agent.stop() == 0
        since = len(self.agent.log.read_text())
        self.agent.start()
        return since

    @contextmanager
    def server(self) -> Iterator[ApiSource]:
        """The server with the pods answers for a while."""
        with closing(ApiSource(self.agent, self.pods)) as source:
            yield source

    def wait_logged(self, text: str, since: int) -> None:
        wait_for(lambda: text in self.agent.log.read_text()[since:], 30, f"{text}; log: {self.agent.log}")

    def wait_stages(self, **expected: str) -> None:
        wait_for(lambda: stages(self.agent) == expected, 30, f"{expected}; log: {self.agent.log}")


def stages(agent: Agent) -> dict[str, str]:
    """Pod to the stage of its worker."""
    with suppress(ActorError), closing(Client(agent.run_dir)) as client:
        return {one.name: one.stage for one in client.ask("pod_workers", ListPodWorkers(), 1.0).pods}
    return {}


@pytest.fixture
def node(containerd: ContainerdInstance) -> Iterator[Node]:
    with closing(Agent(containerd, api=True)) as agent:
        yield Node(agent)


def test_pods_that_a_kubelet_served_go_on_as_it_left_them(node: Node) -> None:
    agent, go_on = node.agent, {"stays": "sync", "retried": "sync"}
    serve_as_kubelet(agent)
    since = node.restart()
    assert "another node agent has served root directory" in agent.log.read_text()
    for killed in ("", "pod_workers", "resources", "the agent"):
        if killed == "the agent":
            since = node.restart()
        elif killed:
            since = len(agent.log.read_text())
            agent.kill_actors(killed)
        if killed != "resources":
            node.wait_logged(WAITS, since)
            node.wait_logged("wait for the API server: evicted_default", since)
        node.wait_stages(**go_on)
        assert lives(agent) == {name: node.before[name] for name in go_on}, f"{killed}; log: {agent.log}"

    with node.server() as source:  # it wants all three
        source.wait_ready(*NAMES)
        wait_for(lambda: '"awaits_server":false' in saved(agent), 10, "it is saved that the server has answered")
    for name in go_on:
        assert lives(agent)[name] == node.before[name], f"log: {agent.log}"
    assert agent.stop() == 0
    node.end("evicted")
    node.restart()
    node.wait_stages(**go_on, evicted="sync")
    wait_for(lambda: lives(agent).keys() == set(NAMES), 30, f"the server has wanted it; log: {agent.log}")


def test_without_a_kubelet_our_own_records_stand(node: Node) -> None:
    since = node.restart()
    node.wait_logged("the pods accepted before run again", since)
    node.wait_stages(stays="sync", evicted="sync", retried="terminating")
    wait_for(lambda: "evicted" in lives(node.agent), 30, f"it runs again; log: {node.agent.log}")
    assert WAITS not in node.agent.log.read_text()

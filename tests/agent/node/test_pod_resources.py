"""A monitor's view of an agent with pods: the pod resources API of ROOT_DIR/pod-resources/kubelet.sock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import grpc
import pytest

from tests.agent.agent import Agent, container, is_ready, pod
from tests.containerd import ContainerdInstance
from tests.harness import wait_for
from tests.resources.pod_resources.client import call, socket_of


@pytest.fixture(scope="module")
def agent(containerd: ContainerdInstance) -> Iterator[Agent]:
    with closing(Agent(containerd)) as one:
        one.start()
        yield one


def ask(agent: Agent, rpc: str, **fields: Any) -> dict[str, Any]:
    """The answer; {} while the API is away or does not know all pods."""
    try:
        return call(socket_of(agent.root_dir), rpc, **fields)
    except grpc.RpcError as error:
        if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN):
            raise
        return {}


def listed(agent: Agent) -> dict[str, list[str]]:
    """Names of containers by name of the pod."""
    pods = ask(agent, "List").get("pod_resources", ())
    return {one["name"]: [each["name"] for each in one["containers"]] for one in pods}


def test_pods_are_listed_while_they_are_active(agent: Agent) -> None:
    sidecar, once = container("side", restartPolicy="Always"), container("once", "true")
    agent.write("stays", pod("stays", initContainers=[sidecar, once]))
    agent.write("ends", pod("ends", container("c", "true"), restartPolicy="Never"))
    wait_for(lambda: is_ready(agent.pod("stays")), 60, f"it runs; log: {agent.log}")
    wait_for(
        lambda: listed(agent) == {f"stays-{agent.node}": ["side", "c"]}, 60, f"an ended pod is not listed; {agent.log}"
    )
    over = ask(agent, "Get", pod_namespace="default", pod_name=f"ends-{agent.node}")
    assert [one["name"] for one in over["pod_resources"]["containers"]] == ["c"]


@pytest.mark.parametrize("name", ["resources", "pod_workers"])
def test_the_list_is_the_same_after_a_kill(agent: Agent, name: str) -> None:
    before = listed(agent)
    assert before
    agent.kill_actors(name)
    wait_for(lambda: listed(agent) == before, 30, f"the list is complete again; log: {agent.log}")


def test_a_removed_pod_is_not_listed(agent: Agent) -> None:
    (agent.manifests / "stays.yaml").unlink()
    wait_for(lambda: listed(agent) == {} and ask(agent, "GetAllocatableResources") == {}, 60, "nothing is listed")
    # List has only active pods. Get has an ended one until it is removed.
    get = {"pod_namespace": "default", "pod_name": f"stays-{agent.node}"}
    wait_for(lambda: ask(agent, "Get", **get) == {}, 60, "it is forgotten")

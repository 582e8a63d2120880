"""Pods with resource claims, on the agent's own runtime: claims from --objects-dir, and a DRA driver of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from proto.node.runtime import CDI_DIRECTORIES
from proto.pods.events import ListEvents
from proto.v1.codec import to_dict
from supervisor.sockets.client import Client
from tests.agent.agent import Agent, container, is_ready, pod
from tests.agent.embedded import embedded_agent
from tests.harness import wait_for
from tests.resources.dra.driver import NAME, Driver
from tests.resources.dra.pods import claim
from tests.resources.plugin_server import Fault

pytestmark = pytest.mark.needs("root")
WAITS = "Failed to prepare dynamic resources: prepare dynamic resources: "


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    def prepare(one: Agent) -> None:
        (one.dir / "objects").mkdir()
        one.flags += ["--objects-dir", str(one.dir / "objects")]
        patch.setenv(CDI_DIRECTORIES, str(one.root_dir / "cdi"))

    with pytest.MonkeyPatch.context() as patch, embedded_agent(prepare=prepare) as one:
        yield one


@pytest.fixture
def driver(agent: Agent) -> Iterator[Driver]:
    one = Driver(agent.root_dir).start()
    yield one
    one.close()


def add_claim(agent: Agent, name: str, uid: str) -> None:
    document = claim(name, uid)
    (agent.dir / "objects" / f"{name}.yaml").write_text(yaml.safe_dump(document))


def add_pod(agent: Agent, name: str, uid: str) -> None:
    uses = {"claims": [{"name": "it"}]}
    document: dict[str, Any] = pod(
        name,
        container("c", resources=uses),
        resourceClaims=[{"name": "it", "resourceClaimName": name}],
        terminationGracePeriodSeconds=1,
    )
    document["metadata"]["uid"] = uid
    agent.write(name, document)


def messages(agent: Agent, name: str) -> list[str]:
    """Messages of the pod's events FailedPrepareDynamicResources."""
    with Client(agent.run_dir) as client:
        found = [to_dict(one) for one in client.ask("events", ListEvents(), 5.0).events]
    ours = (one for one in found if one["involvedObject"]["name"] == f"{name}-{agent.node}")
    return [one["message"] for one in ours if one["reason"] == "FailedPrepareDynamicResources"]


def inside(agent: Agent, name: str, script: str) -> str:
    """Output of a shell script in the pod's container."""
    id_ = agent.pod(name)["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    output: bytes = agent.containerd.cri.exec_sync(id_, ["sh", "-c", script], 20).result().stdout
    return output.decode()


def waiting(agent: Agent, name: str) -> dict[str, str]:
    """Reason and message of the waiting container."""
    statuses = agent.pod(name).get("status", {}).get("containerStatuses", [])
    found: dict[str, str] = statuses[0]["state"].get("waiting", {}) if statuses else {}
    return found


def test_a_pod_waits_for_its_claim_and_its_driver(agent: Agent) -> None:
    add_pod(agent, "waits", "uid-waits")
    wait_for(
        lambda: any("not found" in one for one in messages(agent, "waits")), 60, "it is told that no claim is there"
    )
    add_claim(agent, "waits", "uid-waits")
    missing = f"{WAITS}DRA driver {NAME} is not registered"
    wait_for(lambda: missing in messages(agent, "waits"), 60, "it is told that no driver is there")
    assert agent.pod("waits")["status"]["phase"] == "Pending"
    driver = Driver(agent.root_dir).start()
    try:
        wait_for(lambda: is_ready(agent.pod("waits")), 60, f"it runs; log: {agent.log}")
        assert driver.prepared == {"uid-waits"}
        assert inside(agent, "waits", 'test -c /dev/claimed && echo "$CLAIM"') == "waits\n"
        (agent.manifests / "waits.yaml").unlink()
        wait_for(lambda: driver.prepared == set() and not agent.pod("waits"), 60, "it has ended")
    finally:
        driver.close()


@pytest.mark.parametrize("killed", [("resources",), ("pod_workers",), ("resources", "pod_workers", "objects")])
def test_a_pod_with_a_claim_survives_kills(agent: Agent, driver: Driver, killed: tuple[str, ...]) -> None:
    name = f"kept-{len(killed)}-{killed[0].replace('_', '-')}"
    add_claim(agent, name, f"uid-{name}")
    add_pod(agent, name, f"uid-{name}")
    wait_for(lambda: is_ready(agent.pod(name)), 60, f"it runs; log: {agent.log}")
    before = agent.pod(name)["status"]["containerStatuses"]
    agent.kill_actors(*killed)
    wait_for(lambda: is_ready(agent.pod(name)), 60, f"it runs; log: {agent.log}")
    assert agent.pod(name)["status"]["containerStatuses"] == before
    assert f"uid-{name}" in driver.prepared
    (agent.manifests / f"{name}.yaml").unlink()
    wait_for(lambda: driver.prepared == set() and not agent.pod(name), 60, "it has ended")


def test_a_pod_ends_once_its_driver_has_unprepared(agent: Agent, driver: Driver) -> None:
    add_claim(agent, "late", "uid-late")
    add_pod(agent, "late", "uid-late")
    wait_for(lambda: is_ready(agent.pod("late")), 60, f"it runs; log: {agent.log}")
    driver.faults["NodeUnprepareResources"] = Fault(code="INTERNAL")
    (agent.manifests / "late.yaml").unlink()
    wait_for(lambda: len(driver.of("NodeUnprepareResources")) > 1, 60, "it is tried again")
    assert agent.pod("late")
    driver.faults.clear()
    wait_for(lambda: driver.prepared == set() and not agent.pod("late"), 60, "it has ended")


def test_a_device_without_a_cdi_specification_is_refused(agent: Agent, driver: Driver) -> None:
    driver.describes = False
    add_claim(agent, "bare", "uid-bare")
    add_pod(agent, "bare", "uid-bare")
    refusal = "cannot give the container its CDI devices: unresolvable CDI devices test/dra=dev-bare"
    wait_for(
        lambda: (one := waiting(agent, "bare")).get("reason") == "CreateContainerError" and refusal in one["message"],
        60,
        f"it is refused; log: {agent.log}",
    )
    (agent.manifests / "bare.yaml").unlink()
    wait_for(lambda: driver.prepared == set() and not agent.pod("bare"), 60, "it has ended")

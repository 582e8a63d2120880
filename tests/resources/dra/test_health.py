"""The health of devices, from device plugins and DRA drivers to pod_workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proto.agent.actor import Ping
from proto.node.node import SetDevices
from proto.plugins import drahealth_pb2 as pb
from proto.pods.objects import GetObjects
from proto.pods.pod_workers import SetResourceHealth
from proto.resources.resources import AdmitPod, GetGrant, PrepareClaims, ReleasePod, SetPods
from tests.harness import ActorProcess, wait_for
from tests.resources.devices.device_plugin import Plugin
from tests.resources.devices.pods import GPU, container
from tests.resources.devices.pods import pod as device_pod
from tests.resources.dra.driver import Driver
from tests.resources.dra.pods import Server, claim, pod

HEALTHY, UNHEALTHY = 1, 2
QUICK = (
    "from actors.resources import resource_health; from actors.resources.dra import health, health_stream; "
    "health.TIMEOUT_S = 60.0; resource_health.LOOK_S = 0.2; health_stream.RETRY_S = 0.2\n"
)
"""A report outlasts the test, unless it says otherwise: a state that ends soon may end before it is seen."""
CLAIM = "claim:gpu"


def started(prelude: str = QUICK, **settings: Any) -> ActorProcess:
    peers = ("pod_workers", "node", "objects")
    actor = ActorProcess("resources", None, peers, prelude=prelude, objects_dir="/objects", **settings)
    server = Server(claim("gpu", "u"))
    actor.peers["objects"].answers[GetObjects] = server.answer
    return actor


@pytest.fixture
def actor() -> Iterator[ActorProcess]:
    with started() as process:
        process.tell(SetPods(pods=(), full=True))
        yield process


def health(actor: ActorProcess, name: str) -> list[tuple[str, str | None, str | None]]:
    """The health that pod_workers was sent for a resource of the container `c` of pod `u`."""
    known: dict[str, Any] = {}
    for message in actor.peers["pod_workers"].of(SetResourceHealth):
        known = {} if message.full else known
        known.update((one.pod_uid, one.containers) for one in message.pods)
    statuses = known.get("u", {}).get("c", ())
    return [
        (one.resource_id, one.health, one.message)
        for found in statuses
        if found.name == name
        for one in found.resources
    ]


def prepared(actor: ActorProcess, **fields: Any) -> Driver:
    driver = Driver(Path(actor.settings.root_dir), **fields).start()
    wait_for(lambda: driver.watchers() == 1, 20, "its health is watched")
    actor.tell(SetPods(pods=(pod("u", "gpu"),)))
    actor.ask(PrepareClaims(pod=pod("u", "gpu")), 20)
    return driver


def test_health_of_a_claims_devices(actor: ActorProcess) -> None:
    driver = prepared(actor)
    try:
        wait_for(lambda: health(actor, CLAIM) == [("test/dra=dev-gpu", "Unknown", None)], 20)
        driver.report(dev_gpu=HEALTHY)
        wait_for(lambda: health(actor, CLAIM) == [("test/dra=dev-gpu", "Healthy", None)], 20)
        driver.report(dev_gpu=(UNHEALTHY, "too hot"))
        wait_for(lambda: health(actor, CLAIM) == [("test/dra=dev-gpu", "Unhealthy", "too hot")], 20)
        driver.report(within_s=1, dev_gpu=(UNHEALTHY, "too hot"))
        wait_for(lambda: health(actor, CLAIM) == [("test/dra=dev-gpu", "Unknown", None)], 20, "the report is too old")
    finally:
        driver.close()


def test_claim_that_is_prepared_again_after_the_state_was_lost_has_a_health(actor: ActorProcess) -> None:
    driver = prepared(actor)
    try:
        actor.kill()
        state = Path(actor.settings.root_dir) / "dra_manager_state"
        state.unlink()
        actor.start()
        wait_for(lambda: driver.watchers() == 2, 20)
        actor.peers["pod_workers"].received.clear()
        actor.tell(SetPods(pods=(pod("u", "gpu"),), full=True))
        actor.ask(GetGrant(pod=pod("u", "gpu"), container="c"), 20)
        wait_for(lambda: health(actor, CLAIM) == [("test/dra=dev-gpu", "Unknown", None)], 10, "no report causes it")
    finally:
        driver.close()


def test_health_outlives_a_kill_until_the_driver_reports_again() -> None:
    with started() as actor:
        actor.tell(SetPods(pods=(), full=True))
        driver = prepared(actor)
        driver.report(dev_gpu=(UNHEALTHY, "too hot"))
        path = Path(actor.settings.root_dir) / "dra_health_state"
        wait_for(lambda: path.exists() and b"too hot" in path.read_bytes(), 20)
        actor.restart()
        actor.tell(SetPods(pods=(pod("u", "gpu"),), full=True))
        wait_for(lambda: health(actor, CLAIM) == [("test/dra=dev-gpu", "Unhealthy", "too hot")], 20)
        wait_for(lambda: driver.watchers() == 2, 20)
        driver.report(dev_gpu=HEALTHY)
        wait_for(lambda: health(actor, CLAIM) == [("test/dra=dev-gpu", "Healthy", None)], 20)
        driver.close()
        wait_for(lambda: path.read_bytes() == b"{}", 20, "the end of its driver is noted")


def test_health_is_unknown_without_its_driver(actor: ActorProcess) -> None:
    driver = prepared(actor)
    driver.report(dev_gpu=HEALTHY)
    wait_for(lambda: health(actor, CLAIM) == [("test/dra=dev-gpu", "Healthy", None)], 20)
    driver.close()
    wait_for(lambda: health(actor, CLAIM) == [("test/dra=dev-gpu", "Unknown", None)], 20)


def test_a_pod_that_is_gone_has_no_health(actor: ActorProcess) -> None:
    driver = prepared(actor)
    try:
        wait_for(lambda: health(actor, CLAIM), 20)
        actor.tell(ReleasePod(pod_uid="u"))
        wait_for(lambda: health(actor, CLAIM) == [], 20)
    finally:
        driver.close()


def test_messages_have_a_gate_of_their_own() -> None:
    with started(resource_health_messages=False) as actor:
        driver = prepared(actor)
        driver.report(dev_gpu=(UNHEALTHY, "too hot"))
        wait_for(lambda: health(actor, CLAIM) == [("test/dra=dev-gpu", "Unhealthy", None)], 20)
        driver.close()


def test_nothing_is_watched_or_told_without_the_gate() -> None:
    with started(resource_health_status=False) as actor:
        driver = Driver(Path(actor.settings.root_dir)).start()
        wait_for(lambda: driver.of("NotifyRegistrationStatus"), 20)
        actor.tell(SetPods(pods=(pod("u", "gpu"),)))
        actor.ask(PrepareClaims(pod=pod("u", "gpu")), 20)
        assert driver.watchers() == 0
        assert actor.peers["pod_workers"].of(SetResourceHealth) == []
        driver.close()


def test_a_flood_of_reports_is_read_slowly(actor: ActorProcess) -> None:
    driver = prepared(actor)
    try:
        for number in range(2000):
            driver.report(dev_gpu=HEALTHY if number % 2 else UNHEALTHY)
        actor.ask(PrepareClaims(pod=pod("u", "gpu")), 5)
        assert len(actor.peers["pod_workers"].of(SetResourceHealth)) < 100
    finally:
        driver.close()


class Flooder(Driver):
    """Reports the health of many devices without end."""

    reports = 0

    def _NodeWatchResources(self, _: Any) -> Iterator[Any]:  # noqa: N802  (named after its rpc)
        names = [pb.DeviceIdentifier(pool_name="pool", device_name=f"dev-{number}") for number in range(1000)]
        devices = [pb.DeviceHealth(device=one, health=pb.HEALTHY, message=200 * "x") for one in names]
        while not self.release.is_set():
            self.reports += 1
            yield pb.NodeWatchResourcesResponse(devices=devices)


SLOW = (
    "import time; from actors.resources.dra import health; update = health.Health.update\n"
    "def slow(*arguments):\n"
    "    time.sleep(0.3)\n"
    "    return update(*arguments)\n"
    "health.Health.update = slow\n"
)
"""A report takes three times as long as the pause between two of them."""


def test_reports_without_end_fill_no_mailbox() -> None:
    with started(prelude=QUICK + SLOW) as actor:
        actor.tell(SetPods(pods=(), full=True))
        driver = Flooder(Path(actor.settings.root_dir))
        driver.start()
        try:
            wait_for(lambda: driver.reports >= 20, 120, "reports are read")
            assert actor.ask(Ping(), 60).mailbox < 6
        finally:
            driver.close()


def test_devices_are_as_healthy_as_last_told_without_their_plugin(actor: ActorProcess) -> None:
    directory = Path(actor.settings.root_dir) / "device-plugins"
    wait_for((directory / "kubelet.sock").exists, 20)
    plugin = Plugin(directory, GPU, {"d0": "Healthy", "d1": "Unhealthy"}).start()
    try:
        wait_for(lambda: told(actor) == (2, 1), 20, "they are known")
        actor.ask(AdmitPod(pod=device_pod("u", container("c"))), 20)
        wait_for(lambda: health(actor, GPU) == [("d0", "Healthy", None)], 20)
        before = len(actor.peers["pod_workers"].of(SetResourceHealth))
        plugin.close()
        wait_for(lambda: told(actor) == (2, 0), 20, "it is away")
        plugin.start()
        wait_for(lambda: told(actor) == (2, 1), 20, "it is back")
        assert actor.peers["pod_workers"].of(SetResourceHealth)[before:] == []
        plugin.relist(d0="Unhealthy", d1="Unhealthy")
        wait_for(lambda: health(actor, GPU) == [("d0", "Unhealthy", None)], 20)
    finally:
        plugin.close()


def told(actor: ActorProcess) -> tuple[int, int] | None:
    """(capacity, allocatable) as node was told last."""
    messages = [one for one in actor.peers["node"].of(SetDevices) if GPU in one.capacity]
    return (messages[-1].capacity[GPU], messages[-1].allocatable[GPU]) if messages else None


def test_health_of_a_device_plugins_devices(actor: ActorProcess) -> None:
    directory = Path(actor.settings.root_dir) / "device-plugins"
    wait_for((directory / "kubelet.sock").exists, 20)
    plugin = Plugin(directory, GPU).start()
    wait_for(lambda: any(one.capacity.get(GPU) for one in actor.peers["node"].of(SetDevices)), 20, "it is known")
    actor.ask(AdmitPod(pod=device_pod("u", container("c"))), 20)
    wait_for(lambda: health(actor, GPU) == [("d0", "Healthy", None)], 20)
    plugin.relist(d0="Unhealthy", d1="Healthy")
    wait_for(lambda: health(actor, GPU) == [("d0", "Unhealthy", None)], 20)
    plugin.relist(d1="Healthy")
    wait_for(lambda: health(actor, GPU) == [("d0", "Unknown", None)], 20)
    plugin.close()

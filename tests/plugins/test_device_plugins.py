"""Device plugins that register in plugins_registry, at the resources process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proto.agent.actor import Describe
from proto.node.node import SetDevices
from proto.resources.resources import AdmitPod, GetGrant, SetPods
from tests.harness import ActorProcess, wait_for
from tests.resources.devices.device_plugin import Plugin
from tests.resources.devices.pods import GPU, container, pod
from tests.resources.plugin_server import Fault

QUICK = (
    "from actors.resources import registration; from actors.resources.devices import manager, plugin; "
    "registration.CALL_S = manager.MEET_S = plugin.MEET_S = 1.0\n"
)
SUBJECT = pod("u", container("c"))


@pytest.fixture
def actor() -> Iterator[ActorProcess]:
    with ActorProcess("resources", None, ("pod_workers", "node"), prelude=QUICK) as process:
        process.tell(SetPods(pods=(), full=True))
        yield process


def new_plugin(actor: ActorProcess, **fields: Any) -> Plugin:
    directory = Path(actor.settings.root_dir) / "plugins_registry"
    directory.mkdir(parents=True, exist_ok=True)
    return Plugin(directory, GPU, **fields).serve()


def told(actor: ActorProcess) -> tuple[int, int] | None:
    """(capacity, allocatable) as node was told last."""
    messages = actor.peers["node"].of(SetDevices)
    if not messages or GPU not in messages[-1].capacity:
        return None
    return messages[-1].capacity[GPU], messages[-1].allocatable[GPU]


def known(actor: ActorProcess) -> dict[str, Any]:
    plugins: dict[str, Any] = actor.ask(Describe()).state["plugins"]
    return plugins


def test_its_devices_are_given_until_its_socket_goes(actor: ActorProcess) -> None:
    plugin = new_plugin(actor)
    wait_for(lambda: told(actor) == (2, 2), 20)
    wait_for(lambda: plugin.of("NotifyRegistrationStatus"), 20, "it is notified")
    assert plugin.of("NotifyRegistrationStatus")[-1].plugin_registered
    actor.ask(AdmitPod(pod=SUBJECT))
    grant = actor.ask(GetGrant(pod=SUBJECT, container="c")).grant
    assert grant.environment == {"DEVICES": "d0"}
    plugin.socket.unlink()  # and it goes on serving
    wait_for(lambda: told(actor) == (2, 0), 20)
    plugin.close()
    plugin.serve()
    wait_for(lambda: told(actor) == (2, 2), 20)
    plugin.close()


def test_a_new_incarnation_registers_present_plugins(actor: ActorProcess) -> None:
    plugin = new_plugin(actor)
    wait_for(lambda: told(actor) == (2, 2), 20)
    wait_for(lambda: plugin.of("NotifyRegistrationStatus"), 20, "it is notified")
    actor.restart()
    wait_for(lambda: len(plugin.of("NotifyRegistrationStatus")) == 2, 20)
    wait_for(lambda: told(actor) == (2, 2), 20)
    plugin.close()


@pytest.mark.parametrize(
    ("info", "problem"),
    [
        ({"supported_versions": ["v1"]}, "manager version, v1beta1, is not among plugin supported versions [v1]"),
        ({"name": "gpu"}, 'the ResourceName "gpu" is invalid'),
        ({"name": ""}, "the plugin name '' is invalid"),
        ({"endpoint": "a.sock"}, "the endpoint 'a.sock' is not the absolute path of a socket"),
        ({"endpoint": "/nowhere/a.sock"}, "plugin registration failed with err: /nowhere/a.sock is not a socket"),
        ({"supported_versions": ["v1beta1"] * 65}, "it has 65 versions, more than 64"),
    ],
)
def test_a_refused_plugin_is_told_the_reason(actor: ActorProcess, info: dict[str, Any], problem: str) -> None:
    plugin = new_plugin(actor, info=info)
    try:
        wait_for(lambda: plugin.of("NotifyRegistrationStatus"), 20)
        status = plugin.of("NotifyRegistrationStatus")[0]
        assert not status.plugin_registered
        assert problem in status.error
        wait_for(lambda: problem in known(actor)["refused"].get(str(plugin.socket), ""), 20)
    finally:
        plugin.close()


@pytest.mark.parametrize("rpc", ["GetInfo", "GetDevicePluginOptions", "NotifyRegistrationStatus"])
@pytest.mark.parametrize("fault", [Fault(code="INTERNAL"), Fault(hang=True)])
def test_a_plugin_that_fails_is_tried_again(actor: ActorProcess, rpc: str, fault: Fault) -> None:
    plugin = new_plugin(actor, faults={rpc: fault})
    try:
        wait_for(lambda: known(actor)["refused"], 20)
        plugin.faults.clear()
        plugin.release.set()
        wait_for(lambda: told(actor) == (2, 2) and str(plugin.socket) in known(actor)["registered"], 30)
    finally:
        plugin.close()


def test_a_csi_driver_is_left_to_the_volume_actor(actor: ActorProcess) -> None:
    plugin = new_plugin(actor, info={"type": "CSIPlugin"})
    try:
        wait_for(lambda: plugin.of("GetInfo"), 20)
        other = new_plugin(actor, endpoint="other.sock")
        wait_for(lambda: told(actor) == (2, 2), 20)
        wait_for(lambda: str(other.socket) in known(actor)["registered"], 20, "the other one has taken the notice")
        other.close()
        assert plugin.of("NotifyRegistrationStatus") == []
        assert len(plugin.of("GetInfo")) == 1
        assert known(actor)["refused"] == {}
    finally:
        plugin.close()

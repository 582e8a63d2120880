"""Registrations of device plugins: late listeners, repeats, failures, invalid requests and their bounds."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from proto.agent.actor import Describe
from proto.plugins import deviceplugin_pb2 as pb
from tests.harness import ActorProcess, wait_for
from tests.resources.devices.device_plugin import Plugin
from tests.resources.devices.pods import GPU
from tests.resources.devices.test_device_manager import QUICK, actor, closing, new_plugin, plugin, told
from tests.resources.plugin_server import Fault

__all__ = ["actor", "plugin"]  # fixtures


@pytest.mark.parametrize(
    ("fault", "code"), [(Fault(code="INTERNAL"), "Internal"), (Fault(hang=True), "DeadlineExceeded")]
)
def test_a_plugin_is_told_that_it_was_not_connected(actor: ActorProcess, fault: Fault, code: str) -> None:
    plugin = new_plugin(actor, faults={"GetDevicePluginOptions": fault})
    with closing(plugin):
        with pytest.raises(grpc.RpcError, match=f"failed to get device plugin options: rpc error: code = {code}"):
            plugin.start()
        assert told(actor) is None
        plugin.release.set()
        plugin.faults.clear()
        plugin.register()
        assert devices_known(actor, GPU), "it is connected once its registration was answered"


def devices_known(actor: ActorProcess, resource: str) -> bool:
    known: dict[str, Any] = actor.ask(Describe()).state["devices"]
    return resource in known and bool(known[resource]["connected"])


def awaited(actor: ActorProcess) -> dict[str, str]:
    """The problems of plugins that have registered, by resource."""
    found: dict[str, str] = actor.ask(Describe()).state["device_plugins_awaited"]
    return found


def test_a_plugin_may_listen_long_after_it_has_registered(actor: ActorProcess) -> None:
    plugin = new_plugin(actor)
    with closing(plugin):
        plugin.register()
        wait_for(lambda: awaited(actor).get(GPU, "").endswith("test.sock is not a socket"), 20, "a try has failed")
        plugin.serve()
        wait_for(lambda: told(actor) == (2, 2), 20)
        assert awaited(actor) == {}


def test_the_last_registration_of_a_resource_counts(actor: ActorProcess) -> None:
    never, plugin = new_plugin(actor), new_plugin(actor, endpoint="other.sock", devices={"e0": "Healthy"})
    with closing(never, plugin):
        never.register()
        wait_for(lambda: awaited(actor).get(GPU), 20, "a try has failed")
        plugin.start()
        assert awaited(actor) == {}
        never.serve()
        wait_for(lambda: told(actor) == (1, 1), 20)
        assert never.of("GetDevicePluginOptions") == []


def test_plugins_that_never_listen_are_bounded() -> None:
    prelude = f"{QUICK}manager.MOST_RESOURCES = 2\n"
    with ActorProcess("resources", None, ("pod_workers", "node"), prelude=prelude) as actor:
        plugin = new_plugin(actor)
        for number in (1, 2, 2):
            plugin.resource = f"vendor.test/r{number}"
            plugin.register()
        plugin.resource = GPU
        with pytest.raises(grpc.RpcError, match="there are 2 resources of device plugins already"):
            plugin.register()


def test_plugins_that_hang_hold_no_registration_up() -> None:
    prelude = (
        "from actors.resources import device_registration; from actors.resources.devices import plugin; "
        "device_registration.ANSWER_S = plugin.MEET_S = 60.0\n"
    )
    with ActorProcess("resources", None, ("pod_workers", "node"), prelude=prelude) as actor:
        hung = new_plugin(actor, faults={"GetDevicePluginOptions": Fault(hang=True)}).serve()
        plugin = new_plugin(actor, endpoint="other.sock")

        def register(number: int) -> None:
            one = new_plugin(actor)
            one.resource = f"vendor.test/r{number}"
            one.register(timeout_s=60)

        with closing(hung, plugin), ThreadPoolExecutor(8) as pool:
            calls = [pool.submit(register, number) for number in range(8)]
            wait_for(lambda: len(hung.of("GetDevicePluginOptions")) == 8, 20)
            plugin.start()
            assert devices_known(actor, GPU)
            assert not any(call.done() for call in calls)
            hung.release.set()
            for call in calls:
                call.result(20)


@pytest.mark.parametrize(
    ("rpc", "fault"),
    [
        ("ListAndWatch", Fault(code="INTERNAL")),
        ("ListAndWatch", Fault(hang=True)),
        ("ListAndWatch", Fault(answer=pb.ListAndWatchResponse(devices=[pb.Device(ID="\x1b[2J")]))),
        ("ListAndWatch", Fault(answer=pb.ListAndWatchResponse(devices=[pb.Device(ID="x" * 200)] * 30_000))),
    ],
)
def test_a_plugin_that_fails_at_registration_may_try_again(actor: ActorProcess, rpc: str, fault: Fault) -> None:
    plugin = new_plugin(actor, faults={rpc: fault}).start()
    try:
        wait_for(lambda: plugin.of(rpc), 20)
        assert told(actor) in (None, (0, 0))
        plugin.release.set()
        plugin.faults.clear()
        plugin.register()
        wait_for(lambda: told(actor) == (2, 2), 20)
    finally:
        plugin.close()


@pytest.mark.parametrize(
    ("fields", "registers", "problem"),
    [
        ({}, {"version": "v1"}, "requested API version"),
        ({}, {"endpoint": "../../etc/x.sock"}, "is not the name of a socket"),
        ({"resource": "kubernetes.io/gpu"}, {}, "is invalid"),
        ({"resource": "gpu"}, {}, "is invalid"),
    ],
)
def test_a_registration_is_refused_with_the_reason(
    actor: ActorProcess, fields: dict[str, Any], registers: dict[str, Any], problem: str
) -> None:
    plugin = new_plugin(actor)
    plugin.resource = fields.get("resource", GPU)
    with pytest.raises(grpc.RpcError, match=problem):
        plugin.register(**registers)


def test_a_link_is_no_plugins_socket(actor: ActorProcess, plugin: Plugin) -> None:
    other = new_plugin(actor, endpoint="link.sock")
    other.resource = "vendor.test/other"
    os.symlink(plugin.socket, other.socket)
    other.register()
    other.resource = "vendor.test/last"
    other.endpoint = "last.sock"
    other.start()
    try:
        wait_for(lambda: told(actor, "vendor.test/last") == (2, 2), 20)
        assert told(actor, "vendor.test/other") is None
    finally:
        other.close()

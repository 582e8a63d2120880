"""CSI drivers at the volume process: they register, leave and displace each other; bad sockets hold up no other."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from actors._plugins.watcher import AT_ONCE
from actors.volume.drivers.registry import ABANDONED
from proto.agent.actor import Describe
from proto.pods.pod_workers import VolumesMounted
from proto.pods.volume import MountPod, UnmountPod
from tests.harness import ActorProcess, wait_for
from tests.volume.csi.csi_driver import Driver, Mute
from tests.volume.csi.test_csi_actor import (
    actor,
    claim,
    described,
    driver,
    in_default,
    new_driver,
    refused,
    registered,
    retry_forbidden,
)
from tests.volume.test_actor import UID
from tests.volume.test_kills import helpers

__all__ = ["actor", "driver"]  # fixtures


@pytest.mark.needs("mounts")
def test_drivers_come_and_go(actor: ActorProcess, driver: Driver) -> None:
    spec = in_default(claim())
    driver.stop()
    wait_for(lambda: not described(actor)["drivers"], what="it is no longer registered")
    assert "driver name csi.test not found in the list of registered CSI drivers" in refused(actor, MountPod(pod=spec))
    driver.start()
    told = actor.peers["pod_workers"]
    wait_for(lambda: told.of(VolumesMounted), 20, "what waits for it goes on at once")
    driver.stop()
    wait_for(lambda: not described(actor)["drivers"], what="it is no longer registered")
    assert "not found in the list of registered CSI drivers" in refused(actor, UnmountPod(pod_uid=UID))
    driver.start()
    retry_forbidden(actor, UnmountPod(pod_uid=UID))


def endpoint(actor: ActorProcess, driver: Driver) -> str:
    """The socket at which the driver is called."""
    return str(described(actor)["drivers"].get(driver.name, {}).get("endpoint", ""))


def test_first_socket_of_a_driver_wins_until_a_higher_version_comes(actor: ActorProcess, driver: Driver) -> None:
    """As in the kubelet. A registrar that is refused ends and tries again, so a rolling update goes on."""
    second = Driver(driver.registry / "second", driver.data).start()
    newer = Driver(driver.registry / "newer", driver.data, versions=("1.1.0",))
    try:
        refusals = wait_for(lambda: second.of("NotifyRegistrationStatus"), 20, "the second one is told")
        assert "already registered with a higher supported version" in refusals[0].error
        assert endpoint(actor, driver) == driver.socket
        newer.start()
        wait_for(lambda: endpoint(actor, driver) == newer.socket, 20, "the higher version displaces the first one")
        newer.stop()
        wait_for(lambda: endpoint(actor, driver) == driver.socket, 20, "the first one is still there")
        driver.stop()
        wait_for(lambda: endpoint(actor, driver) == second.socket, 20, "the second one is tried again")
    finally:
        second.close()
        newer.close()


def test_driver_that_was_kept_out_is_used_at_once_when_the_other_socket_goes(
    actor: ActorProcess, driver: Driver
) -> None:
    """A rolling update: the new pod has a socket of its own beside the old one's, with the same version.

    Its registrar does not end when it is refused, so the pauses between tries grow.
    """
    update = Driver(driver.registry / "update", driver.data).start()
    try:
        wait_for(lambda: len(update.of("NotifyRegistrationStatus")) == 6, 60, "the next pause is one of 16 s")
        driver.stop()
        wait_for(lambda: endpoint(actor, driver) == update.socket, 10, "long before the end of the pause")
        tries = len(update.of("NotifyRegistrationStatus"))
        assert not update.of("NotifyRegistrationStatus")[-1].error
        driver.start()
        wait_for(lambda: driver.of("NotifyRegistrationStatus")[-1].error, 20, "the old one is the refused one now")
        assert endpoint(actor, driver) == update.socket
        assert len(update.of("NotifyRegistrationStatus")) == tries, "the timer of the pause tries no more"
    finally:
        update.close()


@pytest.mark.needs("mounts")
def test_other_plugins_and_silent_sockets_are_refused(actor: ActorProcess, driver: Driver) -> None:
    mute = Mute(driver.registry / "mute.sock")
    strange = new_driver(actor, "strange", kind="StrangePlugin").start()
    device = new_driver(actor, "device", kind="DevicePlugin").start()
    try:
        wait_for(lambda: len(described(actor)["refused"]) == 2, 20, "both are refused")
        problems = described(actor)["refused"]
        assert "no handler registered for plugin type: StrangePlugin" in problems[strange.socket]
        assert not strange.of("NotifyRegistrationStatus")[-1].plugin_registered
        wait_for(lambda: device.of("GetInfo"), 20, "it is asked what it is")
        assert device.of("NotifyRegistrationStatus") == []  # the resources actor answers it
        assert retry_forbidden(actor, MountPod(pod=in_default(claim()))).host_paths.keys() == {"v"}
        retry_forbidden(actor, UnmountPod(pod_uid=UID))
    finally:
        mute.close()
        strange.close()
        device.close()


def test_sockets_of_killed_plugins_cost_no_helper(actor: ActorProcess) -> None:
    registry = Path(actor.settings.root_dir) / "plugins_registry"
    registry.mkdir(parents=True)
    for number in range(50):
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(f"{registry}/{number}.sock")
    refused = wait_for(lambda: len(found := described(actor)["refused"]) == 50 and found, 60, "all are refused")
    assert set(refused.values()) == {ABANDONED}
    assert actor.ask(Describe()).state["helpers"]["forked"] == 0
    driver = new_driver(actor).start()
    try:
        registered(actor, driver)
    finally:
        driver.close()


def test_socket_whose_name_is_not_utf8_stops_no_driver(actor: ActorProcess) -> None:
    registry = Path(actor.settings.root_dir) / "plugins_registry"
    registry.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as strange:
        strange.bind(os.fsencode(registry) + b"/\xff.sock")
        strange.listen()
        driver = new_driver(actor).start()
        try:
            registered(actor, driver)
        finally:
            driver.close()
    assert described(actor)["refused"] == {}


def test_silent_sockets_take_few_helpers_and_keep_out_no_driver(actor: ActorProcess) -> None:
    registry = Path(actor.settings.root_dir) / "plugins_registry"
    silent = [Mute(registry / f"{number}.sock") for number in range(5 * AT_ONCE)]
    driver, seen = new_driver(actor), [0]

    def are_refused() -> bool:
        seen.append(len(helpers(actor)))
        return len(described(actor)["refused"]) == len(silent)

    try:
        wait_for(are_refused, 120, "each was tried once")
        assert 1 < max(seen) <= 2 * AT_ONCE, "each may have a predecessor that ends"
        driver.start()
        registered(actor, driver)
    finally:
        driver.close()
        for one in silent:
            one.close()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "Bad_Name"}, "is not one of a driver"),
        ({"versions": (f"v1.{'9' * 5000}.0",)}, "could not find a highest supported version"),
        ({"node_id": "n" * (15 << 20)}, "it may have 256 bytes"),
        ({"topology": {"zone": "z" * (1 << 20)}}, "topology is longer than"),
        ({"kind": "K" * (1 << 20)}, "no handler registered for plugin type: KKK"),
    ],
    ids=("name", "version", "node ID", "topology", "type"),
)
def test_driver_beyond_the_bounds_is_told_and_blocks_no_other(
    actor: ActorProcess, driver: Driver, fields: dict[str, Any], said: str
) -> None:
    bad = new_driver(actor, **({"name": "csi.bad"} | fields)).start()
    try:
        told = wait_for(lambda: bad.of("NotifyRegistrationStatus"), 20, "it is told")[-1]
        assert not told.plugin_registered
        assert said in told.error
        assert len(told.error) < 1000
        wait_for(lambda: described(actor)["refused"].get(bad.socket) == told.error, 20, "it is refused")
        assert list(described(actor)["drivers"]) == [driver.name]
    finally:
        bad.close()

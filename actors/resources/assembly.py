"""Builds the managers of the node's resources from the settings."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from actors._base import Actor
from actors._host import system
from actors.resources.devices.directory import Directory
from actors.resources.devices.manager import DeviceManager
from actors.resources.machine.sysfs import TopologyError, read_topology
from actors.resources.model.provider import Provider
from proto.agent.settings import Settings

log = logging.getLogger(__name__)

DEVICE_PLUGINS = "device-plugins"
"""The directory of device plugins and their registration socket below --root-dir."""


@dataclass(frozen=True)
class Managers:
    """The managers that the settings ask for."""

    providers: tuple[Provider, ...] = ()
    """In the kubelet's order: CPUs, memory. The device manager comes before them."""
    device_resources: tuple[str, ...] = ()
    """Extended resources beside those of device plugins."""
    shared_cpus: str = ""
    """CPUs of containers without exclusive ones. Empty: any."""


def make_managers(settings: Settings) -> Managers:  # noqa: ARG001 - no manager exists yet
    """Read the machine and the state files. Blocks on the disk."""
    return Managers()


def make_device_manager(actor: Actor, changed: Callable[[], None]) -> DeviceManager:
    """Read the machine's NUMA nodes and the checkpoint of devices. Blocks on the disk. `changed`: as DeviceManager."""
    try:
        numa_nodes = read_topology().nodes
    except TopologyError as error:
        log.warning("%s; devices get no topology hints", error)
        numa_nodes = ()
    directory = Directory(f"{actor.settings.root_dir}/{DEVICE_PLUGINS}", system.boot_id())
    manager = DeviceManager(actor, directory, numa_nodes, changed)
    try:
        manager.load()
    except OSError as error:
        log.error("cannot read the checkpoint of devices: %s; devices of running pods may be given to others", error)
    return manager

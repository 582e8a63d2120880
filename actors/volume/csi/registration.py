"""Registers plugins: asks for their identity, checks it, and tells the result. Blocks: runs in a helper process.

Source: pkg/kubelet/pluginmanager of Kubernetes 1.36, pluginregistration v1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from actors._plugins import kinds
from actors.volume.csi import policy
from actors.volume.csi.driver import IDENTITY, MEET_S, REGISTRATION, CallFailed, Plugin, connected
from actors.volume.steps.csi import DriverInfo, Register
from actors.volume.steps.errors import VolumeError
from proto.common.safe_text import clipped
from proto.plugins import csi_pb2, registration_pb2

log = logging.getLogger(__name__)


def register(step: Register, mark: Callable[[], None]) -> DriverInfo:
    """Register the plugin. Raises VolumeError with the reason when it is refused or does not answer."""
    with connected(step.socket, mark) as plugin:
        info = plugin.call(REGISTRATION, "GetInfo", registration_pb2.InfoRequest(), MEET_S)
        if info.type in kinds.KNOWN - {kinds.CSI}:
            raise VolumeError(f"{kinds.OTHER_OWNER} {info.type}")
        problem = policy.registration_problem(info.type, info.name, info.supported_versions, step.socket, step.highest)
        driver = None
        if not problem:
            endpoint = info.endpoint or step.socket
            try:
                with connected(endpoint, mark) as service:
                    driver = _describe(service, info, endpoint)
            except VolumeError as error:
                problem = kinds.failed(error)
        _notify(plugin, step.socket, problem)
    if driver is None:
        raise VolumeError(problem)
    return driver


def _describe(service: Plugin, info: registration_pb2.PluginInfo, endpoint: str) -> DriverInfo:
    probe = service.call(IDENTITY, "Probe", csi_pb2.ProbeRequest(), MEET_S)
    if probe.HasField("ready") and not probe.ready.value:
        raise VolumeError(f"CSI driver {info.name} is not ready")
    name = service.call(IDENTITY, "GetPluginInfo", csi_pb2.GetPluginInfoRequest(), MEET_S).name
    if name != info.name:
        raise VolumeError(f"CSI driver registers as {info.name} and calls itself {clipped(name)}")
    version, _ = policy.chosen_version(info.supported_versions, info.name)
    return _with_node_info(service, DriverInfo(info.name, endpoint, version, ""))


def describe(driver: DriverInfo, mark: Callable[[], None]) -> DriverInfo:
    """Ask a registered driver again about this node. Raises VolumeError."""
    with connected(driver.endpoint, mark) as service:
        return _with_node_info(service, driver)


def _with_node_info(service: Plugin, driver: DriverInfo) -> DriverInfo:
    node = service.node("NodeGetInfo", csi_pb2.NodeGetInfoRequest(), MEET_S)
    topology = dict(node.accessible_topology.segments)
    if problem := policy.node_problem(node.node_id, topology):
        raise VolumeError(problem)
    return msgspec.structs.replace(
        driver, node_id=node.node_id, max_volumes=node.max_volumes_per_node, topology=topology
    )


def _notify(plugin: Plugin, socket: str, problem: str) -> None:
    """Tell the plugin the result. As in the kubelet, a driver that does not take it stays registered."""
    status = registration_pb2.RegistrationStatus(plugin_registered=not problem, error=problem)
    try:
        plugin.call(REGISTRATION, "NotifyRegistrationStatus", status, MEET_S)
    except CallFailed as error:
        if problem:
            raise VolumeError(f"RegisterPlugin error -- failed to tell the plugin ({problem}): {error}") from error
        log.warning("the CSI driver at %s is registered, and cannot be told so: %s", socket, error)

"""status.nodeInfo and status.declaredFeatures of the Node. Reads files; may block."""

from __future__ import annotations

import os
from typing import Any

from actors._host import system
from actors._host.machine import architecture, swap_capacity
from proto.agent.settings import Settings

_ALWAYS = (
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
)


def declared_features(settings: Settings, *, users_on_host_network: bool = False) -> list[str]:
    """status.declaredFeatures (KEP-5328): feature gates of this node that other nodes may lack.

    ExtendWebSocketsToKubelet tells the API server that it may send WebSocket clients of version 5 here.
    UserNamespacesHostNetworkSupport needs the runtime, too: `users_on_host_network`, of its features.
    """
    with_users = settings.users_on_host_network and users_on_host_network
    return [
        *(["ExtendWebSocketsToKubelet"] if settings.extend_websockets_to_kubelet else []),
        *_ALWAYS,
        *(["UserNamespacesHostNetworkSupport"] if with_users else []),
    ]


def node_info(runtime_version: str, chosen_version: str = "") -> dict[str, Any]:
    """status.nodeInfo. `chosen_version` is kubelet_version of Settings."""
    info: dict[str, Any] = {
        "architecture": architecture(),
        "bootID": system.boot_id(),
        "containerRuntimeVersion": runtime_version,
        "kernelVersion": os.uname().release,
        "kubeProxyVersion": "",
        "kubeletVersion": system.reported_version(chosen_version),
        "machineID": system.machine_id(),
        "operatingSystem": "linux",
        "osImage": system.os_image(),
        "systemUUID": system.system_uuid(),
    }
    if swap_bytes := swap_capacity():
        info["swap"] = {"capacity": swap_bytes}
    return info

"""Checks what device plugins say: names at registration, lists of devices, answers to Allocate. Pure.

A plugin runs with rights of its own, in a container as a rule. What it says goes into the Node, into files and to the
container runtime. So it is bounded, and an answer that no plugin can mean is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from actors.resources.devices.inventory import MOST_PLACEMENTS, Device
from actors.resources.model.cdi import is_cdi_name
from proto.common.safe_text import clipped
from proto.resources.grants import Grant, GrantedDevice, GrantedMount

VERSION = "v1beta1"
HEALTHY = "Healthy"
MOST_DEVICES = 16_384
"""Devices of one resource. All their IDs fit into one message of gRPC's usual 4 MiB."""
MOST_ID = 253
MOST_NUMA_NODES = 1024
"""The kernel's own limit."""
MOST_ITEMS = 1024
"""Devices, mounts, variables, annotations or CDI devices for one container."""
MOST_PATH = 4096
MOST_TEXT = 128 * 1024
"""Bytes of a variable: the kernel's limit of one string for execve. Also of an annotation."""
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


class BadAnswerError(Exception):
    """The plugin said something that no plugin can mean; the message says what."""


def registration_problem(version: str, resource: str) -> str:
    """The kubelet's reason to refuse a plugin; empty to accept it."""
    if version != VERSION:
        return (
            f'requested API version "{clipped(version)}" is not supported by kubelet. Supported version is "{VERSION}"'
        )
    if not is_extended_resource(resource):
        return f'the ResourceName "{clipped(resource)}" is invalid'
    return ""


def registry_problem(resource: str, versions: Collection[str]) -> str:
    """The kubelet's reason to refuse a plugin in plugins_registry; empty to accept it."""
    if VERSION not in versions:
        return f"manager version, {VERSION}, is not among plugin supported versions [{clipped(' '.join(versions))}]"
    if not is_extended_resource(resource):
        return f'invalid name of device plugin socket: the ResourceName "{clipped(resource)}" is invalid'
    return ""


def endpoint_problem(endpoint: str) -> str:
    """Reason to refuse the name of a socket in the directory of device plugins; empty to accept it."""
    if not endpoint or endpoint.startswith(".") or "/" in endpoint or "\0" in endpoint or len(endpoint) > MOST_ID:
        return f'the endpoint "{clipped(endpoint)}" is not the name of a socket in the directory of device plugins'
    return ""


def is_extended_resource(name: str) -> bool:
    """A qualified name with a domain that is not Kubernetes' own (IsExtendedResourceName)."""
    prefix, slash, last = name.rpartition("/")
    if not slash or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    in_quota = f"requests.{prefix}"  # the name must also do for a ResourceQuota
    fits = len(in_quota) <= 253 and _SUBDOMAIN.fullmatch(prefix) is not None
    return fits and len(last) <= 63 and _NAME.fullmatch(last) is not None


def read_devices(response: Any) -> list[Device]:
    """The devices of a ListAndWatchResponse. Raises BadAnswerError."""
    if len(response.devices) > MOST_DEVICES:
        raise BadAnswerError(f"it lists {len(response.devices)} devices, more than {MOST_DEVICES}")
    nodes = sum(len(one.topology.nodes) for one in response.devices)  # before each is read: a list may repeat them
    if nodes > MOST_PLACEMENTS:
        raise BadAnswerError(f"it lists {nodes} NUMA nodes of devices, more than {MOST_PLACEMENTS}")
    return [_device(one) for one in response.devices]


def _device(device: Any) -> Device:
    if not device.ID or len(device.ID) > MOST_ID or not device.ID.isprintable():
        raise BadAnswerError(f"it lists a device with the ID {clipped(device.ID)!r}")
    nodes = frozenset(int(node.ID) for node in device.topology.nodes if 0 <= node.ID < MOST_NUMA_NODES)
    return Device(device.ID, device.health == HEALTHY, nodes)


def read_grant(response: Any) -> Grant:
    """The grant in a ContainerAllocateResponse. Raises BadAnswerError."""
    for what in (response.envs, response.mounts, response.devices, response.annotations, response.cdi_devices):
        if len(what) > MOST_ITEMS:
            raise BadAnswerError(f"it grants {len(what)} items of one kind, more than {MOST_ITEMS}")
    return Grant(
        environment=_texts(response.envs, "variable"),
        devices=tuple(_granted_device(one) for one in response.devices),
        mounts=tuple(
            GrantedMount(
                host_path=_path(one.host_path), container_path=_path(one.container_path), read_only=one.read_only
            )
            for one in response.mounts
        ),
        annotations=_texts(response.annotations, "annotation"),
        cdi_devices=tuple(_cdi(one.name) for one in response.cdi_devices),
    )


def _granted_device(device: Any) -> GrantedDevice:
    permissions = device.permissions
    if not set(permissions) <= set("rwm") or len(permissions) > len("rwm"):
        raise BadAnswerError(f"it grants a device with the permissions {clipped(permissions)!r}")
    return GrantedDevice(
        host_path=_path(device.host_path), container_path=_path(device.container_path), permissions=permissions
    )


def _path(path: str) -> str:
    if not path.startswith("/") or "\0" in path or len(path) > MOST_PATH or ".." in path.split("/"):
        raise BadAnswerError(f"it grants the path {clipped(path)!r}, which is not absolute")
    return path


def _texts(texts: Mapping[str, str], what: str) -> dict[str, str]:
    for name, value in texts.items():
        if not name or "=" in name or "\0" in name + value or max(len(name), len(value)) > MOST_TEXT:
            raise BadAnswerError(f"it grants an invalid {what} {clipped(name)!r}")
    return dict(texts)


def _cdi(name: str) -> str:
    if not is_cdi_name(name):
        raise BadAnswerError(f"it grants the CDI device {clipped(name)!r}, which is not VENDOR/CLASS=NAME")
    return name

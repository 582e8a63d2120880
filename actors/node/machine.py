"""nodeInfo: what this machine and its system are. Reads files; may block."""

from __future__ import annotations

import os
from pathlib import Path

from actors._host.machine import architecture

KUBELET_VERSION = "v1.36.2+nodevisor"
"""The Kubernetes release whose behaviour is reproduced; a semantic version, as those who compare it expect."""

_MACHINE_ID = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_SYSTEM_UUID = ("/sys/class/dmi/id/product_uuid", "/proc/device-tree/vm,uuid", *_MACHINE_ID)


def node_info(runtime_version: str) -> dict[str, str]:
    """status.nodeInfo."""
    return {
        "architecture": architecture(),
        "bootID": _first("/proc/sys/kernel/random/boot_id"),
        "containerRuntimeVersion": runtime_version,
        "kernelVersion": os.uname().release,
        "kubeProxyVersion": "",
        "kubeletVersion": KUBELET_VERSION,
        "machineID": _first(*_MACHINE_ID),
        "operatingSystem": "linux",
        "osImage": _os_image(),
        "systemUUID": _first(*_SYSTEM_UUID),
    }


def _first(*paths: str) -> str:
    for path in paths:
        try:
            found = Path(path).read_text(encoding="utf-8", errors="replace").strip("\0 \n")
        except OSError:
            continue
        if found:
            return found
    return ""


def _os_image() -> str:
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        for line in lines:
            if line.startswith("PRETTY_NAME="):
                return line.removeprefix("PRETTY_NAME=").strip("\"'")
    return "Linux"

"""The types of plugins, and the kubelet's messages about their registration. Pure.

Source: pkg/kubelet/pluginmanager of Kubernetes 1.36.
"""

from __future__ import annotations

from proto.common.safe_text import clipped

DIRECTORY = "plugins_registry"
"""Below --root-dir: a socket for each plugin."""
CSI, DEVICE, DRA = "CSIPlugin", "DevicePlugin", "DRAPlugin"
KNOWN = frozenset({CSI, DEVICE, DRA})
UNKNOWN = "no handler registered for plugin type"
"""volume refuses plugins of unknown types. Other owners leave them alone."""
OTHER_OWNER = "another process registers plugins of type"
"""Begins the internal error of a plugin that is not this owner's."""


def unknown_type(kind: str, socket: str) -> str:
    """The kubelet's refusal of a plugin that no manager takes."""
    return f"RegisterPlugin error -- {UNKNOWN}: {clipped(kind)} at socket {socket}"


def invalid(problem: str) -> str:
    """The kubelet's refusal of a plugin that its manager does not take."""
    return f"RegisterPlugin error -- plugin validation failed with err: {problem}"


def failed(problem: object) -> str:
    """The kubelet's message to a plugin whose manager could not register it."""
    return f"RegisterPlugin error -- plugin registration failed with err: {problem}"

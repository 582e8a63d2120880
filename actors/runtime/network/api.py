"""The interface of a pod network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from actors.runtime.model.state import Sandbox

BANDWIDTH_ANNOTATIONS = {
    "ingress": "kubernetes.io/ingress-bandwidth",
    "egress": "kubernetes.io/egress-bandwidth",
}
"""Annotations of a pod that limit its traffic, bits per second as a quantity, by direction.

https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/network-plugins/#support-traffic-shaping
"""


class NetworkError(Exception):
    """A pod cannot be attached or detached; the message appears in its events."""


class Network:
    """One kind of network. The default methods suit a network that has no state and no remarks."""

    def problem(self) -> str:
        """The reason why pods cannot get addresses now; empty when they can."""
        return ""

    def remark(self) -> str:
        """A remark on the addresses of pods, for node conditions; empty for usual ones."""
        return ""

    def attach(self, sandbox: Sandbox, netns: str, directory: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Connect the namespace at `netns`. Returns data for `detach`, and the pod's addresses, the primary one first.

        Before any change, `directory` holds all that is needed to undo it after a kill. Raises NetworkError.
        """
        raise NotImplementedError

    def detach(self, sandbox: Sandbox, directory: Path) -> None:
        """Disconnect a sandbox. Idempotent, also before `attach`. Raises NetworkError."""

    def release(self, directory: Path) -> None:
        """Disconnect a sandbox without a record, which a kill left. Idempotent. Raises NetworkError."""

    def reconcile(self) -> None:
        """Repair the network at start and periodically, after kills and changes by other programs. Never fails."""

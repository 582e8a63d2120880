"""The interface of a pod network."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from actors.runtime.model.state import Sandbox


class NetworkError(Exception):
    """A pod cannot be attached or detached; the message appears in its events."""


class Network(Protocol):
    """One kind of network."""

    def problem(self) -> str:
        """The reason why pods cannot get addresses now; empty when they can."""

    def remark(self) -> str:
        """A remark on the addresses of pods, for node conditions; empty for usual ones."""

    def attach(self, sandbox: Sandbox, netns: str, directory: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Connect the namespace at `netns`. Returns data for `detach`, and the pod's addresses, the primary one first.

        Before any change, `directory` holds all that is needed to undo it after a kill. Raises NetworkError.
        """

    def detach(self, sandbox: Sandbox, directory: Path) -> None:
        """Disconnect a sandbox. Idempotent, also before `attach`. Raises NetworkError."""

    def release(self, directory: Path) -> None:
        """Disconnect a sandbox without a record, which a kill left. Idempotent. Raises NetworkError."""

    def reconcile(self) -> None:
        """Repair the network at start and periodically: after a kill, or after other programs removed parts. Never
        fails."""

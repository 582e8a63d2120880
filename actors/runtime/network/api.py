"""What a network of pods does for a sandbox, whichever it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from actors.runtime.model.state import Sandbox


class NetworkError(Exception):
    """A pod cannot be attached or detached; the message is for its events."""


class Network(Protocol):
    """One kind of network."""

    def problem(self) -> str:
        """Why pods cannot have addresses now; empty when they can."""

    def remark(self) -> str:
        """What is to be known of the addresses that pods get; empty when they are as everywhere."""

    def attach(self, sandbox: Sandbox, netns: str, directory: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Connect the namespace at `netns`: what `detach` will need, and the pod's addresses, the primary first.

        What is needed to take it back after a kill is in `directory` before anything is changed. Raises NetworkError.
        """

    def detach(self, sandbox: Sandbox, directory: Path) -> None:
        """Take it back. Idempotent, also for what was never attached. Raises NetworkError."""

    def release(self, directory: Path) -> None:
        """Take back what a sandbox without a record was given: a kill came before. Idempotent. Raises NetworkError."""

    def settle(self) -> None:
        """At start, when what is on record is known, and now and then: put right what a kill left half done, or what
        somebody else took away. Never fails.
        """

"""The outcome of one probe of a container."""

from __future__ import annotations

from typing import Literal, NamedTuple

MAX_BODY_BYTES = 10 * 1024
"""Limit of an HTTP body and of a command's output, as in the kubelet."""


class Outcome(NamedTuple):
    """The result of one probe. `errored`: the probe failed to learn the container's state, so its result stays."""

    kind: Literal["success", "warning", "failure", "errored"]
    output: str = ""
    """The kubelet's text where it is known; at most MAX_BODY_BYTES."""
    state: Literal["unknown", "failure"] = "unknown"
    """The state in the event of an errored probe. The kubelet names failure when an HTTP body broke off."""

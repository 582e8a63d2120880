"""What one probe of a container came to."""

from __future__ import annotations

from typing import Literal, NamedTuple

MAX_BODY_BYTES = 10 * 1024
"""Of an HTTP body or of a command's output; the kubelet reads no more either."""


class Outcome(NamedTuple):
    """The end of one probe. `errored` is no answer at all: nothing is known of the container, and nothing changes."""

    kind: Literal["success", "warning", "failure", "errored"]
    output: str = ""
    """In the kubelet's words, as far as they can be known; not more than MAX_BODY_BYTES."""

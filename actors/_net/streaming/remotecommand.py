"""Kubernetes' streaming as its clients and servers agree on it: versions, channels, how the end of a command is told.

The remote command protocol is that of exec and attach: over SPDY in versions 1 to 4, over WebSocket in 1, 4 and 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from proto.common import untrusted

VERSION = "X-Stream-Protocol-Version"
"""The header in which a SPDY client offers versions, best first, and is told the one that is spoken."""
SPDY_COMMAND = ("v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io")
SPDY_FORWARD = ("portforward.k8s.io",)
WITH_RESIZE = SPDY_COMMAND[:2]
"""Those that have a stream for the size of the terminal."""
V5 = "v5.channel.k8s.io"
WEBSOCKET_COMMAND = (V5, "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io")
TUNNELLED = "SPDY/3.1+"
TUNNEL = TUNNELLED + "portforward.k8s.io"
"""SPDY's bytes in WebSocket's messages (KEP-4006)."""
WEBSOCKET_FORWARD = (TUNNEL, "v4.channel.k8s.io", "v4.base64.channel.k8s.io")
CHANNELS = ("stdin", "stdout", "stderr", "error", "resize")
"""By their number in WebSocket's messages."""
END_OF_STREAM = 255
"""Version 5: the channel on which the client says that another is at its end."""


def choose(offered: Sequence[str], served: Iterable[str], fallback: str) -> str | None:
    """The first of the client's protocols that is served; `fallback` if it names none, None if we have none of them."""
    if not offered:
        return fallback
    return next((one for one in offered if one in served), None)


def listed(values: Iterable[str]) -> list[str]:
    """The words of headers that may come several times and may have several each."""
    return [word.strip() for value in values for word in value.split(",") if word.strip()]


# The outcome


class _Status(msgspec.Struct):
    """As much of a metav1.Status as makes it one."""

    status: str


def ended(code: int) -> Mapping[str, object]:
    """A metav1.Status for a command's exit code."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def failed(why: str) -> Mapping[str, object]:
    """A metav1.Status for what is no end of a command."""
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {why}",
        "reason": "InternalError",
        "details": {"causes": [{"message": why}]},
        "code": 500,
    }


def outcome(protocol: str, status: Mapping[str, object]) -> bytes:
    """What goes out on the error channel: since version 4 the whole status, before that a text or nothing."""
    if protocol.startswith(("v4.", "v5.")):
        return msgspec.json.encode(status)
    return b"" if status["status"] == "Success" else str(status["message"]).encode()


def as_status(protocol: str, told: bytes) -> bytes:
    """The same the other way: what came on the error channel in that version, as a metav1.Status in JSON."""
    if not told:
        return msgspec.json.encode(ended(0))
    if not protocol.startswith(("v4.", "v5.")):
        return msgspec.json.encode(failed(told.decode(errors="replace")))
    try:
        untrusted.decode_json(told, _Status)
    except (msgspec.MsgspecError, RecursionError):
        return msgspec.json.encode(failed(f"the runtime tells no status: {told[:1000].decode(errors='replace')}"))
    return told

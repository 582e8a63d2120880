"""The versions, channels and outcomes of Kubernetes' streaming protocols, for clients and servers.

Exec and attach use the remote command protocol: versions 1 to 4 over SPDY, versions 1, 4 and 5 over WebSocket.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from proto.common import untrusted

VERSION = "X-Stream-Protocol-Version"
"""The header in which a SPDY client offers versions, best first, and the server answers with the chosen one."""
SPDY_COMMAND = ("v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io")
SPDY_FORWARD = ("portforward.k8s.io",)
WITH_RESIZE = SPDY_COMMAND[:2]
"""The versions with a stream for the terminal's size."""
V5 = "v5.channel.k8s.io"
WEBSOCKET_COMMAND = (V5, "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io")
TUNNELLED = "SPDY/3.1+"
TUNNEL = TUNNELLED + "portforward.k8s.io"
"""SPDY tunnelled in WebSocket messages (KEP-4006)."""
WEBSOCKET_FORWARD = (TUNNEL, "v4.channel.k8s.io", "v4.base64.channel.k8s.io")
CHANNELS = ("stdin", "stdout", "stderr", "error", "resize")
"""The names of the channels, by their number in WebSocket messages."""
END_OF_STREAM = 255
"""Version 5: the channel on which the client sends the number of a channel that it ends."""


def choose(offered: Sequence[str], served: Iterable[str], fallback: str) -> str | None:
    """The first offered protocol that is served; `fallback` without an offer; None when none is served."""
    if not offered:
        return fallback
    return next((one for one in offered if one in served), None)


def listed(values: Iterable[str]) -> list[str]:
    """The comma-separated words of all values of a repeated header."""
    return [word.strip() for value in values for word in value.split(",") if word.strip()]


TOKEN_PROTOCOL = "base64url.bearer.authorization.k8s.io."
"""The start of a WebSocket subprotocol that is a bearer token: a browser cannot send an Authorization header."""


# The outcome


class _Status(msgspec.Struct):
    """The one required field of a metav1.Status."""

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
    """A metav1.Status for a failure other than the command's exit."""
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {why}",
        "reason": "InternalError",
        "details": {"causes": [{"message": why}]},
        "code": 500,
    }


def outcome(protocol: str, status: Mapping[str, object]) -> bytes:
    """The content of the error channel: the whole status since version 4, before it a text, or nothing on success."""
    if protocol.startswith(("v4.", "v5.")):
        return msgspec.json.encode(status)
    return b"" if status["status"] == "Success" else str(status["message"]).encode()


def as_status(protocol: str, told: bytes) -> bytes:
    """The inverse of `outcome`: the content of the error channel in `protocol` as a metav1.Status in JSON."""
    if not told:
        return msgspec.json.encode(ended(0))
    if not protocol.startswith(("v4.", "v5.")):
        return msgspec.json.encode(failed(told.decode(errors="replace")))
    try:
        untrusted.decode_json(told, _Status)
    except (msgspec.MsgspecError, RecursionError):
        return msgspec.json.encode(failed(f"the runtime sent no status: {told[:1000].decode(errors='replace')}"))
    return told

"""Decisions of the streaming server: who may come in, which protocol is spoken, how the end of a command is told.

The behaviour is that of k8s.io/kubelet/pkg/cri/streaming, which every other runtime serves its sessions with.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from actors.runtime.errors import RpcError, invalid

TOKEN_S = 60.0
MOST_TOKENS = 1000
"""That nobody has come with yet."""

EXEC, ATTACH, PORT_FORWARD = "exec", "attach", "portforward"

SPDY_COMMAND = ("v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io")
SPDY_FORWARD = ("portforward.k8s.io",)
WEBSOCKET_COMMAND = (
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
)
TUNNEL = "SPDY/3.1+portforward.k8s.io"
"""SPDY's bytes in WebSocket's messages (KEP-4006)."""
WEBSOCKET_FORWARD = (TUNNEL, "v4.channel.k8s.io", "v4.base64.channel.k8s.io")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an rpc has prepared."""

    kind: str
    target: str
    """ID of the container, or of the sandbox."""
    command: tuple[str, ...] = ()
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False
    ports: tuple[int, ...] = ()
    """For WebSocket clients, whose channels are numbered by them."""

    def require_streams(self) -> Wanted:
        """Itself. Raises RpcError INVALID_ARGUMENT."""
        if not self.target:
            raise invalid("missing required container_id")
        if self.tty and self.stderr:
            raise invalid("tty and stderr cannot both be true: a terminal has one output")
        if not (self.stdin or self.stdout or self.stderr):
            raise invalid("one of stdin, stdout, or stderr must be set")
        return self

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the streams from the container."""
        return tuple(name for name, wanted in (("stdout", self.stdout), ("stderr", self.stderr)) if wanted)


class Tokens:
    """Who may come in: each once, and within a minute. Times in seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Wanted]] = {}

    def issue(self, wanted: Wanted, now: float) -> str:
        """A token. Raises RpcError RESOURCE_EXHAUSTED."""
        self._known = {token: kept for token, kept in self._known.items() if now < kept[0]}
        if len(self._known) >= MOST_TOKENS:
            raise RpcError("RESOURCE_EXHAUSTED", f"{MOST_TOKENS} sessions are prepared and nobody has come for them")
        token = secrets.token_urlsafe(16)
        self._known[token] = (now + TOKEN_S, wanted)
        return token

    def redeem(self, path: str, now: float) -> Wanted | None:
        """What `/KIND/TOKEN` stands for; from then on nothing."""
        _, kind, token = [*path.split("/", 2), "", ""][:3]
        kept = self._known.get(token)
        if kept is None or now >= kept[0] or kept[1].kind != kind:
            return None
        del self._known[token]
        return kept[1]


def choose(offered: Sequence[str], served: Iterable[str], fallback: str) -> str | None:
    """The first of the client's protocols that is served; `fallback` if it names none, None if we have none of them."""
    if not offered:
        return fallback
    return next((one for one in offered if one in served), None)


def listed(values: Iterable[str]) -> list[str]:
    """The words of headers that may come several times and may have several each."""
    return [word.strip() for value in values for word in value.split(",") if word.strip()]


# The outcome


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

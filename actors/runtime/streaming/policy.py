"""Pure decisions of the streaming server: prepared sessions and their tokens.

The behaviour is that of k8s.io/kubelet/pkg/cri/streaming, which all other runtimes use.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from actors.runtime.model.errors import RpcError, invalid

TOKEN_S = 60.0
MOST_TOKENS = 1000
"""Unused tokens, at most."""

EXEC, ATTACH, PORT_FORWARD = "exec", "attach", "portforward"


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """The session that an rpc prepares."""

    kind: str
    target: str
    """ID of the container, or of the sandbox."""
    command: tuple[str, ...] = ()
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False
    ports: tuple[int, ...] = ()
    """Ports of WebSocket clients, which have two channels for each."""

    def require_streams(self) -> SessionRequest:
        """Return self if the streams make sense. Raises RpcError INVALID_ARGUMENT."""
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
    """Tokens of prepared sessions, each valid once and for a minute. Times in seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, SessionRequest]] = {}

    def issue(self, wanted: SessionRequest, now: float) -> str:
        """A new token. Raises RpcError RESOURCE_EXHAUSTED."""
        self._known = {token: kept for token, kept in self._known.items() if now < kept[0]}
        if len(self._known) >= MOST_TOKENS:
            raise RpcError("RESOURCE_EXHAUSTED", f"cannot prepare a session: {MOST_TOKENS} wait for their clients")
        token = secrets.token_urlsafe(16)
        self._known[token] = (now + TOKEN_S, wanted)
        return token

    def redeem(self, path: str, now: float) -> SessionRequest | None:
        """The session of the path `/KIND/TOKEN`, whose token is then used up; None if it is invalid."""
        _, kind, token = [*path.split("/", 2), "", ""][:3]
        kept = self._known.get(token)
        if kept is None or now >= kept[0] or kept[1].kind != kind:
            return None
        del self._known[token]
        return kept[1]

"""Service account tokens: their requests, renewal times and cache. Pure: time and chance are parameters.

Source: pkg/kubelet/token of Kubernetes 1.36.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from proto.pods.objects import GetToken, Token

LONGEST_S = 24 * 3600.0
"""Longest time to the renewal of a token."""
RENEW_FRACTION = 0.8
"""Fraction of a token's life after which it is renewed."""
LEAST_S = 60.0
"""Shortest time to the renewal of a token, or a tenth of its life."""
JITTER_S = 10.0
"""Random part of the renewal time, so that the tokens of pods that started together are not renewed together."""
API_VERSION = "authentication.k8s.io/v1"


def path(request: GetToken) -> str:
    """API path of the TokenRequest."""
    return f"/api/v1/namespaces/{request.namespace}/serviceaccounts/{request.service_account}/token"


def body(request: GetToken) -> dict[str, Any]:
    """Body of the TokenRequest."""
    spec: dict[str, Any] = {
        "audiences": list(request.audiences),
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": request.pod_name, "uid": request.pod_uid},
    }
    if request.expiration_s is not None:
        spec["expirationSeconds"] = request.expiration_s
    meta = {"metadata": {"uid": request.account_uid}} if request.account_uid else {}
    return {"apiVersion": API_VERSION, "kind": "TokenRequest", **meta, "spec": spec}


class _Status(msgspec.Struct, rename="camel"):
    token: str
    expiration_timestamp: str


class _Spec(msgspec.Struct, rename="camel"):
    expiration_seconds: int


class _Issued(msgspec.Struct):
    spec: _Spec
    status: _Status


def issued(answer: dict[str, Any], chance: float, now: float) -> Token:
    """The token in the server's answer; `chance` from 0 to 1. Raises ValueError when there is none.

    Its lifetime is the server's, which may differ from the requested one. It is used for a while even if this machine's
    clock, `now`, is ahead of the server's by most of that life.
    """
    try:
        found = msgspec.convert(answer, _Issued)
        expires = datetime.fromisoformat(found.status.expiration_timestamp).timestamp()
    except (msgspec.ValidationError, OverflowError) as error:
        raise ValueError("the answer to the TokenRequest has no token") from error
    token, life_s = found.status.token, float(found.spec.expiration_seconds)
    issued_at = expires - life_s
    refresh = issued_at + min(life_s * RENEW_FRACTION, LONGEST_S) - chance * min(JITTER_S, life_s / 10)
    return Token(token=token, expires=expires, refresh=max(refresh, now + min(LEAST_S, life_s / 10)))


class _Kept(NamedTuple):
    """A token; `at` is when it was stored, by this machine's clock."""

    token: Token
    at: float


class TokenCache:
    """Tokens by request. Times are Unix seconds, as in the API."""

    def __init__(self) -> None:
        self._tokens: dict[GetToken, _Kept] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def fresh(self, request: GetToken, now: float) -> Token | None:
        """A token that need not be renewed yet. None after the clock was set back: `refresh` is by the old clock."""
        kept = self._tokens.get(request)
        return kept.token if kept is not None and kept.at <= now < kept.token.refresh else None

    def usable(self, request: GetToken, now: float) -> Token | None:
        """A token that has not expired, for use when the renewal fails."""
        kept = self._tokens.get(request)
        return kept.token if kept is not None and now < kept.token.expires else None

    def keep(self, request: GetToken, token: Token, now: float) -> None:
        """Store a new token, and drop expired ones."""
        self._tokens = {
            one: kept for one, kept in self._tokens.items() if now < max(kept.token.expires, kept.token.refresh)
        }
        self._tokens[request] = _Kept(token, now)

    def forget(self, uids: frozenset[str]) -> None:
        """Drop the tokens of removed pods, which are invalid."""
        if uids:
            self._tokens = {request: kept for request, kept in self._tokens.items() if request.pod_uid not in uids}

"""When a service account token is good, when it is renewed, when it is forgotten. Pure: time and chance are handed in.

Source: pkg/kubelet/token of Kubernetes 1.36.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from proto.pods.objects import GetToken, Token

LONGEST_S = 24 * 3600.0
"""A token that lives longer is renewed after this."""
RENEW_FRACTION = 0.8
"""Of its life, after which it is renewed."""
JITTER_S = 10.0
"""It is renewed up to so much earlier, so that the tokens of pods that started together are not renewed together."""
API_VERSION = "authentication.k8s.io/v1"


def path(wish: GetToken) -> str:
    """Where it is asked for."""
    return f"/api/v1/namespaces/{wish.namespace}/serviceaccounts/{wish.service_account}/token"


def body(wish: GetToken) -> dict[str, Any]:
    """The TokenRequest."""
    spec: dict[str, Any] = {
        "audiences": list(wish.audiences),
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": wish.pod_name, "uid": wish.pod_uid},
    }
    if wish.expiration_s is not None:
        spec["expirationSeconds"] = wish.expiration_s
    return {"apiVersion": API_VERSION, "kind": "TokenRequest", "spec": spec}


def issued(answer: dict[str, Any], chance: float) -> Token:
    """The token of a TokenRequest as the server answered it; `chance` from 0 to 1. Raises ValueError for what is none.

    Its life is what the server says that it gave, which may be more or less than what was asked for.
    """
    try:
        token = answer["status"]["token"]
        expires = datetime.fromisoformat(answer["status"]["expirationTimestamp"]).timestamp()
        life_s = float(answer["spec"]["expirationSeconds"])
    except (KeyError, TypeError) as error:
        raise ValueError("the answer to the TokenRequest has no token") from error
    issued_at = expires - life_s
    refresh = issued_at + min(life_s * RENEW_FRACTION, LONGEST_S) - chance * min(JITTER_S, life_s / 10)
    return Token(token=token, expires=expires, refresh=refresh)


class TokenCache:
    """Tokens by what was asked for. Times are Unix seconds, as the API server has them."""

    def __init__(self) -> None:
        self._tokens: dict[GetToken, Token] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def fresh(self, wish: GetToken, now: float) -> Token | None:
        """One that need not be renewed yet."""
        token = self._tokens.get(wish)
        return token if token is not None and now < token.refresh else None

    def usable(self, wish: GetToken, now: float) -> Token | None:
        """One that has not expired, for when it cannot be renewed."""
        token = self._tokens.get(wish)
        return token if token is not None and now < token.expires else None

    def keep(self, wish: GetToken, token: Token, now: float) -> None:
        """It was issued; those that have expired go."""
        self._tokens = {one: has for one, has in self._tokens.items() if now < has.expires}
        self._tokens[wish] = token

    def forget(self, uids: frozenset[str]) -> None:
        """Those of pods that are gone: they are worth nothing any more."""
        if uids:
            self._tokens = {wish: token for wish, token in self._tokens.items() if wish.pod_uid not in uids}

"""Authenticates and authorizes each request on the authenticated port.

The order is the kubelet's: client certificate, bearer token, anonymous. Refusals have the kubelet's texts. A token is
in the Authorization header, or is a subprotocol that a WebSocket request offers beside others.
"""

from __future__ import annotations

import logging
from base64 import b64decode
from collections.abc import Callable
from ssl import SSLCertVerificationError

from actors._net.streaming.remotecommand import TOKEN_PROTOCOL
from actors._net.tls import ClientCertificate
from actors.server.auth.reviews import ReviewError, Reviews, TooManyReviews, UndecidedToken
from actors.server.base.http import ANONYMOUS, Request, Response, User, text
from actors.server.policy import attributes, user_of_certificate, with_authenticated_group
from proto.common import logs

log = logging.getLogger(__name__)

UNAUTHORIZED = text(401, "Unauthorized")


def bearer_token(request: Request) -> str:
    """The request's bearer token; empty without one.

    A token among WebSocket subprotocols counts if it is the only one there and other subprotocols are offered.
    """
    scheme, _, token = request.headers.get("authorization", "").strip().partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    protocols = request.subprotocols
    encoded = [name.removeprefix(TOKEN_PROTOCOL) for name in protocols if name.startswith(TOKEN_PROTOCOL)]
    if len(encoded) != 1 or len(protocols) == 1:
        return ""
    try:
        return b64decode(encoded[0] + "=" * (-len(encoded[0]) % 4), b"-_", validate=True).decode()
    except ValueError:
        return ""


class Access:
    """`tokens` and `webhook` ask the API server (authentication.webhook, authorization.mode: Webhook).

    `uids`: a client certificate may name its user's UID.
    """

    def __init__(
        self, reviews: Reviews | None, *, tokens: bool, anonymous: bool, webhook: bool, uids: bool = True
    ) -> None:  # fmt: skip
        self._reviews = reviews
        self._tokens, self._anonymous, self._webhook, self._uids = tokens, anonymous, webhook, uids
        # Limited, because clients without any right can cause a line with each request.
        self._refusals, self._failures = logs.Limited(log), logs.Limited(log)
        self._undecided = logs.Limited(log)  # of its own: invalid tokens, too, must not hide a failure

    async def check(self, request: Request, certificate: Callable[[], ClientCertificate | None]) -> User | Response:
        """The user when access is allowed, else the refusal. `certificate` calls `Stream.certificate`."""
        user = await self._authenticate(request, certificate)
        return user if isinstance(user, Response) else await self._authorize(user, request)

    async def _authenticate(
        self, request: Request, certificate: Callable[[], ClientCertificate | None]
    ) -> User | Response:
        anonymous = self._anonymous
        try:
            user = user_of_certificate(certificate(), with_uid=self._uids)
        except SSLCertVerificationError as error:
            self._refusals.log(logging.INFO, "%s", error.args[0])
            user, anonymous = None, False  # a bearer token may still authenticate the client
        if user is not None:
            return with_authenticated_group(user)
        token = bearer_token(request)
        if token and self._tokens and self._reviews is not None:
            try:
                user = await self._reviews.user_of_token(token)
            except UndecidedToken as error:
                self._undecided.log(logging.WARNING, "the API server cannot authenticate a token: %s", error)
                return UNAUTHORIZED
            except TooManyReviews as error:
                self._failures.log(logging.WARNING, "refused a token: %s", error)
                return text(429, "too many tokens wait for their review; try again\n", **{"Retry-After": "1"})
            except ReviewError as error:
                self._failures.log(logging.ERROR, "cannot review a token: %s", error)
                return UNAUTHORIZED
            return with_authenticated_group(user) if user is not None else UNAUTHORIZED
        return ANONYMOUS if anonymous else UNAUTHORIZED

    async def _authorize(self, user: User, request: Request) -> User | Response:
        wanted = attributes(request.method, request.path)
        if not self._webhook:
            return user
        for subresource in wanted.subresources:
            what = f"user={user.name}, verb={wanted.verb}, resource=nodes, subresource={subresource}"
            try:
                if self._reviews is not None and await self._reviews.allowed(user, wanted.verb, subresource):
                    return user
            except ReviewError as error:
                self._failures.log(logging.ERROR, "cannot review access (%s): %s", what, error)
                return text(500, f"Authorization error ({what})")
        names = " ".join(wanted.subresources)
        said = f"user={user.name}, verb={wanted.verb}, resource=nodes, subresource(s)=[{names}]"
        self._refusals.log(logging.INFO, "forbidden: %s", said)
        return text(403, f"Forbidden ({said})\n")

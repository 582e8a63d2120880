"""Requests one certificate: creates a CertificateSigningRequest, waits for the decision, and checks the certificate.

The request's key is kept on disk, and its name comes from the key, so that after a kill the same request goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from actors._base import Actor, Future
from actors._base.messaging.tasks import first_of
from actors._kube.client import KubeClient
from actors._kube.connection.stream import Streams
from actors._kube.errors import AlreadyExists, ApiError, Unauthorized
from actors._kube.follow import Follower
from actors._kube.reflector import Listener, Position
from actors._pki import pki
from actors._pki.pki import Certificate, Names, Signing
from actors.certificates import policy
from actors.certificates.policy import Issued, Object, Purpose, Rejected
from actors.certificates.store import Store

log = logging.getLogger(__name__)

DISK_S = 10.0


class NotSigned(Exception):
    """The request was denied, failed or deleted; the message has the cluster's reason."""


class NamesChanged(Exception):
    """The certificate is to have other names than the request; another one follows."""


class _DecisionListener(Listener):
    """Completes a future when the watch of a request shows a decision."""

    def __init__(self, decided: Future[Object], purpose: Purpose) -> None:
        self._decided, self._purpose = decided, purpose

    def replaced(self, items: list[Object]) -> None:
        self._check_decided(items[0] if items else {})

    def changed(self, kind: str, item: Object) -> None:
        self._check_decided({} if kind == "DELETED" else item)

    def _check_decided(self, request: Object) -> None:
        if not request or policy.outcome(request) is not None:
            self._decided.set(request)

    def failed(self, error: ApiError) -> None:
        if isinstance(error, Unauthorized):
            self._decided.set_error(error)  # the certificate that waits for its successor may be over
            return
        log.warning("cannot watch the request for the %s: %s; trying again", self._purpose.what, error)


class Obtained(NamedTuple):
    """A certificate (PEM) that was checked against its key, and its fields."""

    certificate: bytes
    key: str
    facts: Certificate


class Source(NamedTuple):
    """The purpose of a request, the API client and streams to use, and the store of its key."""

    purpose: Purpose
    client: KubeClient
    streams: Streams
    store: Store
    prefix: str
    """Prefix of the request's name."""


async def obtain(
    actor: Actor, source: Source, names: Names, waiting: Callable[[str], None], changed: Future[None]
) -> Obtained:  # fmt: skip
    """Request a certificate, and wait for its signature without limit; `waiting` gets the request's name.

    `changed`: other names are wanted, so wait no longer. Raises NamesChanged then, and ApiError, NotSigned, PkiError,
    OSError, AskTimeout. After an ApiError or PkiUnavailable the key and the request stay for a repeat. Credentials that
    the server refuses meanwhile are an ApiError, too: others may be there.
    """
    purpose, client, _, store, prefix = source
    signing = await actor.blocking(pki.DEADLINE_S + DISK_S, _request, store, names)
    name = policy.request_name(prefix, signing.public_key, names, purpose)
    try:
        found = await client.create(policy.REQUESTS, policy.request_object(name, signing.request, purpose))
    except AlreadyExists:  # an earlier incarnation's, with the same key
        found = await client.get(f"{policy.REQUESTS}/{name}")
    if policy.outcome(found) is None:
        waiting(name)
        found = await _decided(actor, source, name, changed)
    match policy.outcome(found):
        case Issued(certificate):
            try:
                pem = certificate.rstrip() + b"\n" + signing.key.encode()
                facts = await actor.blocking(pki.DEADLINE_S, pki.read, pem)
            except pki.PkiError as error:
                await actor.blocking(DISK_S, store.forget_key)
                raise NotSigned(f"the certificate of request {name} is unusable: {error}") from error
            return Obtained(certificate, signing.key, facts)
        case Rejected(why):
            await actor.blocking(DISK_S, store.forget_key)
            raise NotSigned(f"request {name}: {why}")
        case None:
            raise NotSigned(f"request {name} was deleted before a decision; creating another")


def _request(store: Store, names: Names) -> Signing:
    try:
        signing = pki.request(names, store.pending_key())
    except pki.PkiError as error:
        log.warning("cannot use the key of an earlier request: %s; creating another", error)
        signing = pki.request(names)
    store.keep_key(signing.key)
    return signing


async def _decided(actor: Actor, source: Source, name: str, changed: Future[None]) -> Object:
    # The request once it is signed, denied or failed; empty when it was deleted.
    decided: Future[Object] = Future()
    position = Position(policy.REQUESTS, {"fieldSelector": f"metadata.name={name}"}, exact=True)
    follower = Follower(actor, source.client, source.streams, position, _DecisionListener(decided, source.purpose))
    follower.start()
    try:
        await first_of(decided, changed)
        if not decided.done():
            raise NamesChanged(f"request {name} has former names")
        return await decided
    finally:
        follower.stop()

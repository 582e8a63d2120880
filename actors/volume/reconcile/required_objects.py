"""Fetches the API objects, service account tokens and pod certificates that volumes are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from actors._base import Future
from actors._objects.fetch import ASK_S, fetch_each
from actors._objects.peer import ObjectsRef
from actors.volume.plugins.base import Context, Credential, CredentialRequest
from actors.volume.policy import Wanted
from actors.volume.reconcile.volume_state import PodVolumes
from proto.pods.objects import ApiObject, ObjectRef
from proto.wire.errors import ActorDead, ActorError


class Needed(NamedTuple):
    """Objects and credentials for volumes of a pod."""

    objects: Mapping[ObjectRef, ApiObject]
    failed: dict[ObjectRef, str]
    """Errors of objects that cannot be read."""
    credentials: dict[CredentialRequest, Credential | str]
    """Tokens and certificates, or the error of the request."""


async def needed(objects: ObjectsRef, pod: PodVolumes, due: Iterable[Wanted], context: Context) -> Needed:
    """Fetch objects, the objects that they name in turn (recorded in `pod.further_refs`), and credentials."""
    due = tuple(due)
    found, failed = await _objects(objects, pod, due, context)
    has = context.with_objects(found)
    requests = {
        request for one in due if pod.pod is not None for request in one.plugin.credentials(pod.pod, one.volume, has)
    }
    if not requests or context.standalone:
        return Needed(found, failed, {})
    # All requests are sent before the first answer is awaited.
    asked = [(request, _ask(objects, request)) for request in sorted(requests, key=repr)]
    credentials: dict[CredentialRequest, Credential | str] = {}
    for request, answer in asked:
        try:
            credentials[request] = await _again_if_dead(objects, request, answer)
        except ActorError as error:
            credentials[request] = str(error)
    return Needed(found, failed, credentials)


def _ask(objects: ObjectsRef, request: Any) -> Future[Credential]:
    return objects.ask(request, ASK_S)  # of either type of request


async def _again_if_dead(objects: ObjectsRef, request: CredentialRequest, answer: Future[Credential]) -> Credential:
    # The next incarnation of the objects actor answers within some 30 ms.
    try:
        return await answer
    except ActorDead:
        return await _ask(objects, request)


async def _objects(
    objects: ObjectsRef, pod: PodVolumes, due: tuple[Wanted, ...], context: Context
) -> tuple[dict[ObjectRef, ApiObject], dict[ObjectRef, str]]:
    found: dict[ObjectRef, ApiObject] = {}
    failed: dict[ObjectRef, str] = {}
    asked: set[ObjectRef] = set()
    named: dict[str, frozenset[ObjectRef]] = {}
    refs = {ref for one in due for ref in one.refs}
    while refs:
        try:
            more, unread = await fetch_each(objects, refs)
        except ActorError as error:
            return found, failed | {ref: f'failed to get {ref.kind.lower()} "{ref.name}": {error}' for ref in refs}
        found |= more
        failed |= unread
        asked |= refs
        refs = set()
        has = replace(context.with_objects(found), asked=frozenset(asked))
        for one in due:
            if pod.pod is None:
                break
            further = frozenset(one.plugin.further_refs(pod.pod, one.volume, has))
            if further:
                named[one.name] = further
                # The earlier ones stay until all are read, since one of them may change meanwhile.
                pod.further_refs[one.name] = pod.further_refs.get(one.name, frozenset()) | further
            refs |= further - asked
    pod.further_refs.update(named)
    return found, failed

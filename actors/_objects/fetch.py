"""Fetches objects by reference from the objects actor, in several asks when they are large."""

from __future__ import annotations

from collections.abc import Iterable

from actors._objects.peer import ObjectsRef
from proto.pods.objects import ApiObject, GetObjects, ObjectRef, Objects
from proto.wire.errors import ActorDead, Refused

ASK_S = 10.0
ATTEMPTS = 3
"""Asks until ActorDead is raised. The next incarnation of the objects actor is in service after some 30 ms."""


async def fetch(objects: ObjectsRef, refs: Iterable[ObjectRef], *, fresh: bool = False) -> dict[ObjectRef, ApiObject]:
    """The existing objects of `refs`. Raises an ask's errors, and Refused when an object cannot be read."""
    found, failed = await fetch_each(objects, refs, fresh=fresh)
    if failed:
        raise Refused("NotRead", "; ".join(dict.fromkeys(failed.values())))
    return found


async def fetch_each(
    objects: ObjectsRef, refs: Iterable[ObjectRef], *, fresh: bool = False
) -> tuple[dict[ObjectRef, ApiObject], dict[ObjectRef, str]]:
    """The existing objects of `refs`, and messages for the unreadable ones. Raises an ask's errors."""
    found: dict[ObjectRef, ApiObject] = {}
    failed: dict[ObjectRef, str] = {}
    wanted = tuple(sorted(set(refs)))
    while wanted:
        answer = await _ask(objects, wanted, fresh=fresh)
        found.update((one.ref, one) for one in answer.found)
        failed.update((one.ref, one.message) for one in answer.failed)
        wanted = answer.more
    return found, failed


async def _ask(objects: ObjectsRef, refs: tuple[ObjectRef, ...], *, fresh: bool) -> Objects:
    request = GetObjects(refs=refs, fresh=fresh)
    for _ in range(ATTEMPTS - 1):
        try:
            return await objects.ask(request, ASK_S)
        except ActorDead:
            continue
    return await objects.ask(request, ASK_S)

"""Objects by reference, however large all of them are together."""

from __future__ import annotations

from collections.abc import Iterable

from actors._base import RemoteRef
from proto.errors import ActorDead
from proto.objects import ApiObject, GetObjects, ObjectRef, Objects

ASK_S = 10.0
ATTEMPTS = 3
"""A death of the objects actor costs some 30 ms: the next incarnation is asked instead."""


async def fetch(objects: RemoteRef, refs: Iterable[ObjectRef]) -> dict[ObjectRef, ApiObject]:
    """Those of `refs` that there are, by reference. Raises what an ask does, and Refused while they cannot be read."""
    found: dict[ObjectRef, ApiObject] = {}
    wanted = tuple(sorted(set(refs)))
    while wanted:
        answer = await _ask(objects, wanted)
        found.update((one.ref, one) for one in answer.found)
        wanted = answer.more
    return found


async def _ask(objects: RemoteRef, refs: tuple[ObjectRef, ...]) -> Objects:
    for _ in range(ATTEMPTS - 1):
        try:
            return await objects.ask(GetObjects(refs=refs), ASK_S)
        except ActorDead:
            continue
    return await objects.ask(GetObjects(refs=refs), ASK_S)

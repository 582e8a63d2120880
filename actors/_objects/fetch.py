"""Objects by reference, however large all of them are together."""

from __future__ import annotations

from collections.abc import Iterable

from actors._base import RemoteRef
from proto.objects import ApiObject, GetObjects, ObjectRef

ASK_S = 10.0


async def fetch(objects: RemoteRef, refs: Iterable[ObjectRef]) -> dict[ObjectRef, ApiObject]:
    """Those of `refs` that there are, by reference. Raises what an ask does, and Refused while they cannot be read."""
    found: dict[ObjectRef, ApiObject] = {}
    wanted = tuple(sorted(set(refs)))
    while wanted:
        answer = await objects.ask(GetObjects(refs=wanted), ASK_S)
        found.update((one.ref, one) for one in answer.found)
        wanted = answer.more
    return found

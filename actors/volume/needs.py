"""The objects that volumes are made of, and those that these name in turn."""

from __future__ import annotations

from collections.abc import Iterable

from actors._base import RemoteRef
from actors._objects.fetch import fetch
from actors.volume.book import PodVolumes
from actors.volume.plugins import Context
from actors.volume.policy import Wanted
from proto.errors import ActorError
from proto.objects import ApiObject, ObjectRef


async def needed(
    objects: RemoteRef, pod: PodVolumes, due: Iterable[Wanted], context: Context
) -> tuple[dict[ObjectRef, ApiObject], str]:
    """What there is of them, or why they cannot be had. Notes in `pod` what a volume's objects name."""
    found: dict[ObjectRef, ApiObject] = {}
    asked: set[ObjectRef] = set()
    due = tuple(due)
    refs = {ref for one in due for ref in one.refs}
    while refs:
        try:
            found |= await fetch(objects, refs)
        except ActorError as error:
            kinds = " and ".join(f'{ref.kind.lower()} "{ref.name}"' for ref in sorted(refs))
            return {}, f"failed to get {kinds}: {error}"
        asked |= refs
        refs = set()
        for one in due:
            if pod.pod is None:
                break
            further = frozenset(one.plugin.further_refs(pod.pod, one.volume, context.with_objects(found)))
            if further:
                pod.further[one.name] = further
            refs |= further - asked
    return found, ""

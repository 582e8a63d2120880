"""The strategy Watch, and watches of whole kinds.

Each referenced Secret or ConfigMap has a watch, because a node may watch only the objects of its pods. The watch is
open while pods refer to the object; an immutable object is read once. Source: pkg/kubelet/util/manager of Kubernetes
1.36.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from actors._base import Actor, Future, first_of
from actors._kube.errors import ApiError, Forbidden
from actors._kube.follow import Follower
from actors._kube.reflector import Listener, Position
from actors.objects.api.resources import api_object, collection_path, only, ref_of
from proto.pods.objects import ApiObject, ObjectRef

log = logging.getLogger(__name__)

SYNC_S = 1.0
"""Longest wait for the first reading, as in the kubelet."""
FIRST_RETRY_S = 0.05

Follow = Callable[[Position, Listener], Follower]
Changed = Callable[[tuple[ObjectRef, ...]], None]


class NotSynced(Exception):
    """The objects have not been read yet; the message is the kubelet's, with the cause."""


class Followed(Listener):
    """The objects of a list and watch, by reference."""

    def __init__(self, kind: str, position: Position, changed: Changed) -> None:
        self.objects: dict[ObjectRef, ApiObject] = {}
        self.error: ApiError | None = None
        """Error of the last try; None after a success."""
        self.synced = False
        self.follower: Follower | None = None
        self._kind, self._position, self._changed = kind, position, changed
        self._tried: Future[None] = Future()

    def begin(self, follow: Follow) -> None:
        """Start the list and watch."""
        self.follower = follow(self._position, self)
        self.follower.start()

    def end(self) -> None:
        """Stop the watch."""
        if self.follower is not None:
            self.follower.stop()
            self.follower = None

    async def read(self, actor: Actor, within_s: float = SYNC_S) -> dict[ObjectRef, ApiObject]:
        """The objects, after the first reading. Raises NotSynced."""
        if not self.synced and (self.error is None or isinstance(self.error, Forbidden)):
            pause = actor.sleep(within_s)
            await first_of(self._tried, pause)
            pause.cancel()
        if not self.synced:
            why = f": {self.error}" if self.error is not None else ""
            text = f"failed to sync {self._kind.lower()} cache: timed out waiting for the condition{why}"
            raise NotSynced(text)
        return self.objects

    def replaced(self, items: list[dict[str, Any]]) -> None:
        """See Listener."""
        before, self.objects = self.objects, dict(self._readable(items))
        first, self.synced, self.error = not self.synced, True, None
        refs = self.objects.keys() | before.keys()
        has = self.objects
        differing = refs if first else {ref for ref in refs if self._version(before, ref) != self._version(has, ref)}
        self._tried.set(None)
        if differing:
            self._changed(tuple(sorted(differing)))

    def changed(self, kind: str, item: dict[str, Any]) -> None:
        """See Listener."""
        self.error = None
        try:
            ref = ref_of(self._kind, item)
        except ValueError as error:
            self._unreadable(error)
            return
        before = self._version(self.objects, ref)
        if kind == "DELETED":
            self.objects.pop(ref, None)
        else:
            self.objects.update(self._readable([item]))
        if self._version(self.objects, ref) != before:
            self._changed((ref,))

    def failed(self, error: ApiError) -> None:
        """See Listener."""
        if str(error) != str(self.error):
            log.warning("cannot follow %s: %s; tried again", self._position.path, error)
        self.error = error
        if not isinstance(error, Forbidden):
            self._tried.set(None)

    def _readable(self, items: Iterable[dict[str, Any]]) -> Iterable[tuple[ObjectRef, ApiObject]]:
        for item in items:
            try:
                found = api_object(self._kind, item)
            except ValueError as error:
                self._unreadable(error)
                continue
            yield found.ref, found

    def _unreadable(self, error: ValueError) -> None:
        text = "cannot understand an object of %s: %s; this version of it is left out"
        log.error(text, self._position.path, type(error).__name__)

    def _version(self, objects: dict[ObjectRef, ApiObject], ref: ObjectRef) -> str | None:
        found = objects.get(ref)
        return found.resource_version if found is not None else None


class Single(Followed):
    """A watch of one object."""

    def __init__(self, ref: ObjectRef, changed: Changed) -> None:
        path = collection_path(ref.kind, ref.namespace)
        position = Position(path, only(ref), exact=True, first_retry_s=FIRST_RETRY_S)
        super().__init__(ref.kind, position, changed)
        self.ref = ref

    def replaced(self, items: list[dict[str, Any]]) -> None:
        """See Listener."""
        super().replaced(items)
        self._end_if_immutable()

    def changed(self, kind: str, item: dict[str, Any]) -> None:
        """See Listener."""
        super().changed(kind, item)
        self._end_if_immutable()

    def _end_if_immutable(self) -> None:
        if any(one.immutable for one in self.objects.values()):
            self.end()


class Watching:
    """The strategy Watch: a watch for each referenced object."""

    def __init__(self, actor: Actor, follow: Follow, changed: Changed) -> None:
        self._actor, self._follow, self._changed = actor, follow, changed
        self._singles: dict[ObjectRef, Single] = {}

    def use(self, refs: frozenset[ObjectRef]) -> None:
        """Set the referenced objects; opens and closes watches."""
        for ref in self._singles.keys() - refs:
            self._singles.pop(ref).end()
        for ref in sorted(refs - self._singles.keys()):
            self._singles[ref] = single = Single(ref, self._changed)
            single.begin(self._follow)

    def knows(self, ref: ObjectRef) -> bool:
        """True when the object is watched."""
        return ref in self._singles

    async def get(self, ref: ObjectRef) -> ApiObject | None:
        """The object; None when it does not exist. Raises NotSynced."""
        return (await self._singles[ref].read(self._actor)).get(ref)

    def objects(self) -> Iterable[ApiObject]:
        """All known objects."""
        return (one for single in self._singles.values() for one in single.objects.values())

    def errors(self) -> dict[ObjectRef, str]:
        """Errors of objects that cannot be read."""
        return {ref: str(single.error) for ref, single in self._singles.items() if single.error is not None}

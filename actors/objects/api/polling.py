"""The strategies Cache and Get: Secrets and ConfigMaps are read on request, unless a fresh copy is known.

Referenced objects are also read every syncFrequency, so that changes reach the files of running pods. Source:
cache_based_manager.go and simple managers of pkg/kubelet/secret and pkg/kubelet/configmap.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple

from actors._base import Actor
from actors._kube.errors import ApiError
from actors.objects.api.watching import Changed
from proto.common.until import Until
from proto.pods.objects import ApiObject, ObjectRef

log = logging.getLogger(__name__)

JITTER = 0.5
"""Spreads the requests of nodes that started together."""

Read = Callable[[ObjectRef], Coroutine[Any, None, ApiObject | None]]


class Known(NamedTuple):
    """An object, None when it did not exist; `at` is the start of its read in monotonic seconds."""

    object: ApiObject | None
    at: float


class Polling:
    """A cache with a time to live; the strategy Get has 0 seconds."""

    def __init__(
        self, actor: Actor, read: Read, changed: Changed, ttl_s: Callable[[], float], period_s: float
    ) -> None:  # fmt: skip
        self._actor, self._read, self._changed, self._ttl_s = actor, read, changed, ttl_s
        self._period_s = period_s
        self._used: dict[ObjectRef, float] = {}
        """Monotonic seconds at which a pod was the last to begin to refer to the object."""
        self._known: dict[ObjectRef, Known] = {}
        self._errors: dict[ObjectRef, str] = {}

    def start(self) -> None:
        """Read referenced objects periodically."""
        self._actor.every(Until(self._period_s, JITTER), self._read_due, "objects")

    def use(self, refs: frozenset[ObjectRef]) -> None:
        """Set the referenced objects; new ones are read from the server."""
        for ref in self._known.keys() - (refs & self._used.keys()):
            del self._known[ref]
        self._errors = {ref: error for ref, error in self._errors.items() if ref in refs}
        now = time.monotonic()
        self._used = {ref: self._used.get(ref, now) for ref in refs}

    def expire(self, refs: frozenset[ObjectRef]) -> None:
        """Let no later request have what was read before: a pod begins to refer to these objects.

        The old versions stay, because the pods that had them are told of changes.
        """
        now = time.monotonic()
        self._used.update((ref, now) for ref in refs & self._used.keys())

    def knows(self, ref: ObjectRef) -> bool:
        """True when the object is cached."""
        return ref in self._used

    async def get(self, ref: ObjectRef) -> ApiObject | None:
        """The object; None when it does not exist. Raises ApiError."""
        valid = self._valid(ref)
        old = valid.object if valid is not None else None
        if valid is not None and old is not None and self._is_fresh(valid):
            return old
        try:
            return await self._read_again(ref)
        except ApiError:
            if old is not None and self._ttl_s() > 0:
                return old  # an old object is better than an error, as in the kubelet
            raise

    def _valid(self, ref: ObjectRef) -> Known | None:
        known = self._known.get(ref)
        return known if known is not None and known.at > self._used[ref] else None

    def _is_fresh(self, known: Known) -> bool:
        return time.monotonic() - known.at < self._ttl_s()

    async def _read_again(self, ref: ObjectRef) -> ApiObject | None:
        began = time.monotonic()
        try:
            found = await self._read(ref)
        except ApiError as error:
            self._errors[ref] = str(error)
            raise
        self._errors.pop(ref, None)
        if ref in self._used:
            known = self._known.get(ref)
            if known is not None and known.at > began:
                return known.object  # a later request was answered first
            self._known[ref] = Known(found, began)
            if known is not None and _version(found) != _version(known.object):
                self._changed((ref,))
        return found

    async def _read_due(self) -> None:
        for ref in sorted(self._used):
            if ref not in self._known:
                continue
            valid = self._valid(ref)
            if valid is not None and self._is_fresh(valid):
                continue
            try:
                await self._read_again(ref)
            except ApiError as error:
                log.debug("cannot read %s %s/%s: %s", ref.kind, ref.namespace, ref.name, error)

    def objects(self) -> Iterable[ApiObject]:
        """All known objects."""
        return (known.object for known in self._known.values() if known.object is not None)

    def errors(self) -> dict[ObjectRef, str]:
        """Errors of objects that cannot be read."""
        return dict(self._errors)


def _version(found: ApiObject | None) -> str | None:
    return found.resource_version if found is not None else None

"""The objects actor: the API objects that pods refer to, one copy for the node.

The kubelet's secret, configMap, service and runtime class managers. Who uses what comes from pod_workers; who uses an
object hears of its changes. State: the source is read anew at every start, and pod_workers tells its pods anew; whoever
reads objects is told to read them again when this actor has started. Data never leaves it but in answers to GetObjects.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any, ClassVar

import msgspec

from actors._base import Actor, Future, handles
from actors.objects import policy
from actors.objects.directory import DirectorySource
from actors.objects.policy import Users
from actors.objects.source import NoSource, Source
from proto import pod_workers, volume
from proto.errors import Refused
from proto.objects import GetObjects, ListObjects, ObjectList, ObjectRef, Objects, SetPodObjects

log = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 8 * 1024 * 1024
"""Half of what a message may have."""
FIRST_READ_S = 3.0
"""How long a request waits for the source to be read once; less than any asker's deadline."""


class ObjectManager(Actor):
    """See the module."""

    name: ClassVar[str] = "objects"
    asks: ClassVar[frozenset[str]] = frozenset()
    blocking_threads = 2

    async def rebuild(self) -> None:
        """What survived of broken files; the rest is read once this actor serves."""
        self.users = Users()
        self.source: Source = self._make_source()
        self._first_read: Future[None] = Future()
        if self.source.seen:
            self._first_read.set(None)
        await self.source.recover()

    def _make_source(self) -> Source:
        path = self.settings.objects_dir
        if not path:
            return NoSource()
        return DirectorySource(
            self, path, self.settings.run_dir, self.settings.file_check_frequency_s, self._source_changed
        )

    def on_ready(self) -> None:
        """Read the source, and follow it."""
        self.source.start()

    def on_peer_started(self, name: str, incarnation: int) -> None:  # noqa: ARG002 - the base's signature
        """Whichever side is new: what the other one read may be old. Before the first reading nothing is known."""
        if self.source.seen:
            self._tell(name, (), full=True)

    def describe(self) -> dict[str, Any]:
        """Counts; no data."""
        kinds: dict[str, int] = {}
        for ref in self.source.objects:
            kinds[ref.kind] = kinds.get(ref.kind, 0) + 1
        return {
            "source": self.source.name,
            "seen": self.source.seen,
            "objects": kinds,
            "pods": len(self.users),
            "problems": len(self.source.problems()),
        }

    def _source_changed(self, refs: tuple[ObjectRef, ...] | None) -> None:
        if refs is None:
            self._first_read.set(None)
            for name in ("volume", "pod_workers"):
                self._tell(name, (), full=True)
            return
        log.info("%d objects came, changed or went", len(refs))
        used = self.users.used(refs)
        if used:
            for name in ("volume", "pod_workers"):
                self._tell(name, used, full=False)

    def _tell(self, name: str, refs: tuple[ObjectRef, ...], *, full: bool) -> None:
        if name == "volume":
            self.peer(name).tell(volume.ObjectsChanged(refs=refs, full=full))
        elif name == "pod_workers":
            self.peer(name).tell(pod_workers.ObjectsChanged(refs=refs, full=full))

    @handles(SetPodObjects)
    def on_set_pod_objects(self, message: SetPodObjects) -> None:
        """From pod_workers."""
        self.users.set(message.pods, full=message.full)

    @handles(GetObjects)
    def on_get_objects(self, request: GetObjects) -> Objects | Coroutine[Any, None, Objects]:
        """Answered at once when the source has been read."""
        return self._get(request) if self.source.seen else self._get_when_seen(request)

    async def _get_when_seen(self, request: GetObjects) -> Objects:
        either: Future[None] = Future()
        pause = self.sleep(FIRST_READ_S)
        for one in (self._first_read, pause):
            one.add_done_callback(lambda _: either.set(None))
        await either
        pause.cancel()
        if not self.source.seen:
            problems = "; ".join(one.problem for one in self.source.problems())
            raise Refused("SourceNotRead", problems or f"the objects in {self.source.name} have not been read yet")
        return self._get(request)

    def _get(self, request: GetObjects) -> Objects:
        found, missing = policy.select(self.source.objects, request.refs)
        fitting, more = policy.fitting(found, MAX_ANSWER_BYTES)
        return Objects(found=fitting, missing=tuple(missing), more=more)

    @handles(ListObjects)
    def on_list_objects(self, _: ListObjects) -> ObjectList:
        """For consoles."""
        rows = tuple(msgspec.structs.replace(row, used_by=self.users.count(row.ref)) for row in self.source.rows())
        return ObjectList(objects=rows, problems=self.source.problems(), source=self.source.name)


ACTOR = ObjectManager

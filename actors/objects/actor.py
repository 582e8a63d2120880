"""The objects actor: keeps one copy of the API objects that the node's pods refer to.

It is the kubelet's secret, configMap, service and runtime class managers. Objects come from a directory, from the API
server, or from both. The directory takes precedence, so that a static pod needs no server. pod_workers reports the
references of its pods. volume and pod_workers are told of changes. Nothing is kept across a restart: sources are
read again, and peers read objects again. Data and tokens leave this actor only in answers to requests.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from actors._base import Actor, Future, first_of, handles
from actors.objects import policy
from actors.objects.local.directory import DirectorySource
from actors.objects.policy import Answer, Users
from actors.objects.source import Source
from proto.pods import pod_workers, volume
from proto.pods.objects import (
    CsiNodeState,
    DeleteResourceSlices,
    FailedObject,
    GetCsiNodeState,
    GetObjects,
    GetPodCertificate,
    GetToken,
    ListObjects,
    ObjectList,
    ObjectProblem,
    ObjectRef,
    Objects,
    PodCertificate,
    SetClaimCapacity,
    SetClaimExpansion,
    SetCsiDrivers,
    SetPodObjects,
    Token,
)
from proto.wire.errors import Refused
from proto.wire.message import Done

if TYPE_CHECKING:
    from actors.objects.api.source import ApiSource

log = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 8 * 1024 * 1024
"""Half of the limit of a message."""
FIRST_READ_S = 3.0
"""Longest wait of a request for the first reading of the source; less than any caller's deadline."""


class ObjectManager(Actor):
    """Answers requests for objects, tokens and pod certificates, and reports changes."""

    name: ClassVar[str] = "objects"
    asks: ClassVar[frozenset[str]] = frozenset()
    blocking_threads = 2

    async def rebuild(self) -> None:
        """Restore the last good objects of broken files; everything else is read later."""
        self.users = Users()
        self.source: Source = self._make_source()
        self.api = self._make_api()
        self._first_read: Future[None] = Future()
        if self.source.seen:
            self._first_read.set(None)
        await self.source.recover()

    def _make_source(self) -> Source:
        path = self.settings.objects_dir
        if not path:
            return Source()
        return DirectorySource(
            self, path, self.settings.run_dir, self.settings.file_check_frequency_s, self._source_changed
        )

    def _make_api(self) -> ApiSource | None:
        if not self.settings.kubeconfig:
            return None
        from actors.objects.api.source import ApiSource  # noqa: PLC0415 - 9 MB that a node without a cluster does not need

        return ApiSource(self, self._api_changed)

    def on_ready(self) -> None:
        """Read and follow the sources."""
        self.source.start()
        if self.api is not None:
            self.api.start()

    def on_peer_started(self, name: str, incarnation: int) -> None:  # noqa: ARG002 - the base's signature
        """Have the peer read all objects again, once the directory has been read.

        Objects of the API server are reported one by one as they are read, since a full report would flood the server.
        """
        if self.source.seen and (self.source.name or self.api is None):
            self._tell(name, (), full=True)

    def on_tells_lost(self, name: str, incarnation: int) -> None:  # noqa: ARG002 - the base's signature
        """Have the peer read all objects again, also those of the API server: any of them may have changed."""
        if self.source.seen or self.api is not None:
            self._tell(name, (), full=True)

    def describe(self) -> dict[str, Any]:
        """Counts and the state of sources, without data."""
        kinds: dict[str, int] = {}
        for ref in self.source.objects:
            kinds[ref.kind] = kinds.get(ref.kind, 0) + 1
        return {
            "source": self.source.name,
            "seen": self.source.seen,
            "objects": kinds,
            "pods": len(self.users),
            "problems": len(self._problems()),
            **({"api": self.api.describe()} if self.api is not None else {}),
        }

    def measure(self) -> None:
        """Set the gauge of the pods' certificates."""
        if self.api is not None:
            self.api.certificates.measure()

    def _problems(self) -> tuple[ObjectProblem, ...]:
        return (*self.source.problems(), *(self.api.problems() if self.api is not None else ()))

    def _source_changed(self, refs: tuple[ObjectRef, ...] | None) -> None:
        self._use_api(frozenset())
        if refs is None:
            self._first_read.set(None)
            for name in ("volume", "pod_workers"):
                self._tell(name, (), full=True)
            return
        log.info("%d objects came, changed or went", len(refs))
        self._tell_users(refs)

    def _api_changed(self, refs: tuple[ObjectRef, ...]) -> None:
        self._tell_users(tuple(ref for ref in refs if ref not in self.source.objects))

    def _tell_users(self, refs: tuple[ObjectRef, ...]) -> None:
        used = (*self.users.used(refs), *(ref for ref in refs if ref.kind == "Node"))
        if used:
            for name in ("volume", "pod_workers"):
                self._tell(name, used, full=False)

    def _use_api(self, new: frozenset[ObjectRef]) -> None:
        # Objects of the directory need not be read from the server.
        if self.api is not None and self.source.seen:
            self.api.use(self.users.refs() - self.source.objects.keys(), new)

    def _tell(self, name: str, refs: tuple[ObjectRef, ...], *, full: bool) -> None:
        if name == "volume":
            self.peer(name).tell(volume.ObjectsChanged(refs=refs, full=full))
        elif name == "pod_workers":
            self.peer(name).tell(pod_workers.ObjectsChanged(refs=refs, full=full))

    @handles(SetPodObjects)
    def on_set_pod_objects(self, message: SetPodObjects) -> None:
        """Take the references of pods, from pod_workers."""
        self._use_api(self.users.set(message.pods, full=message.full))
        if self.api is not None:
            self.api.issuer.forget(one.pod_uid for one in message.pods if not one.refs)
            self.api.certificates.keep(self.users)

    @handles(GetObjects)
    def on_get_objects(self, request: GetObjects) -> Objects | Coroutine[Any, None, Objects]:
        """Answer with objects; at once when a directory is the only source and has been read."""
        if self.api is None and self.source.seen:
            return self._get(request, Answer())
        return self._get_in_time(request)

    async def _get_in_time(self, request: GetObjects) -> Objects:
        await self._seen()
        if self.api is None:
            return self._get(request, Answer())
        refs = [ref for ref in request.refs if ref not in self.source.objects]
        return self._get(request, await self.api.get(refs, fresh=request.fresh))

    async def _seen(self) -> None:
        # Waits for the first reading of the directory. Raises Refused after FIRST_READ_S.
        if self.source.seen:
            return
        pause = self.sleep(FIRST_READ_S)
        await first_of(self._first_read, pause)
        pause.cancel()
        if not self.source.seen:
            problems = "; ".join(one.problem for one in self.source.problems())
            raise Refused("SourceNotRead", problems or f"the objects in {self.source.name} have not been read yet")

    def _get(self, request: GetObjects, rest: Answer) -> Objects:
        found, missing = policy.select(self.source.objects, request.refs)
        objects = rest.found | {one.ref: one for one in found}
        fitting, more = policy.fitting(objects.values(), MAX_ANSWER_BYTES)
        missing = [ref for ref in missing if ref not in objects and ref not in rest.failed]
        failed = tuple(FailedObject(ref=ref, message=message) for ref, message in rest.failed.items())
        return Objects(found=fitting, missing=tuple(missing), failed=failed, more=more)

    @handles(GetToken)
    async def on_get_token(self, request: GetToken) -> Token:
        """Answer with a service account token. Refused TokenFailed, always so without an API server."""
        if self.api is None:
            problem = "cannot use TokenManager when kubelet is in standalone mode"
            raise Refused("TokenFailed", f"failed to fetch token: {problem}", retry=False)
        return await self.api.issuer.token(request)

    @handles(GetPodCertificate)
    async def on_get_pod_certificate(self, request: GetPodCertificate) -> PodCertificate:
        """Answer with a pod's certificate. Refused NotIssued and CertificateFailed, always so without an API server."""
        if self.api is None or not self.settings.pod_certificate_request:
            raise Refused("CertificateFailed", "there is no API server, or the gate is off", retry=False)
        if request.pod_uid not in self.users:  # it has been removed, or pod_workers is still to tell of it
            raise Refused("NotIssued", f"pod {request.namespace}/{request.pod_name} is not known; asking again")
        return await self.api.certificates.get(request)

    @handles(SetCsiDrivers)
    def on_set_csi_drivers(self, message: SetCsiDrivers) -> None:
        """Take the node's CSI drivers, from volume."""
        if self.api is not None:
            self.api.csi_nodes.set(message)

    @handles(GetCsiNodeState)
    def on_get_csi_node_state(self, _: GetCsiNodeState) -> CsiNodeState:
        """Answer if the CSINode has been written."""
        return CsiNodeState(written=self.api is not None and self.api.csi_nodes.was_written)

    @handles(SetClaimCapacity)
    async def on_set_claim_capacity(self, request: SetClaimCapacity) -> Done:
        """Write a claim's capacity, for volume. Refused on an API error."""
        if self.api is not None:
            await self.api.set_claim_capacity(request)
        return Done()

    @handles(SetClaimExpansion)
    async def on_set_claim_expansion(self, request: SetClaimExpansion) -> Done:
        """Write the progress of a claim's expansion, for volume. Refused on an API error."""
        if self.api is not None:
            await self.api.set_claim_expansion(request)
        return Done()

    @handles(DeleteResourceSlices)
    async def on_delete_resource_slices(self, request: DeleteResourceSlices) -> Done:
        """Delete ResourceSlices of this node, for resources. Refused on an API error."""
        if self.api is not None:
            await self.api.delete_slices(request)
        return Done()

    @handles(ListObjects)
    def on_list_objects(self, _: ListObjects) -> ObjectList:
        """List all objects without data, for consoles."""
        found = (*self.source.rows(), *(self.api.rows() if self.api is not None else ()))
        rows = tuple(msgspec.structs.replace(row, used_by=self.users.count(row.ref)) for row in found)
        source = " and ".join(one.name for one in (self.source, self.api) if one is not None and one.name)
        return ObjectList(objects=rows, problems=self._problems(), source=source)


ACTOR = ObjectManager

"""The API server as a source of objects, writes of claims, and the deletion of ResourceSlices.

Secrets and ConfigMaps are read by configMapAndSecretChangeDetectionStrategy. Services, CSIDrivers, RuntimeClasses and
ClusterTrustBundles are watched as whole kinds from their first use. This node's Node is always watched. Claims, volumes
and attachments are read at each request, because a node may not watch them. Runs in the actor's mailbox thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from actors._base import Actor, gather
from actors._kube.client import KubeClient, connect_node
from actors._kube.connection.stream import Streams
from actors._kube.errors import ApiError, Conflict, NotFound
from actors._kube.follow import Follower
from actors._kube.reflector import Listener, Position
from actors.objects import claims
from actors.objects.api import slices, trust_bundles
from actors.objects.api.csi_nodes import CsiNodes
from actors.objects.api.issuing import Issuer
from actors.objects.api.pod_certificates import PodCertificates
from actors.objects.api.polling import Polling
from actors.objects.api.resources import (
    COLLECTIONS,
    DATA_KINDS,
    RESOURCES,
    api_object,
    collection_path,
    object_path,
    only,
)
from actors.objects.api.retry_forbidden import retry_forbidden
from actors.objects.api.watching import Changed, Followed, NotSynced, Watching
from actors.objects.policy import Answer
from proto.common import rfc3339
from proto.pods.objects import (
    ApiObject,
    DeleteResourceSlices,
    ObjectProblem,
    ObjectRef,
    ObjectRow,
    SetClaimCapacity,
    SetClaimExpansion,
)
from proto.wire.errors import Refused

GET_S = 6.0
"""Deadline of one call, shorter than the deadline of the request behind it."""
THREADS = 4
CONFLICTS = 5
FOLLOWED_S = 3.0
"""Longest wait for the first reading of a whole kind."""
DEFAULT_TTL_S = 60.0
TTL_ANNOTATION = "node.alpha.kubernetes.io/ttl"
"""Seconds that the strategy Cache uses; the cluster's controller raises it with the number of nodes."""


class ApiSource:
    """Objects of the API server. `changed` gets the references of changed objects of watched or cached kinds."""

    name = "the API server"

    def __init__(self, actor: Actor, changed: Changed) -> None:
        settings = actor.settings
        self.client: KubeClient = connect_node(
            actor, settings, qps=settings.kube_api_qps, burst=settings.kube_api_burst, threads=THREADS
        )  # fmt: skip
        self._actor, self._changed = actor, changed
        self._streams = Streams(actor.bus)
        self._collections: dict[str, Followed] = {}
        self._own = ObjectRef(kind="Node", name=settings.node_name)
        self.node = Followed("Node", Position(collection_path("Node"), only(self._own), exact=True), self._node_changed)
        self._strategy = self._make_strategy()
        self.issuer = Issuer(actor, self.client)
        self.certificates = PodCertificates(actor, self.client, self._follow, self._node_document)
        self.csi_nodes = CsiNodes(actor, self.client, self._node_document)

    def _make_strategy(self) -> Watching | Polling:
        settings = self._actor.settings
        match settings.config_map_and_secret_change_detection_strategy:
            case "Watch":
                return Watching(self._actor, self._follow, self._changed)
            case "Cache":
                return Polling(self._actor, self._read, self._changed, self._ttl_s, settings.sync_frequency_s)
        return Polling(self._actor, self._read, self._changed, lambda: 0.0, settings.sync_frequency_s)

    def start(self) -> None:
        """Watch this node's Node, and follow referenced objects."""
        self.node.begin(self._follow)
        if isinstance(self._strategy, Polling):
            self._strategy.start()

    def use(self, refs: Iterable[ObjectRef], new: frozenset[ObjectRef]) -> None:
        """Set the references of all pods; a pod did not have the `new` ones before."""
        self._strategy.use(frozenset(ref for ref in refs if ref.kind in DATA_KINDS and ref.name))
        if isinstance(self._strategy, Polling):
            self._strategy.expire(new)

    async def get(self, refs: Iterable[ObjectRef], *, fresh: bool) -> Answer:
        """Read objects; `fresh` skips caches. Errors are in the answer."""
        answer = Answer()
        await gather(*(self._actor.spawn(self._answer(ref, answer, fresh=fresh), "object") for ref in refs))
        return answer

    async def _answer(self, ref: ObjectRef, answer: Answer, *, fresh: bool) -> None:
        if ref.kind == trust_bundles.KIND and not self._actor.settings.cluster_trust_bundle_projection:
            return  # the caller has the kubelet's message for a missing bundle
        try:
            found = await self._named(ref, fresh=fresh) if ref.name else await self._every(ref)
        except (ApiError, NotSynced) as error:
            answer.failed[ref] = str(error)
        else:
            answer.found.update((one.ref, one) for one in found)

    async def _named(self, ref: ObjectRef, *, fresh: bool) -> tuple[ApiObject, ...]:
        if ref.kind not in RESOURCES:
            return ()
        if fresh:
            found = await self._read(ref)
        elif ref.kind in COLLECTIONS:
            found = (await self._collection(ref.kind)).get(ref)
        elif ref == self._own:
            found = (await self.node.read(self._actor, FOLLOWED_S)).get(ref)
        elif ref.kind in DATA_KINDS and self._strategy.knows(ref):
            found = await self._strategy.get(ref)
        else:
            found = await self._read(ref)
        return (found,) if found is not None else ()

    async def _every(self, ref: ObjectRef) -> tuple[ApiObject, ...]:
        # A node may list whole kinds only of COLLECTIONS.
        if ref.kind not in COLLECTIONS:
            return ()
        found = await self._collection(ref.kind)
        return tuple(one for one in found.values() if one.ref.namespace == ref.namespace)

    async def _collection(self, kind: str) -> dict[ObjectRef, ApiObject]:
        path = collection_path(kind)
        if kind == trust_bundles.KIND and kind not in self._collections:
            path = await trust_bundles.path(self.client, GET_S)
        followed = self._collections.get(kind)
        if followed is None:
            followed = self._collections[kind] = Followed(kind, Position(path), self._changed)
            followed.begin(self._follow)
        return await followed.read(self._actor, FOLLOWED_S)

    async def _read(self, ref: ObjectRef) -> ApiObject | None:
        try:
            path = object_path(ref)
            item = await retry_forbidden(self._actor, lambda: self.client.request("GET", path, timeout_s=GET_S))
            return api_object(ref.kind, item)
        except NotFound:
            return None
        except ValueError as error:
            text = f"cannot understand {ref.kind} {ref.namespace}/{ref.name}: {type(error).__name__}"
            raise ApiError(0, "Invalid", text) from None  # the cause may hold a value

    async def set_claim_capacity(self, request: SetClaimCapacity) -> None:
        """Write the new capacity of a claim. Raises Refused NotWritten."""
        await self._write_claim(request, lambda claim: claims.grown(claim, request.capacity))

    async def set_claim_expansion(self, request: SetClaimExpansion) -> None:
        """Write the progress of a claim's expansion. Raises Refused NotWritten."""
        now = rfc3339.now()
        await self._write_claim(request, lambda claim: claims.expansion(claim, request.phase, request.message, now))

    async def _write_claim(
        self,
        request: SetClaimCapacity | SetClaimExpansion,
        change: Callable[[dict[str, Any]], dict[str, Any] | None],
    ) -> None:
        path = object_path(ObjectRef(kind="PersistentVolumeClaim", namespace=request.namespace, name=request.name))
        try:
            for _ in range(CONFLICTS):
                claim = change(await self.client.request("GET", path, timeout_s=GET_S, shape=claims.Claim))
                if claim is None:
                    return
                with suppress(Conflict):
                    await self.client.request("PUT", f"{path}/status", obj=claim, timeout_s=GET_S)
                    return
        except ApiError as error:
            raise Refused("NotWritten", str(error)) from None
        raise Refused(
            "NotWritten", f"claim {request.namespace}/{request.name} was changed at each of {CONFLICTS} tries"
        )

    async def delete_slices(self, request: DeleteResourceSlices) -> None:
        """Delete ResourceSlices of this node. Raises Refused NotDeleted."""
        await slices.delete(self.client, self._own.name, request, GET_S)

    def _follow(self, position: Position, listener: Listener) -> Follower:
        return Follower(self._actor, self.client, self._streams, position, listener)

    def _node_document(self) -> dict[str, Any] | None:
        own = self.node.objects.get(self._own)
        return own.document if own is not None else None

    def _node_changed(self, refs: tuple[ObjectRef, ...]) -> None:
        self._changed(refs)
        self.csi_nodes.write_changes()

    def _ttl_s(self) -> float:
        node = self._node_document()
        text = (node["metadata"].get("annotations") or {}).get(TTL_ANNOTATION, "") if node is not None else ""
        return float(text) if text.isdecimal() else DEFAULT_TTL_S

    # For people

    def describe(self) -> dict[str, Any]:
        """Counts and states, without data."""
        return {
            "strategy": self._actor.settings.config_map_and_secret_change_detection_strategy,
            "objects": sum(1 for _ in self._strategy.objects()),
            "watches": len(self._streams),
            "kinds": {kind: len(one.objects) for kind, one in self._collections.items()},
            "node": self.node.synced,
            "tokens": len(self.issuer),
            "certificates": len(self.certificates),
            "csi": self.csi_nodes.state,
        }

    def rows(self) -> list[ObjectRow]:
        """Secrets and ConfigMaps, without data."""
        return [
            ObjectRow(
                ref=one.ref,
                file="",
                keys=tuple(sorted(one.data)),
                immutable=one.immutable,
                secret_type=one.secret_type,
            )
            for one in sorted(self._strategy.objects(), key=lambda one: one.ref)
        ]

    def problems(self) -> list[ObjectProblem]:
        """Errors of objects and kinds that cannot be read."""
        problems = {f"{kind}s": str(one.error) for kind, one in self._collections.items() if one.error is not None}
        if self.node.error is not None:
            problems[f"Node {self._own.name}"] = str(self.node.error)
        if self.csi_nodes.error:
            problems[f"CSINode {self._own.name}"] = self.csi_nodes.error
        for ref, error in self._strategy.errors().items():
            problems[f"{ref.kind} {ref.namespace}/{ref.name}"] = error
        return [ObjectProblem(file=what, problem=error) for what, error in sorted(problems.items())]

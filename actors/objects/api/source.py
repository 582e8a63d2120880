"""What the API server has of the objects that pods refer to, for the objects actor.

Secrets and ConfigMaps by configMapAndSecretChangeDetectionStrategy; Services, CSIDrivers and RuntimeClasses as whole
kinds, followed from the first time one is asked for; this node's own Node always; claims, volumes and attachments one
by one and anew each time, because a node may not watch them. Everything runs in the actor's mailbox thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from actors._base import Actor, gather
from actors._kube.client import KubeClient, connect
from actors._kube.connection.stream import Streams
from actors._kube.errors import ApiError, Conflict, NotFound
from actors._kube.follow import Follower
from actors._kube.reflector import Listener, Position
from actors.objects import claims
from actors.objects.api import trust_bundles
from actors.objects.api.csi_nodes import CsiNodes
from actors.objects.api.issuing import Issuer
from actors.objects.api.patience import patiently
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
from actors.objects.api.watching import Changed, Followed, NotSynced, Watching
from actors.objects.policy import Answer
from proto.pods.objects import ApiObject, ObjectProblem, ObjectRef, ObjectRow, SetClaimCapacity, SetClaimExpansion
from proto.wire.errors import Refused

GET_S = 6.0
"""Of one call, so that whoever asked is answered before its own deadline."""
THREADS = 4
CONFLICTS = 5
FOLLOWED_S = 3.0
"""How long one waits for the first reading of a whole kind."""
DEFAULT_TTL_S = 60.0
TTL_ANNOTATION = "node.alpha.kubernetes.io/ttl"
"""Seconds: what the cluster's controller wants Cache to use, the more nodes there are the more."""


class ApiSource:
    """See the module. `changed` is called with what came, changed or went; not of the kinds that are only read."""

    name = "the API server"

    def __init__(self, actor: Actor, changed: Changed) -> None:
        settings = actor.settings
        self.client: KubeClient = connect(
            actor, settings.kubeconfig, qps=settings.kube_api_qps, burst=settings.kube_api_burst, threads=THREADS
        )  # fmt: skip
        self._actor, self._changed = actor, changed
        self._streams = Streams(actor.bus)
        self._collections: dict[str, Followed] = {}
        self._own = ObjectRef(kind="Node", name=settings.node_name)
        self.node = Followed("Node", Position(collection_path("Node"), only(self._own), exact=True), self._node_changed)
        self._strategy = self._make_strategy()
        self.issuer = Issuer(actor, self.client)
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
        """Follow the own Node, and what is referred to."""
        self.node.begin(self._follow)
        if isinstance(self._strategy, Polling):
            self._strategy.start()

    def use(self, refs: Iterable[ObjectRef]) -> None:
        """These are what pods refer to now."""
        self._strategy.use(frozenset(ref for ref in refs if ref.kind in DATA_KINDS and ref.name))

    async def get(self, refs: Iterable[ObjectRef], *, fresh: bool) -> Answer:
        """Each as it is now. Never raises."""
        answer = Answer()
        await gather(*(self._actor.spawn(self._answer(ref, answer, fresh=fresh), "object") for ref in refs))
        return answer

    async def _answer(self, ref: ObjectRef, answer: Answer, *, fresh: bool) -> None:
        if ref.kind == trust_bundles.KIND and not self._actor.settings.cluster_trust_bundle_projection:
            return  # whoever asks says so in the kubelet's words
        try:
            found = await self._named(ref, fresh=fresh) if ref.name else await self._every(ref)
        except (ApiError, NotSynced) as error:
            answer.failed[ref] = str(error)
        else:
            answer.found.update((one.ref, one) for one in found)

    async def _named(self, ref: ObjectRef, *, fresh: bool) -> tuple[ApiObject, ...]:
        """The object, or none."""
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
        """All of a kind and namespace; none of a kind that a node only reads one by one."""
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
        """From the server. Raises ApiError."""
        try:
            path = object_path(ref)
            item = await patiently(self._actor, lambda: self.client.request("GET", path, timeout_s=GET_S))
            return api_object(ref.kind, item)
        except NotFound:
            return None
        except (ValueError, KeyError, TypeError) as error:
            text = f"cannot understand {ref.kind} {ref.namespace}/{ref.name}: {type(error).__name__}"
            raise ApiError(0, "Invalid", text) from None  # the cause may hold a value

    async def set_claim_capacity(self, wish: SetClaimCapacity) -> None:
        """A claim's volume has been grown. Raises Refused."""
        await self._write_claim(wish, lambda claim: claims.grown(claim, wish.capacity))

    async def set_claim_expansion(self, wish: SetClaimExpansion) -> None:
        """How the growth of a claim's volume goes. Raises Refused."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        await self._write_claim(wish, lambda claim: claims.expansion(claim, wish.phase, wish.message, now))

    async def _write_claim(
        self,
        wish: SetClaimCapacity | SetClaimExpansion,
        change: Callable[[dict[str, Any]], dict[str, Any] | None],
    ) -> None:
        path = object_path(ObjectRef(kind="PersistentVolumeClaim", namespace=wish.namespace, name=wish.name))
        try:
            for _ in range(CONFLICTS):
                claim = change(await self.client.request("GET", path, timeout_s=GET_S))
                if claim is None:
                    return
                with suppress(Conflict):
                    await self.client.request("PUT", f"{path}/status", obj=claim, timeout_s=GET_S)
                    return
        except ApiError as error:
            raise Refused("NotWritten", str(error)) from None
        raise Refused("NotWritten", f"claim {wish.namespace}/{wish.name} changes all the time")

    def _follow(self, position: Position, listener: Listener) -> Follower:
        return Follower(self._actor, self.client, self._streams, position, listener)

    def _node_document(self) -> dict[str, Any] | None:
        own = self.node.objects.get(self._own)
        return own.document if own is not None else None

    def _node_changed(self, refs: tuple[ObjectRef, ...]) -> None:
        self._changed(refs)
        self.csi_nodes.look()

    def _ttl_s(self) -> float:
        node = self._node_document()
        text = (node["metadata"].get("annotations") or {}).get(TTL_ANNOTATION, "") if node is not None else ""
        return float(text) if text.isdecimal() else DEFAULT_TTL_S

    # For people

    def describe(self) -> dict[str, Any]:
        """Counts; no data."""
        return {
            "strategy": self._actor.settings.config_map_and_secret_change_detection_strategy,
            "objects": sum(1 for _ in self._strategy.objects()),
            "watches": len(self._streams),
            "kinds": {kind: len(one.objects) for kind, one in self._collections.items()},
            "node": self.node.synced,
            "tokens": len(self.issuer),
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
        """What cannot be read, and why."""
        problems = {f"{kind}s": str(one.error) for kind, one in self._collections.items() if one.error is not None}
        if self.node.error is not None:
            problems[f"Node {self._own.name}"] = str(self.node.error)
        if self.csi_nodes.error:
            problems[f"CSINode {self._own.name}"] = self.csi_nodes.error
        for ref, error in self._strategy.errors().items():
            problems[f"{ref.kind} {ref.namespace}/{ref.name}"] = error
        return [ObjectProblem(file=what, problem=error) for what, error in sorted(problems.items())]

"""The calls of the API server that status makes: one for each duty."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from actors._kube.client import connect
from actors._kube.errors import Conflict, NotFound
from actors.status import own_part as parts
from actors.status.duties import CreateMirror, DeleteObject, WriteStatus, mirror_object
from actors.status.turns import WIDTH
from proto.v1 import Pod

if TYPE_CHECKING:
    from actors.status.actor import Status

log = logging.getLogger(__name__)


class Calls:
    """Every call raises ApiError. Each says with a UID which object it means, so none does harm to a namesake."""

    def __init__(self, actor: Status) -> None:
        settings = actor.settings
        self._node_name = settings.node_name
        # No second tries in there: while the server wants to be left alone, what matters most is to go first after.
        self._client = connect(
            actor, settings.kubeconfig, qps=settings.kube_api_qps, burst=settings.kube_api_burst, threads=WIDTH, tries=1
        )

    def rebuild(self) -> None:
        """Go on with new connections."""
        self._client.session.rebuild()

    async def write(self, duty: WriteStatus) -> Pod | None:
        """The pod as it is now; None when that cannot be read."""
        there = duty.seen
        patch = parts.patch_of(there.uid, duty.own, there.status)
        return _read(await self._client.patch(f"{_path(there.name)}/status", patch))

    async def delete(self, duty: DeleteObject) -> Pod | None:
        """None: the object is gone. Else what others' finalizers keep of it."""
        there = duty.seen
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": there.uid},
        }
        try:
            answer = await self._client.delete(_path(there.name), options)
        except (NotFound, Conflict) as error:
            log.debug("%s (%s) is gone already: %s", there.name, there.uid, error)
            return None
        return _read(answer) if (answer.get("metadata") or {}).get("finalizers") else None

    async def create_mirror(self, duty: CreateMirror) -> Pod | None:
        """The mirror pod as stored."""
        name = self._node_name
        node = (await self._client.get(f"/api/v1/nodes/{name}"))["metadata"]
        if node.get("deletionTimestamp"):
            raise NotFound(404, "NotFound", f"the Node {name} is being deleted")
        body = mirror_object(duty.pod, name, node["uid"])
        return _read(await self._client.create(f"/api/v1/namespaces/{duty.pod.metadata.namespace}/pods", body))


def _path(name: str) -> str:
    namespace, _, pod = name.partition("/")
    return f"/api/v1/namespaces/{namespace}/pods/{pod}"


def _read(answer: dict[str, Any]) -> Pod | None:
    try:
        return msgspec.convert({"metadata": answer.get("metadata"), "status": answer.get("status") or {}}, Pod)
    except msgspec.ValidationError as error:
        log.warning("cannot read the pod that the API server answered with: %s", error)
        return None

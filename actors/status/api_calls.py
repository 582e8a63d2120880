"""The API server calls of status: one for each sync action."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from actors._base import Actor
from actors._kube.client import connect_node
from actors._kube.errors import Conflict, NotFound
from actors.status import status_patch as patches
from actors.status.sync_actions import CreateMirror, DeleteObject, WriteStatus, mirror_object
from actors.status.write_queue import MAX_CALLS
from proto.v1 import Pod

log = logging.getLogger(__name__)


class ApiCalls:
    """Every call raises ApiError. Each names the object's UID, so that none touches another pod of the same name."""

    def __init__(self, actor: Actor) -> None:
        settings = actor.settings
        self._node_name = settings.node_name
        # No retries in the client: after a throttled call the write queue decides again which pod goes first.
        self._client = connect_node(
            actor,
            settings,
            qps=settings.kube_api_qps,
            burst=settings.kube_api_burst,
            threads=MAX_CALLS,
            tries=1,
        )

    def rebuild(self) -> None:
        """Replace the connections."""
        self._client.session.close_connections()

    async def write(self, action: WriteStatus) -> Pod | None:
        """Patch the status. Returns the pod as stored; None when the answer cannot be read."""
        there = action.target
        patch = patches.patch_of(there.uid, action.status, there.status)
        return _read(await self._client.patch(f"{_path(there.name)}/status", patch))

    async def delete(self, action: DeleteObject) -> Pod | None:
        """Delete the object. Returns None when it is gone, else the object that finalizers still keep."""
        there = action.target
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

    async def create_mirror(self, action: CreateMirror) -> Pod | None:
        """Create a mirror pod. Returns it as stored. Raises NotFound while its Node is missing or being deleted."""
        name = self._node_name
        node = (await self._client.get(f"/api/v1/nodes/{name}"))["metadata"]
        if node.get("deletionTimestamp"):
            raise NotFound(404, "NotFound", f"the Node {name} is being deleted")
        body = mirror_object(action.pod, name, node.get("uid") or "")
        return _read(await self._client.create(f"/api/v1/namespaces/{action.pod.metadata.namespace}/pods", body))


def _path(name: str) -> str:
    namespace, _, pod = name.partition("/")
    return f"/api/v1/namespaces/{namespace}/pods/{pod}"


def _read(answer: dict[str, Any]) -> Pod | None:
    try:
        return msgspec.convert({"metadata": answer.get("metadata"), "status": answer.get("status") or {}}, Pod)
    except msgspec.ValidationError as error:
        log.warning("cannot read the pod that the API server answered with: %s", error)
        return None

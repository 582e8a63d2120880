"""Checks that volumes are attached to this node before they are mounted.

The attach/detach controller takes a volume out of the Node's volumesAttached and detaches it, unless the Node reports
it as in use. So Node and VolumeAttachment are read after the report: what was read before may have changed since. A
mounted volume needs no check, because it stays in the report. Runs in the actor's mailbox thread.
Source: GenerateVerifyControllerAttachedVolumeFunc of Kubernetes 1.36, pkg/controller/volume/attachdetach.
"""

from __future__ import annotations

from collections.abc import Mapping

from actors._base import Actor
from actors._objects.fetch import fetch_each
from actors._objects.peer import objects_of
from actors.volume.csi import policy as csi
from actors.volume.drivers.in_use import InUse, unique_name
from proto.pods.objects import ApiObject, ObjectRef
from proto.wire.errors import ActorError

NOT_IN_USE = "Volume has not been added to the list of VolumesInUse in the node's volume status"
NOT_ATTACHED = "Volume not attached according to node status"
ANNOUNCE_S = 3.0

Objects = Mapping[ObjectRef, ApiObject]
Attachable = Mapping[str, tuple[str, str]]
"""(driver, handle) of volumes that a controller attaches, by name in the pod."""


class Attachments:
    """Reports volumes as in use, and then reads whether they are attached."""

    def __init__(self, actor: Actor, in_use: InUse) -> None:
        self._actor, self._in_use = actor, in_use
        self._node = ObjectRef(kind="Node", name=actor.settings.node_name)

    async def check(self, uid: str, wanted: Attachable, objects: Objects) -> tuple[Objects, dict[str, str]]:
        """(`objects` with the attachments as they are now, why each volume may not be mounted now, by name).

        The reason is empty for a volume that may be. Waits a moment for the report. All volumes take one request. A
        volume whose attachment says that it is not attached is not read again: no step can be made for it.
        """
        if not wanted or not self._actor.settings.kubeconfig:
            return objects, dict.fromkeys(wanted, "")
        for one in wanted.values():
            self._in_use.want(uid, *one)
        await self._in_use.announced(uid, ANNOUNCE_S)
        problems = {name: "" if self._in_use.want(uid, *one) else NOT_IN_USE for name, one in wanted.items()}
        refs = {name: self._ref(*one) for name, one in wanted.items() if not problems[name]}
        refs = {name: ref for name, ref in refs.items() if _is_attached(objects.get(ref))}
        if not refs:
            return objects, problems
        asked = {self._node, *refs.values()}
        try:
            found, failed = await fetch_each(objects_of(self._actor), asked, fresh=True)
        except ActorError as error:
            found, failed = {}, dict.fromkeys(asked, str(error))
        node = found.pop(self._node, None)
        names = _volumes_attached(node)
        missing = failed.get(self._node, "" if node is not None else f'nodes "{self._node.name}" not found')
        for name, ref in refs.items():
            if ref in failed:
                problems[name] = failed[ref]
            elif not _is_of_controller(found.get(ref)):
                continue
            elif missing:
                problems[name] = f"VerifyControllerAttachedVolume failed fetching node from API server: {missing}"
            elif unique_name(*wanted[name]) not in names:
                problems[name] = NOT_ATTACHED
        others = {ref: one for ref, one in objects.items() if ref not in asked}
        return others | found, problems

    def _ref(self, driver: str, handle: str) -> ObjectRef:
        return ObjectRef(kind="VolumeAttachment", name=csi.attachment_name(handle, driver, self._node.name))


def _is_attached(attachment: ApiObject | None) -> bool:
    return attachment is not None and bool((attachment.document.get("status") or {}).get("attached"))


def _is_of_controller(attachment: ApiObject | None) -> bool:
    """False for one of the objects directory, which has no UID: no controller attaches its volume."""
    return attachment is not None and bool(attachment.document["metadata"].get("uid"))


def _volumes_attached(node: ApiObject | None) -> set[str]:
    status = node.document.get("status") or {} if node is not None else {}
    return {one["name"] for one in status.get("volumesAttached") or ()}

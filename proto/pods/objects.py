"""Messages the objects actor receives: from volume, image_pull, pod_workers, consoles; and what its answers carry.

Upwards it tells `ObjectsChanged`, which is in the receivers' modules (`volume.py`, `pod_workers.py`).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from proto.wire.message import Done, Message, Record, Request


class ObjectRef(Record, frozen=True, kw_only=True, order=True):
    """One API object. Hashable and ordered: a key of dicts and sets."""

    kind: str
    """Secret, ConfigMap, Service, RuntimeClass, PriorityClass, PersistentVolume, PersistentVolumeClaim, CSIDriver,
    VolumeAttachment; with an API server also Node, this one's own."""
    namespace: str = ""
    """Empty for kinds that are in no namespace."""
    name: str = ""
    """Empty where a request may mean every object of the kind and namespace."""


class ApiObject(Record, frozen=True, kw_only=True):
    """One object as it is now. Its repr has no data: a Secret must not reach a log by accident."""

    ref: ObjectRef
    resource_version: str
    """Another one for another content, the same for the same; compare it for equality only."""
    data: dict[str, bytes] = {}
    """ConfigMap: data (UTF-8) and binaryData. Secret: data and stringData, decoded."""
    binary_keys: tuple[str, ...] = ()
    """Keys of a ConfigMap's binaryData: files of volumes, never variables."""
    secret_type: str = ""
    """A Secret's `type`."""
    uid: str = ""
    """A Secret's; empty for one that nobody has given one."""
    immutable: bool = False
    document: dict[str, Any] = {}
    """Kinds without data: the whole object in its JSON form, for `proto.v1.from_dict`."""

    def __repr__(self) -> str:
        return f"ApiObject({self.ref.kind} {self.ref.namespace}/{self.ref.name}, {len(self.data)} keys)"


class FailedObject(Record, frozen=True, kw_only=True):
    """An object of which nobody can say now whether it is there."""

    ref: ObjectRef
    message: str
    """In the kubelet's words."""


class Objects(Message, frozen=True, kw_only=True):
    """The objects there are, in no order, and what was asked for and is not there."""

    found: tuple[ApiObject, ...] = ()
    missing: tuple[ObjectRef, ...] = ()
    """A ref without name is never missing: there may be no object of its kind."""
    failed: tuple[FailedObject, ...] = ()
    """Forbidden, or the API server cannot be asked: retry."""
    more: tuple[ObjectRef, ...] = ()
    """Left out because the answer would be too large: ask for these next (`actors._objects.fetch` does)."""


class GetObjects(Request[Objects], frozen=True, kw_only=True):
    """Objects as they are now, by reference; a ref without name asks for every object of that kind and namespace.

    Answered once the source has been read, so that an object is not called missing that only was not read yet.
    Refused: `SourceNotRead` (retry) while that is not possible. A repeat is harmless.
    """

    refs: tuple[ObjectRef, ...]
    fresh: bool = False
    """Ask the API server for those that are named, whatever is known of them; without one this means nothing."""


class Token(Message, frozen=True, kw_only=True):
    """A service account's token. Times are Unix seconds. Its repr does not have it."""

    token: str
    expires: float
    refresh: float
    """Ask again then: it is renewed by that time."""

    def __repr__(self) -> str:
        return f"Token(expires={self.expires:.0f})"


class GetToken(Request[Token], frozen=True, kw_only=True):
    """A token for a pod, bound to it: it is worth nothing once the pod is gone. Hashable: a key of dicts.

    The one there is while it is good, else a new one. Refused: `TokenFailed` (retry), in the kubelet's words. A repeat
    is harmless.
    """

    namespace: str
    service_account: str
    pod_name: str
    pod_uid: str
    audiences: tuple[str, ...] = ()
    """Empty: the API server's own."""
    expiration_s: int | None = None
    """None: as long as the API server likes."""


class CsiDriver(Record, frozen=True, kw_only=True):
    """A driver that has registered with the node."""

    name: str
    node_id: str
    """What the driver calls the node."""
    max_volumes: int = 0
    """How many of its volumes the node can have; 0: it does not say."""
    topology: dict[str, str] = {}


class SetCsiDrivers(Message, frozen=True, kw_only=True):
    """From volume: the drivers there are, for the CSINode. `complete`: there is no plugin that has not said yet who it
    is. Idempotent."""

    drivers: tuple[CsiDriver, ...]
    complete: bool


class SetClaimCapacity(Request[Done], frozen=True, kw_only=True):
    """From volume: the claim's volume has been grown to this on the node, which its status is to say.

    Refused: `NotWritten` (retry). Idempotent.
    """

    namespace: str
    name: str
    capacity: str
    """As the PersistentVolume has it."""


class SetClaimExpansion(Request[Done], frozen=True, kw_only=True):
    """From volume: how the growth of the claim's volume on the node goes, which its status is to say (KEP-1790).

    Refused: `NotWritten` (retry). Idempotent.
    """

    namespace: str
    name: str
    phase: Literal["NodeResizeInProgress", "NodeResizeError", "NodeResizeInfeasible"]
    """It begins; the driver refused it, and is asked again; or will never do it, and is not."""
    message: str = ""


class PodObjects(Record, frozen=True, kw_only=True):
    """What one pod refers to, with its volumes, variables, pull secrets and runtime class."""

    pod_uid: str
    refs: tuple[ObjectRef, ...]


class SetPodObjects(Message, frozen=True, kw_only=True):
    """From pod_workers: who uses what. `full`: these pods and no other; else these anew, the rest as it was.

    A pod without refs is forgotten. Whoever uses an object hears of its changes. Idempotent.
    """

    pods: tuple[PodObjects, ...]
    full: bool = False


class ObjectRow(Record, frozen=True, kw_only=True):
    """One object for people: no data."""

    ref: ObjectRef
    file: str
    line: int = 0
    changed: float = 0.0
    """Unix seconds: when its content came to be what it is, by its file's time."""
    keys: tuple[str, ...] = ()
    used_by: int = 0
    """Pods."""
    immutable: bool = False
    secret_type: str = ""


class ObjectProblem(Record, frozen=True, kw_only=True):
    """A file that was not taken, and why."""

    file: str
    line: int = 0
    """1-based; 0 where no line can be named."""
    field: str = ""
    problem: str
    keeps_previous: bool = False
    """The objects of its last good version stand."""


class ObjectList(Message, frozen=True, kw_only=True):
    """What the source holds."""

    objects: tuple[ObjectRow, ...] = ()
    problems: tuple[ObjectProblem, ...] = ()
    source: str = ""
    """The directory; empty for none."""


class ListObjects(Request[ObjectList], frozen=True, kw_only=True):
    """For consoles: every object without its data. A repeat is harmless."""


def by_ref(objects: Objects) -> dict[ObjectRef, ApiObject]:
    """The objects found, by reference."""
    return {one.ref: one for one in objects.found}


def document_of(one: ApiObject, kind: type[Any]) -> Any:
    """A kind without data as its `proto.v1` record."""
    return msgspec.convert(one.document, kind)

"""Messages that the objects actor receives: requests for Secrets, ConfigMaps, other API objects and tokens.

The actor sends `ObjectsChanged`, which is in the receivers' modules (`volume.py`, `pod_workers.py`).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from proto.wire.message import Done, Message, Record, Request


class ObjectRef(Record, frozen=True, kw_only=True, order=True):
    """A reference to an API object, hashable and ordered."""

    kind: str
    """Secret, ConfigMap, Service, RuntimeClass, PriorityClass, PersistentVolume, PersistentVolumeClaim, CSIDriver,
    VolumeAttachment, ResourceClaim; with an API server also ServiceAccounts and this machine's Node."""
    namespace: str = ""
    """Empty for kinds without namespaces."""
    name: str = ""
    """Empty in requests for every object of the kind and namespace."""


class ApiObject(Record, frozen=True, kw_only=True):
    """One object. Its repr has no data, so that no Secret reaches a log."""

    ref: ObjectRef
    resource_version: str
    """Equal for equal content; compare it for equality only."""
    data: dict[str, bytes] = {}
    """ConfigMap: data (UTF-8) and binaryData. Secret: data and stringData, decoded."""
    binary_keys: tuple[str, ...] = ()
    """Keys of a ConfigMap's binaryData: files of volumes, never variables."""
    secret_type: str = ""
    """A Secret's `type`."""
    uid: str = ""
    """A Secret's UID; empty when it has none."""
    immutable: bool = False
    document: dict[str, Any] = {}
    """Kinds without data: the whole object in its JSON form, for `proto.v1.from_dict`."""

    def __repr__(self) -> str:
        return f"ApiObject({self.ref.kind} {self.ref.namespace}/{self.ref.name}, {len(self.data)} keys)"


class FailedObject(Record, frozen=True, kw_only=True):
    """An object that cannot be read now, so that its existence is unknown."""

    ref: ObjectRef
    message: str
    """The kubelet's message."""


class Objects(Message, frozen=True, kw_only=True):
    """The requested objects, in no order: found, missing and unreadable ones."""

    found: tuple[ApiObject, ...] = ()
    missing: tuple[ObjectRef, ...] = ()
    """A ref without name is never missing, because its kind may have no objects."""
    failed: tuple[FailedObject, ...] = ()
    """Forbidden, or the API server is unreachable: retry."""
    more: tuple[ObjectRef, ...] = ()
    """Left out because of the answer's size: ask for them next, as `actors._objects.fetch` does."""


class GetObjects(Request[Objects], frozen=True, kw_only=True):
    """From volume, image_pull, resources and pod_workers: objects by reference. A repeat is harmless.

    A ref without name asks for every object of that kind and namespace. Answered after the source has been read, so
    that `missing` is certain. Refused: `SourceNotRead` (retry) when the source cannot be read.
    """

    refs: tuple[ObjectRef, ...]
    fresh: bool = False
    """Read the named objects from the API server instead of the cache. No effect without an API server."""


class Token(Message, frozen=True, kw_only=True):
    """A service account's token. Times are Unix seconds. Its repr leaves the token out."""

    token: str
    expires: float
    refresh: float
    """Ask again at this time: the token has been renewed then."""

    def __repr__(self) -> str:
        return f"Token(expires={self.expires:.0f})"


class GetToken(Request[Token], frozen=True, kw_only=True):
    """From volume and image_pull: a token that is bound to a pod and invalid after the pod's deletion. Hashable.

    Answered with the present token while it is valid, else with a new one. Refused: `TokenFailed` (retry), with the
    kubelet's message. A repeat is harmless.
    """

    namespace: str
    service_account: str
    pod_name: str
    pod_uid: str
    account_uid: str = ""
    """The service account's UID: none is issued for another one of its name. Empty: any."""
    audiences: tuple[str, ...] = ()
    """Empty: the API server's default audience."""
    expiration_s: int | None = None
    """None: the API server's default."""


class PodCertificate(Message, frozen=True, kw_only=True):
    """A pod's private key and certificate chain, in PEM. Its repr leaves both out."""

    key: str
    chain: str
    """As the API server has it; text between the certificates is not removed."""
    refresh: float
    """Unix seconds: ask again at this time."""

    def __repr__(self) -> str:
        return f"PodCertificate(refresh={self.refresh:.0f})"


class GetPodCertificate(Request[PodCertificate], frozen=True, kw_only=True):
    """From volume: the certificate of a podCertificate source of a projected volume (KEP-4317). Hashable.

    The first request creates a PodCertificateRequest. It is answered once the signer has issued the certificate.
    Refused: `NotIssued` (retry) when that takes some seconds, and for a pod that is gone or that pod_workers has not
    told of. `CertificateFailed` on an API error (retry), or when the signer has denied it. A repeat is harmless.
    """

    namespace: str
    service_account: str
    pod_name: str
    pod_uid: str
    volume: str
    source: int
    """Index of the source in its volume."""
    signer_name: str
    key_type: str
    max_expiration_s: int | None = None
    """None: the API server's default."""
    user_annotations: tuple[tuple[str, str], ...] = ()


class CsiDriver(Record, frozen=True, kw_only=True):
    """A CSI driver that has registered with the node."""

    name: str
    node_id: str
    """The driver's name of the node."""
    max_volumes: int = 0
    """Maximum number of its volumes on the node; 0: unknown."""
    topology: dict[str, str] = {}


class SetCsiDrivers(Message, frozen=True, kw_only=True):
    """From volume: the registered drivers, for the CSINode. `complete`: every plugin has registered. Idempotent."""

    drivers: tuple[CsiDriver, ...]
    complete: bool


class CsiNodeState(Message, frozen=True, kw_only=True):
    """True once the CSINode of this machine's Node has been written."""

    written: bool


class GetCsiNodeState(Request[CsiNodeState], frozen=True, kw_only=True):
    """From node: the CSINode's state. A repeat is harmless."""


class SetClaimCapacity(Request[Done], frozen=True, kw_only=True):
    """From volume: write the claim's new capacity to its status, after the volume was expanded on the node.

    Refused: `NotWritten` (retry). Idempotent.
    """

    namespace: str
    name: str
    capacity: str
    """The claim's allocatedResources, else the capacity in the PersistentVolume."""


class SetClaimExpansion(Request[Done], frozen=True, kw_only=True):
    """From volume: write the state of the volume's expansion on the node to the claim's status (KEP-1790).

    Refused: `NotWritten` (retry). Idempotent.
    """

    namespace: str
    name: str
    phase: Literal["NodeResizeInProgress", "NodeResizeError", "NodeResizeInfeasible"]
    """Started; failed and retried; failed for good."""
    message: str = ""


class DeleteResourceSlices(Request[Done], frozen=True, kw_only=True):
    """From resources: delete this node's ResourceSlices of DRA drivers that are away. No effect without an API server.

    Refused: `NotDeleted` (retry). Idempotent.
    """

    driver: str = ""
    """Empty: all drivers except `kept`."""
    kept: tuple[str, ...] = ()


class PodObjects(Record, frozen=True, kw_only=True):
    """The objects that a pod refers to: in volumes, variables, pull secrets and the runtime class."""

    pod_uid: str
    refs: tuple[ObjectRef, ...]


class SetPodObjects(Message, frozen=True, kw_only=True):
    """From pod_workers: the objects that pods refer to, whose changes the actor then reports. Idempotent.

    `full`: replace the references of all pods; else only of these. A pod without refs is dropped.
    """

    pods: tuple[PodObjects, ...]
    full: bool = False


class ObjectRow(Record, frozen=True, kw_only=True):
    """One object for a table, without its data."""

    ref: ObjectRef
    file: str
    line: int = 0
    changed: float = 0.0
    """Unix seconds of the content's last change: its file's modification time."""
    keys: tuple[str, ...] = ()
    used_by: int = 0
    """Number of pods that refer to it."""
    immutable: bool = False
    secret_type: str = ""


class ObjectProblem(Record, frozen=True, kw_only=True):
    """A rejected file and the reason."""

    file: str
    line: int = 0
    """From 1; 0: unknown."""
    field: str = ""
    problem: str
    keeps_previous: bool = False
    """The objects of its last valid version stay in use."""


class ObjectList(Message, frozen=True, kw_only=True):
    """The source's objects and problems."""

    objects: tuple[ObjectRow, ...] = ()
    problems: tuple[ObjectProblem, ...] = ()
    source: str = ""
    """The directory; empty for none."""


class ListObjects(Request[ObjectList], frozen=True, kw_only=True):
    """From the command line: every object without its data. A repeat is harmless."""


def document_of(one: ApiObject, kind: type[Any]) -> Any:
    """The `proto.v1` record of an object of a kind without data."""
    return msgspec.convert(one.document, kind)

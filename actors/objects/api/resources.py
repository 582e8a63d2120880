"""API paths of each kind, and conversion of the API's objects. Pure."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from actors._files.typed import without_nulls
from actors._kube import shapes
from actors.objects.parsing.load import content_version
from proto.pods.objects import ApiObject, ObjectRef
from proto.v1.cluster import Service
from proto.v1.scalars.resource_name import is_extended

Object = dict[str, Any]


class Resource(NamedTuple):
    """One kind: the path prefix of its API version, its name in paths, and its scope."""

    prefix: str
    plural: str
    namespaced: bool


_CORE, _STORAGE = "/api/v1", "/apis/storage.k8s.io/v1"
RESOURCES: dict[str, Resource] = {
    "ConfigMap": Resource(_CORE, "configmaps", True),
    "Secret": Resource(_CORE, "secrets", True),
    "Service": Resource(_CORE, "services", True),
    "ServiceAccount": Resource(_CORE, "serviceaccounts", True),
    "Node": Resource(_CORE, "nodes", False),
    "PersistentVolume": Resource(_CORE, "persistentvolumes", False),
    "PersistentVolumeClaim": Resource(_CORE, "persistentvolumeclaims", True),
    "CSIDriver": Resource(_STORAGE, "csidrivers", False),
    "VolumeAttachment": Resource(_STORAGE, "volumeattachments", False),
    "RuntimeClass": Resource("/apis/node.k8s.io/v1", "runtimeclasses", False),
    "ResourceClaim": Resource("/apis/resource.k8s.io/v1", "resourceclaims", True),
    "ClusterTrustBundle": Resource("/apis/certificates.k8s.io/v1beta1", "clustertrustbundles", False),
    "PodCertificateRequest": Resource("/apis/certificates.k8s.io/v1beta1", "podcertificaterequests", True),
}
"""Kinds that a node may read. PriorityClasses are not needed: the API server writes their value into pods."""

DATA_KINDS = frozenset({"Secret", "ConfigMap"})
"""Kinds that are read by configMapAndSecretChangeDetectionStrategy."""
COLLECTIONS = frozenset({"Service", "CSIDriver", "RuntimeClass", "ClusterTrustBundle"})
"""Kinds that are watched as a whole from their first use, as in the kubelet; other objects are read one by one."""


def collection_path(kind: str, namespace: str = "") -> str:
    """Path of all objects of a kind, or of a namespace."""
    resource = RESOURCES[kind]
    within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{resource.prefix}{within}/{resource.plural}"


def object_path(ref: ObjectRef) -> str:
    """Path of one object."""
    return f"{collection_path(ref.kind, ref.namespace)}/{quote(ref.name, safe='')}"


def only(ref: ObjectRef) -> dict[str, str]:
    """The field selector with which a node may list and watch a single object."""
    return {"fieldSelector": f"metadata.name={ref.name}"}


class _WithData(shapes.Stored, rename="camel"):
    """A Secret or ConfigMap."""

    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None
    type: str | None = None
    immutable: bool | None = None


_SHAPES = {"Node": shapes.Node} | dict.fromkeys(DATA_KINDS, _WithData)


def ref_of(kind: str, item: Object) -> ObjectRef:
    """Reference to an API object. Raises ValueError for an object without a name."""
    meta = msgspec.convert(item.get("metadata"), shapes.Meta)
    if not meta.name:
        raise ValueError("the object has no name")
    return ObjectRef(kind=kind, namespace=meta.namespace or "", name=meta.name)


def api_object(kind: str, item: Object) -> ApiObject:
    """Convert an API object. Raises ValueError for an invalid one."""
    msgspec.convert(item, _SHAPES.get(kind, shapes.Stored))
    ref, version = ref_of(kind, item), item["metadata"].get("resourceVersion") or ""
    if kind in DATA_KINDS:
        return _with_data(ref, version, item)
    try:
        document = _document(kind, item)
        msgspec.msgpack.encode(document)  # as in the answer to a peer
    except (OverflowError, RecursionError) as error:
        raise ValueError("a number has more than 64 bits, or the object is nested too deeply") from error
    if kind == "Node":
        version = content_version(document)
        document["status"]["volumesAttached"] = _volumes_attached(item)
    return ApiObject(ref=ref, resource_version=version, document=document)


def _document(kind: str, item: Object) -> Object:
    if kind == "Node":
        return node_document(item)
    document: Object = without_nulls(item)
    if kind == "Service":
        # There may be thousands of Services; only these fields are needed.
        document = msgspec.to_builtins(msgspec.convert(document, Service))
    else:
        document["metadata"].pop("managedFields", None)
    return document


def node_document(item: Object) -> Object:
    """The fields whose changes are told; a Node is written every few seconds, mostly without changing them."""
    meta, spec = item["metadata"], item.get("spec") or {}
    kept = {name: meta[name] for name in ("name", "uid", "labels", "annotations") if meta.get(name)}
    allocatable = (item.get("status") or {}).get("allocatable") or {}
    return {
        "metadata": kept,
        "spec": {name: spec[name] for name in ("taints", "unschedulable") if spec.get(name)},
        "status": {"allocatable": {name: amount for name, amount in allocatable.items() if is_extended(name)}},
    }


def _volumes_attached(item: Object) -> list[Object]:
    """Volumes that the attach/detach controller has attached. volume reads them when it needs them."""
    found = (item.get("status") or {}).get("volumesAttached") or ()
    return [{"name": one["name"]} for one in found]


def _with_data(ref: ObjectRef, version: str, item: Object) -> ApiObject:
    values = item.get("data") or {}
    if ref.kind == "Secret":
        data, binary = {key: base64.b64decode(value) for key, value in values.items()}, ()
    else:
        encoded = item.get("binaryData") or {}
        data = {key: value.encode("utf-8", "surrogatepass") for key, value in values.items()}
        data |= {key: base64.b64decode(value) for key, value in encoded.items()}
        binary = tuple(encoded)
    return ApiObject(
        ref=ref,
        resource_version=version,
        data=data,
        binary_keys=binary,
        secret_type=item.get("type") or "",
        uid=(item["metadata"].get("uid") or "") if ref.kind == "Secret" else "",
        immutable=bool(item.get("immutable")),
    )

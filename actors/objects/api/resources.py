"""Where the API server has each kind, and its objects as the agent has them. Pure."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from actors._files.typed import without_nulls
from actors.objects.parsing.load import content_version
from proto.pods.objects import ApiObject, ObjectRef
from proto.v1.cluster import Service

Object = dict[str, Any]


class Resource(NamedTuple):
    """One kind: the prefix of its API version, its name in paths, whether it is in a namespace."""

    prefix: str
    plural: str
    namespaced: bool


_CORE, _STORAGE = "/api/v1", "/apis/storage.k8s.io/v1"
RESOURCES: dict[str, Resource] = {
    "ConfigMap": Resource(_CORE, "configmaps", True),
    "Secret": Resource(_CORE, "secrets", True),
    "Service": Resource(_CORE, "services", True),
    "Node": Resource(_CORE, "nodes", False),
    "PersistentVolume": Resource(_CORE, "persistentvolumes", False),
    "PersistentVolumeClaim": Resource(_CORE, "persistentvolumeclaims", True),
    "CSIDriver": Resource(_STORAGE, "csidrivers", False),
    "VolumeAttachment": Resource(_STORAGE, "volumeattachments", False),
    "RuntimeClass": Resource("/apis/node.k8s.io/v1", "runtimeclasses", False),
    "ClusterTrustBundle": Resource("/apis/certificates.k8s.io/v1beta1", "clustertrustbundles", False),
}
"""What a node may read. PriorityClasses are the API server's own matter: it writes their value into pods."""

DATA_KINDS = frozenset({"Secret", "ConfigMap"})
"""Read by configMapAndSecretChangeDetectionStrategy."""
COLLECTIONS = frozenset({"Service", "CSIDriver", "RuntimeClass", "ClusterTrustBundle"})
"""Followed as a whole once one of them is needed, as the kubelet does; the others are read one by one."""


def collection_path(kind: str, namespace: str = "") -> str:
    """Of all objects, or those of a namespace."""
    resource = RESOURCES[kind]
    within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{resource.prefix}{within}/{resource.plural}"


def object_path(ref: ObjectRef) -> str:
    """Of one object."""
    return f"{collection_path(ref.kind, ref.namespace)}/{quote(ref.name, safe='')}"


def only(ref: ObjectRef) -> dict[str, str]:
    """The selector by which a node may list and watch a single object."""
    return {"fieldSelector": f"metadata.name={ref.name}"}


def ref_of(kind: str, item: Object) -> ObjectRef:
    """Which object it is."""
    meta = item["metadata"]
    return ObjectRef(kind=kind, namespace=meta.get("namespace") or "", name=meta["name"])


def api_object(kind: str, item: Object) -> ApiObject:
    """An object as the agent has it. Raises ValueError for one that no API server would have taken."""
    ref, version = ref_of(kind, item), item["metadata"].get("resourceVersion") or ""
    if kind in DATA_KINDS:
        return _with_data(ref, version, item)
    if kind == "Service":
        # There may be thousands, and of each only this is needed.
        document = msgspec.to_builtins(msgspec.convert(without_nulls(item), Service))
    elif kind == "Node":
        document = node_document(item)
        version = content_version(document)
    else:
        document = without_nulls(item)
        document["metadata"].pop("managedFields", None)
    return ApiObject(ref=ref, resource_version=version, document=document)


def node_document(item: Object) -> Object:
    """What admission and volumes look at: a Node is written every few seconds, and nearly always without a change of
    these."""
    meta, spec = item["metadata"], item.get("spec") or {}
    kept = {name: meta[name] for name in ("name", "uid", "labels", "annotations") if meta.get(name)}
    return {"metadata": kept, "spec": {name: spec[name] for name in ("taints", "unschedulable") if spec.get(name)}}


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

"""The API objects about this node's CSI drivers: the CSINode, and an annotation and labels of the Node. Pure.

Source: pkg/volume/csi/nodeinfomanager of Kubernetes 1.36, and the reference of storage.k8s.io/v1.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from actors._kube.shapes import Meta
from proto.common import untrusted
from proto.pods.objects import CsiDriver
from proto.v1.volumes.migrated import MIGRATED

Object = dict[str, Any]

PATH = "/apis/storage.k8s.io/v1/csinodes"
NODE_ID_ANNOTATION = "csi.volume.kubernetes.io/nodeid"
MIGRATED_ANNOTATION = "storage.alpha.kubernetes.io/migrated-plugins"
MIGRATED_PLUGINS = ",".join(sorted(one.plugin for one in MIGRATED.values()))
"""In-tree plugins whose volumes CSI drivers mount on this node. The scheduler counts their volumes as the driver's."""
_MAX_COUNT = 2**31 - 1


class _Driver(msgspec.Struct, rename={"topology_keys": "topologyKeys"}):
    name: str
    topology_keys: list[str] | None = None


class _Spec(msgspec.Struct):
    drivers: list[_Driver] | None = None


class CsiNode(msgspec.Struct):
    """The fields of a CSINode that are read here."""

    metadata: Meta
    spec: _Spec | None = None


def wanted(
    node_name: str, node_uid: str, existing: Object | None, drivers: Iterable[CsiDriver], *, all_: bool,
    left: Collection[str] = (),
) -> Object:  # fmt: skip
    """The desired CSINode. `all_`: `drivers` is complete; otherwise other existing entries stay.

    `left`: names of drivers whose existing entries stay in any case.
    """
    own = {one.name: _entry(one) for one in drivers}
    before = {one["name"]: one for one in ((existing or {}).get("spec") or {}).get("drivers") or ()}
    kept = {name: one for name, one in before.items() if name not in own and (not all_ or name in left)}
    entries = kept | {name: _unchanged(before.get(name), entry) for name, entry in own.items()}
    metadata = dict((existing or {}).get("metadata") or {"name": node_name})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), MIGRATED_ANNOTATION: MIGRATED_PLUGINS}
    metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid}]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": metadata,
        "spec": {"drivers": [entries[name] for name in sorted(entries)]},
    }


def same(node: Object, existing: Object) -> bool:
    """True when there is nothing to write."""
    has = {one["name"]: one for one in (existing.get("spec") or {}).get("drivers") or ()}
    return node["metadata"] == existing.get("metadata") and has == {one["name"]: one for one in node["spec"]["drivers"]}


def _entry(driver: CsiDriver) -> Object:
    entry: Object = {"name": driver.name, "nodeID": driver.node_id, "topologyKeys": sorted(driver.topology)}
    if driver.max_volumes > 0:
        entry["allocatable"] = {"count": min(driver.max_volumes, _MAX_COUNT)}
    return entry


def _unchanged(before: Object | None, entry: Object) -> Object:
    # Keeps the server's form of an equal entry: null and a missing field are equal.
    if before is None:
        return entry
    plain = {name: before.get(name) for name in ("name", "nodeID", "allocatable") if before.get(name)}
    plain["topologyKeys"] = sorted(before.get("topologyKeys") or ())
    return before if plain == entry else entry


def node_patch(
    node: Object, drivers: Iterable[CsiDriver], *, all_: bool, left: Collection[str] = ()
) -> tuple[Object | None, list[str]]:
    """(merge patch for the Node or None, topology values of drivers that contradict its labels).

    `all_` and `left` are as in `wanted`. Labels of removed drivers stay, as in the kubelet, since volumes may still be
    bound to them.
    """
    meta = node["metadata"]
    drivers = tuple(drivers)
    labels, collisions = _labels(meta.get("labels") or {}, drivers)
    text = (meta.get("annotations") or {}).get(NODE_ID_ANNOTATION, "")
    before = _node_ids(text)
    kept = {name: one for name, one in before.items() if not all_ or name in left}
    ids = kept | {one.name: one.node_id for one in drivers}
    patch: Object = {}
    if ids != before or (text and not before and not ids):
        encoded = json.dumps(ids, separators=(",", ":"), sort_keys=True) if ids else None
        patch["annotations"] = {NODE_ID_ANNOTATION: encoded}
    if labels:
        patch["labels"] = labels
    return ({"metadata": patch} if patch else None), collisions


def _labels(present: dict[str, str], drivers: tuple[CsiDriver, ...]) -> tuple[dict[str, str], list[str]]:
    new: dict[str, str] = {}
    collisions = []
    for driver in drivers:
        for key, value in sorted(driver.topology.items()):
            has = (present | new).get(key)
            if has is None:
                new[key] = value
            elif has != value:
                said = f'driver reported "{key}":"{value}" but existing label is "{key}":"{has}"'
                collisions.append(f"CSI driver {driver.name}: detected topology value collision: {said}")
    return new, collisions


def _node_ids(text: str) -> dict[str, str]:
    try:
        found = untrusted.decode_json(text) if text else {}
    except msgspec.DecodeError:
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}

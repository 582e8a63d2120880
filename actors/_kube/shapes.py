"""The shapes of the API server's answers: the types of the fields that callers read. Pure.

A proxy, a captive page or a wrong server may answer 200 with JSON of another kind. As in client-go, which decodes into
types of Go, a field of another type fails the call. Null counts as missing. Unknown fields are not looked at.
Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/ and .../node-v1/.
"""

from __future__ import annotations

from typing import Any

import msgspec

MOST_VERSION_DIGITS = 18
"""Of a resourceVersion that is compared as a number. etcd counts its revisions in 63 bits."""


class Owner(msgspec.Struct):
    """An entry of metadata.ownerReferences."""

    kind: str | None = None
    uid: str | None = None


class Meta(msgspec.Struct, rename="camel"):
    """ObjectMeta."""

    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None
    finalizers: list[str] | None = None


class Answer(msgspec.Struct):
    """The answer to a creation or a removal: the object, or a metav1.Status."""

    metadata: Meta | None = None


class Stored(msgspec.Struct):
    """An object as the server has it."""

    metadata: Meta
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Address(msgspec.Struct):
    type: str
    address: str


class _Machine(msgspec.Struct, rename={"machine_id": "machineID", "system_uuid": "systemUUID", "boot_id": "bootID"}):
    machine_id: str | None = None
    system_uuid: str | None = None
    boot_id: str | None = None


class _Attached(msgspec.Struct):
    name: str


class _Taint(msgspec.Struct):
    key: str
    effect: str
    value: str | None = None


class _NodeSpec(msgspec.Struct, rename={"pod_cidrs": "podCIDRs"}):
    unschedulable: bool | None = None
    pod_cidrs: list[str] | None = None
    taints: list[_Taint] | None = None


class _NodeStatus(msgspec.Struct, rename="camel"):
    conditions: list[_Condition] | None = None
    addresses: list[_Address] | None = None
    node_info: _Machine | None = None
    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    volumes_attached: list[_Attached] | None = None


class Node(msgspec.Struct):
    """A Node."""

    metadata: Meta
    spec: _NodeSpec | None = None
    status: _NodeStatus | None = None


def version_number(version: str) -> int | None:
    """The number of a resourceVersion (KEP-5504); None for a text that is no number of at most 18 digits."""
    return int(version) if version.isdecimal() and len(version) <= MOST_VERSION_DIGITS else None

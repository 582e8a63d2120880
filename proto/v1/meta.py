"""Records that several types share: object metadata (metav1), label selectors and references to objects."""

from typing import Any

from proto.v1.scalars.base import Int64, Quantity, Record, Timestamp


class OwnerReference(Record, frozen=True, kw_only=True):
    """The object that owns this one; deletion follows it."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ManagedFieldsEntry(Record, frozen=True, kw_only=True):
    """Fields that a manager has set (server-side apply). Kept, but not read here."""

    manager: str | None = None
    operation: str | None = None
    api_version: str | None = None
    time: Timestamp | None = None
    fields_type: str | None = None
    fields_v1: dict[str, Any] | None = None
    subresource: str | None = None


class ObjectMeta(Record, frozen=True, kw_only=True):
    """Name, namespace, UID, labels and annotations of an object."""

    name: str = ""
    generate_name: str | None = None
    namespace: str = ""
    self_link: str | None = None
    uid: str = ""
    resource_version: str | None = None
    generation: Int64 | None = None
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    managed_fields: tuple[ManagedFieldsEntry, ...] = ()


class ListMeta(Record, frozen=True, kw_only=True):
    """Metadata of a list; `continue_` is the token of the next page."""

    self_link: str | None = None
    resource_version: str | None = None
    continue_: str | None = None
    remaining_item_count: Int64 | None = None


class LabelSelectorRequirement(Record, frozen=True, kw_only=True):
    """A key, an operator (In, NotIn, Exists, DoesNotExist) and its values."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Record, frozen=True, kw_only=True):
    """Labels an object must have; all requirements hold together."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class LocalObjectReference(Record, frozen=True, kw_only=True):
    """An object of known kind in the same namespace."""

    name: str = ""


class SecretReference(Record, frozen=True, kw_only=True):
    """A Secret by name and namespace."""

    name: str | None = None
    namespace: str | None = None


class ObjectReference(Record, frozen=True, kw_only=True):
    """Any object, or with `field_path` a part of it, as a container in events."""

    kind: str | None = None
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None
    api_version: str | None = None
    resource_version: str | None = None
    field_path: str | None = None


class TypedLocalObjectReference(Record, frozen=True, kw_only=True):
    """An object of any kind in the same namespace."""

    api_group: str | None = None
    kind: str = ""
    name: str = ""


class TypedObjectReference(Record, frozen=True, kw_only=True):
    """An object of any kind, in another namespace if given."""

    api_group: str | None = None
    kind: str = ""
    name: str = ""
    namespace: str | None = None


class ObjectFieldSelector(Record, frozen=True, kw_only=True):
    """A field of the pod itself (downward API), for example `status.podIP`."""

    api_version: str | None = None
    field_path: str = ""


class ResourceFieldSelector(Record, frozen=True, kw_only=True):
    """A container's own request or limit (downward API), divided by `divisor`."""

    container_name: str | None = None
    resource: str = ""
    divisor: Quantity | None = None


EMPTY_META = ObjectMeta()


class Object(Record, frozen=True, kw_only=True):
    """The common fields of API objects."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = EMPTY_META


EMPTY_LIST_META = ListMeta()

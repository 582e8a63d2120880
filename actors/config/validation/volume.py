"""The API's rules for volumes: names, exactly one source, and the fields of each source.

Covers the fields of sources that a node serves itself, of projected sources and CSI; not of vendors' in-tree sources.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from actors.config.validation import rules
from actors.config.validation.problems import Path, Violation
from actors.config.validation.references import validate_field_ref, validate_resource_field_ref
from proto import v1
from proto.v1.scalars.base import json_name
from proto.v1.volumes.projected import ConfigMapProjection, SecretProjection
from proto.v1.volumes.volume import VOLUME_SOURCES

_WithItems = v1.SecretVolumeSource | v1.ConfigMapVolumeSource | SecretProjection | ConfigMapProjection
HOST_PATH_TYPES = ("", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_FIELD_PATHS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_LEAST_EXPIRY_S, _MOST_EXPIRY_S = 600, 2**32
"""Of a service account's token."""


def validate_volumes(at: Path, volumes: Sequence[v1.Volume]) -> Iterator[Violation]:
    """Yield the violations of spec.volumes."""
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        path = at / index
        yield from rules.label(path / "name", volume.name)
        yield from rules.unique(path / "name", volume.name, names)
        sources = [name for name in VOLUME_SOURCES if getattr(volume, name) is not None]
        if not sources:
            yield rules.required(path, "must specify a volume type")
        for extra in sources[1:]:
            yield Violation(path / json_name(extra), "Forbidden: may not specify more than 1 volume type")
        for source in sources[:1]:
            yield from _source(path / json_name(source), source, getattr(volume, source))


def _source(path: Path, name: str, source: Any) -> Iterator[Violation]:
    required = _REQUIRED.get(name)
    if required is not None and not getattr(source, required):
        yield rules.required(path / json_name(required))
    if name in _WITH_MODE:
        yield from _mode(path / "defaultMode", source.default_mode)
    if check := _CHECKS.get(name):
        yield from check(path, source)


def _host_path(path: Path, source: v1.HostPathVolumeSource) -> Iterator[Violation]:
    if ".." in source.path.split("/"):
        yield rules.invalid(path / "path", source.path, "must not contain '..'")
    yield from rules.one_of(path / "type", source.type, HOST_PATH_TYPES, optional=True)


def _empty_dir(path: Path, source: v1.EmptyDirVolumeSource) -> Iterator[Violation]:
    medium = source.medium or ""
    if medium not in ("", "Memory", "HugePages") and not medium.startswith("HugePages-"):
        yield rules.invalid(path / "medium", medium, 'must be "", "Memory", "HugePages" or "HugePages-SIZE"')
    if source.size_limit is not None:
        yield from rules.quantity(path / "sizeLimit", source.size_limit)


def _items(path: Path, source: _WithItems) -> Iterator[Violation]:
    for index, item in enumerate(source.items):
        at = path / "items" / index
        if not item.key:
            yield rules.required(at / "key")
        yield from _file_path(at / "path", item.path)
        yield from _mode(at / "mode", item.mode)


def _downward_api(path: Path, source: v1.DownwardAPIVolumeSource) -> Iterator[Violation]:
    yield from _files(path / "items", source.items)


def _projected(path: Path, source: v1.ProjectedVolumeSource) -> Iterator[Violation]:
    taken: set[str] = set()
    for index, projection in enumerate(source.sources):
        at = path / "sources" / index
        found = [name for name in projection.__struct_fields__ if getattr(projection, name) is not None]
        if len(found) > 1:
            yield Violation(at, "Forbidden: may not specify more than 1 volume type")
        for field, objects in (("secret", projection.secret), ("configMap", projection.config_map)):
            if objects is not None:
                if not objects.name:
                    yield rules.required(at / field / "name")
                yield from _items(at / field, objects)
                yield from _once(at / field / "items", objects.items, taken)
        if projection.downward_api is not None:
            items = projection.downward_api.items
            yield from _files(at / "downwardAPI" / "items", items)
            yield from _once(at / "downwardAPI" / "items", items, taken)
        token = projection.service_account_token
        if token is not None:
            expiry = at / "serviceAccountToken" / "expirationSeconds"
            yield from rules.in_range(expiry, token.expiration_seconds, _LEAST_EXPIRY_S, _MOST_EXPIRY_S)
            yield from _file_path(at / "serviceAccountToken" / "path", token.path)


def _once(path: Path, items: Sequence[v1.KeyToPath | v1.DownwardAPIVolumeFile], taken: set[str]) -> Iterator[Violation]:
    """Paths that no other source of the volume has."""
    for index, item in enumerate(items):
        if item.path and item.path in taken:
            yield rules.invalid(path / index / "path", item.path, "conflicting duplicate paths")
        taken.add(item.path)


def _nfs(path: Path, source: v1.NFSVolumeSource) -> Iterator[Violation]:
    if not source.path.startswith("/"):
        yield rules.invalid(path / "path", source.path, "must be an absolute path")


def _image(path: Path, source: v1.ImageVolumeSource) -> Iterator[Violation]:
    yield from rules.one_of(path / "pullPolicy", source.pull_policy, PULL_POLICIES)


def _files(path: Path, files: Sequence[v1.DownwardAPIVolumeFile]) -> Iterator[Violation]:
    for index, file in enumerate(files):
        at = path / index
        yield from _file_path(at / "path", file.path)
        yield from _mode(at / "mode", file.mode)
        if (file.field_ref is None) == (file.resource_field_ref is None):
            yield rules.required(at, "exactly one of fieldRef and resourceFieldRef is required")
        elif file.field_ref is not None:
            yield from validate_field_ref(at / "fieldRef", file.field_ref, _FIELD_PATHS)
        elif file.resource_field_ref is not None:
            if not file.resource_field_ref.container_name:
                yield rules.required(at / "resourceFieldRef" / "containerName")
            yield from validate_resource_field_ref(at / "resourceFieldRef", file.resource_field_ref)


def _file_path(path: Path, value: str) -> Iterator[Violation]:
    if not value:
        yield rules.required(path)
    elif value.startswith(".."):
        yield rules.invalid(path, value, "must not start with '..'")
    else:
        yield from rules.relative_path(path, value)


def _mode(path: Path, mode: int | None) -> Iterator[Violation]:
    if mode is not None and not 0 <= mode <= 0o777:
        yield rules.invalid(path, mode, "must be a number between 0 and 0777 (octal), both inclusive")


_REQUIRED = {
    "host_path": "path",
    "secret": "secret_name",
    "config_map": "name",
    "persistent_volume_claim": "claim_name",
    "nfs": "server",
    "image": "reference",
    "csi": "driver",
}
_WITH_MODE = ("secret", "config_map", "downward_api", "projected")
_CHECKS: dict[str, Callable[[Path, Any], Iterator[Violation]]] = {
    "host_path": _host_path,
    "empty_dir": _empty_dir,
    "secret": _items,
    "config_map": _items,
    "downward_api": _downward_api,
    "projected": _projected,
    "nfs": _nfs,
    "image": _image,
}

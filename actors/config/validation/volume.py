"""The API's rules for volumes: names, exactly one source, and what each source needs.

Covers the sources a node serves itself, the projected kinds and CSI; of the vendors' in-tree sources only that there
is one.
"""

from collections.abc import Iterator, Sequence

from actors.config.validation import rules
from actors.config.validation.problems import Violation
from proto.schema.fieldpath import Path
from proto.v1 import DownwardAPIVolumeFile, KeyToPath, Volume
from proto.v1.scalars.base import json_name
from proto.v1.volumes.volume import VOLUME_SOURCES

HOST_PATH_TYPES = ("", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_FIELD_PATHS = frozenset(
    {"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations"}
)


def validate_volumes(at: Path, volumes: Sequence[Volume]) -> Iterator[Violation]:
    """Yield the violations of spec.volumes."""
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        path = (*at, index)
        yield from rules.label((*path, "name"), volume.name)
        if volume.name in names:
            yield rules.duplicate((*path, "name"), volume.name)
        names.add(volume.name)
        sources = [name for name in VOLUME_SOURCES if getattr(volume, name) is not None]
        if not sources:
            yield rules.required(path, "must specify a volume type")
        for extra in sources[1:]:
            yield Violation((*path, json_name(extra)), "Forbidden: may not specify more than 1 volume type")
        if sources:
            yield from _source(path, volume, sources[0])


def _source(path: Path, volume: Volume, source: str) -> Iterator[Violation]:
    check = {
        "host_path": _host_path,
        "empty_dir": _empty_dir,
        "secret": _secret,
        "config_map": _config_map,
        "downward_api": _downward_api,
        "projected": _projected,
        "nfs": _nfs,
        "image": _image,
        "csi": _csi,
    }.get(source)
    if check is not None:
        yield from check((*path, json_name(source)), volume)


def _host_path(path: Path, volume: Volume) -> Iterator[Violation]:
    assert volume.host_path is not None
    if not volume.host_path.path:
        yield rules.required((*path, "path"))
    elif ".." in volume.host_path.path.split("/"):
        yield rules.invalid((*path, "path"), volume.host_path.path, "must not contain '..'")
    yield from rules.one_of((*path, "type"), volume.host_path.type, HOST_PATH_TYPES, optional=True)


def _empty_dir(path: Path, volume: Volume) -> Iterator[Violation]:
    assert volume.empty_dir is not None
    medium = volume.empty_dir.medium or ""
    if medium not in ("", "Memory", "HugePages") and not medium.startswith("HugePages-"):
        yield rules.invalid((*path, "medium"), medium, 'must be "", "Memory", "HugePages" or "HugePages-SIZE"')
    if volume.empty_dir.size_limit is not None:
        yield from rules.quantity((*path, "sizeLimit"), volume.empty_dir.size_limit)


def _secret(path: Path, volume: Volume) -> Iterator[Violation]:
    assert volume.secret is not None
    if not volume.secret.secret_name:
        yield rules.required((*path, "secretName"))
    yield from _mode((*path, "defaultMode"), volume.secret.default_mode)
    yield from _items((*path, "items"), volume.secret.items)


def _config_map(path: Path, volume: Volume) -> Iterator[Violation]:
    assert volume.config_map is not None
    if not volume.config_map.name:
        yield rules.required((*path, "name"))
    yield from _mode((*path, "defaultMode"), volume.config_map.default_mode)
    yield from _items((*path, "items"), volume.config_map.items)


def _downward_api(path: Path, volume: Volume) -> Iterator[Violation]:
    assert volume.downward_api is not None
    yield from _mode((*path, "defaultMode"), volume.downward_api.default_mode)
    yield from _files((*path, "items"), volume.downward_api.items)


def _projected(path: Path, volume: Volume) -> Iterator[Violation]:
    assert volume.projected is not None
    yield from _mode((*path, "defaultMode"), volume.projected.default_mode)
    for index, projection in enumerate(volume.projected.sources):
        at = (*path, "sources", index)
        found = [name for name in projection.__struct_fields__ if getattr(projection, name) is not None]
        if len(found) != 1:
            yield Violation(at, f"Forbidden: must specify exactly 1 volume type, not {len(found)}")
        if projection.downward_api is not None:
            yield from _files((*at, "downwardAPI", "items"), projection.downward_api.items)
        token = projection.service_account_token
        if token is not None and not token.path:
            yield rules.required((*at, "serviceAccountToken", "path"))


def _nfs(path: Path, volume: Volume) -> Iterator[Violation]:
    assert volume.nfs is not None
    if not volume.nfs.server:
        yield rules.required((*path, "server"))
    if not volume.nfs.path.startswith("/"):
        yield rules.invalid((*path, "path"), volume.nfs.path, "must be an absolute path")


def _image(path: Path, volume: Volume) -> Iterator[Violation]:
    assert volume.image is not None
    if not volume.image.reference:
        yield rules.required((*path, "reference"))
    yield from rules.one_of((*path, "pullPolicy"), volume.image.pull_policy, PULL_POLICIES)


def _csi(path: Path, volume: Volume) -> Iterator[Violation]:
    assert volume.csi is not None
    if not volume.csi.driver:
        yield rules.required((*path, "driver"))


def _items(path: Path, items: Sequence[KeyToPath]) -> Iterator[Violation]:
    for index, item in enumerate(items):
        if not item.key:
            yield rules.required((*path, index, "key"))
        yield from _file_path((*path, index, "path"), item.path)
        yield from _mode((*path, index, "mode"), item.mode)


def _files(path: Path, files: Sequence[DownwardAPIVolumeFile]) -> Iterator[Violation]:
    for index, file in enumerate(files):
        at = (*path, index)
        yield from _file_path((*at, "path"), file.path)
        yield from _mode((*at, "mode"), file.mode)
        if (file.field_ref is None) == (file.resource_field_ref is None):
            yield rules.required(at, "exactly one of fieldRef and resourceFieldRef is required")
        elif file.field_ref is not None and file.field_ref.field_path.partition("[")[0] not in _FIELD_PATHS:
            supported = sorted(_FIELD_PATHS)
            yield from rules.one_of((*at, "fieldRef", "fieldPath"), file.field_ref.field_path, supported)
        elif file.resource_field_ref is not None and not file.resource_field_ref.container_name:
            yield rules.required((*at, "resourceFieldRef", "containerName"))


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

"""The defaults the API gives a volume: file modes, the type of a host path, legacy sources' options.

Covers every volume source with a default. Does not cover the pod around it (`defaults.py`).
"""

from typing import TypeVar

from msgspec.structs import replace

from actors.config.defaulting.images import pull_policy
from proto.v1 import (
    ConfigMapVolumeSource,
    DownwardAPIVolumeFile,
    DownwardAPIVolumeSource,
    EmptyDirVolumeSource,
    EphemeralVolumeSource,
    ImageVolumeSource,
    ProjectedVolumeSource,
    SecretVolumeSource,
    Volume,
    VolumeProjection,
)
from proto.v1.volumes.volume import VOLUME_SOURCES

S = TypeVar("S", SecretVolumeSource, ConfigMapVolumeSource)

FILE_MODE = 0o644
TOKEN_EXPIRATION_SECONDS = 3600

# Attribute of Volume to the defaults of that source, applied where the field is absent or empty.
_LEGACY: dict[str, dict[str, object]] = {
    "iscsi": {"iscsi_interface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azure_disk": {"caching_mode": "ReadWrite", "fs_type": "ext4", "read_only": False, "kind": "Shared"},
    "scale_io": {"storage_mode": "ThinProvisioned", "fs_type": "xfs"},
}


def default_volume(volume: Volume) -> Volume:
    """Return the volume with every default set; one without a source becomes an emptyDir."""
    if all(getattr(volume, source) is None for source in VOLUME_SOURCES):
        return replace(volume, empty_dir=EmptyDirVolumeSource())
    for source, defaults in _LEGACY.items():
        found = getattr(volume, source)
        if found is not None:
            missing = {name: value for name, value in defaults.items() if getattr(found, name) in (None, "")}
            volume = replace(volume, **{source: replace(found, **missing)})
    host_path = volume.host_path
    if host_path is not None and host_path.type is None:
        host_path = replace(host_path, type="")
    return replace(
        volume,
        host_path=host_path,
        secret=_with_mode(volume.secret),
        config_map=_with_mode(volume.config_map),
        downward_api=_default_downward_api(volume.downward_api),
        projected=_default_projected(volume.projected),
        ephemeral=_default_ephemeral(volume.ephemeral),
        image=_default_image(volume.image),
    )


def _with_mode(source: S | None) -> S | None:
    if source is None or source.default_mode is not None:
        return source
    return replace(source, default_mode=FILE_MODE)


def _default_downward_api(source: DownwardAPIVolumeSource | None) -> DownwardAPIVolumeSource | None:
    if source is None:
        return None
    mode = FILE_MODE if source.default_mode is None else source.default_mode
    return replace(source, default_mode=mode, items=tuple(map(_default_file, source.items)))


def _default_file(file: DownwardAPIVolumeFile) -> DownwardAPIVolumeFile:
    if file.field_ref is not None and not file.field_ref.api_version:
        file = replace(file, field_ref=replace(file.field_ref, api_version="v1"))
    if file.resource_field_ref is not None and file.resource_field_ref.divisor is None:
        file = replace(file, resource_field_ref=replace(file.resource_field_ref, divisor="0"))
    return file


def _default_projected(source: ProjectedVolumeSource | None) -> ProjectedVolumeSource | None:
    if source is None:
        return None
    mode = FILE_MODE if source.default_mode is None else source.default_mode
    return replace(source, default_mode=mode, sources=tuple(map(_default_projection, source.sources)))


def _default_projection(projection: VolumeProjection) -> VolumeProjection:
    token = projection.service_account_token
    if token is not None and token.expiration_seconds is None:
        token = replace(token, expiration_seconds=TOKEN_EXPIRATION_SECONDS)
    downward = projection.downward_api
    if downward is not None:
        downward = replace(downward, items=tuple(map(_default_file, downward.items)))
    return replace(projection, service_account_token=token, downward_api=downward)


def _default_ephemeral(source: EphemeralVolumeSource | None) -> EphemeralVolumeSource | None:
    template = source.volume_claim_template if source is not None else None
    if source is None or template is None or template.spec.volume_mode is not None:
        return source
    template = replace(template, spec=replace(template.spec, volume_mode="Filesystem"))
    return replace(source, volume_claim_template=template)


def _default_image(source: ImageVolumeSource | None) -> ImageVolumeSource | None:
    if source is None or source.pull_policy:
        return source
    return replace(source, pull_policy=pull_policy(source.reference or ""))

"""Sets a volume's API defaults: file modes, the type of a host path, options of legacy sources.

Covers every volume source with a default.
"""

from typing import TypeVar

from msgspec.structs import replace

from actors.config.defaulting.images import pull_policy
from proto import v1
from proto.v1.volumes.volume import VOLUME_SOURCES

S = TypeVar("S", v1.SecretVolumeSource, v1.ConfigMapVolumeSource, v1.DownwardAPIVolumeSource, v1.ProjectedVolumeSource)
R = TypeVar("R", v1.EnvVarSource, v1.DownwardAPIVolumeFile)

FILE_MODE = 0o644
TOKEN_EXPIRATION_SECONDS = 3600

# Defaults by attribute of Volume, for fields that are absent or empty.
_LEGACY: dict[str, dict[str, object]] = {
    "iscsi": {"iscsi_interface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azure_disk": {"caching_mode": "ReadWrite", "fs_type": "ext4", "read_only": False, "kind": "Shared"},
    "scale_io": {"storage_mode": "ThinProvisioned", "fs_type": "xfs"},
}


def default_volume(volume: v1.Volume) -> v1.Volume:
    """Return the volume with every default set. A volume without a source becomes an emptyDir."""
    if all(getattr(volume, source) is None for source in VOLUME_SOURCES):
        return replace(volume, empty_dir=v1.EmptyDirVolumeSource())
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


def default_field_refs(source: R) -> R:
    """Return an environment variable's source, or a file of the downward API, with the defaults of its references."""
    if source.field_ref is not None and not source.field_ref.api_version:
        source = replace(source, field_ref=replace(source.field_ref, api_version="v1"))
    if source.resource_field_ref is not None and source.resource_field_ref.divisor is None:
        # A Quantity is never absent in Go: the zero one prints as "0" and counts as 1 where it divides.
        source = replace(source, resource_field_ref=replace(source.resource_field_ref, divisor="0"))
    return source


def _default_downward_api(source: v1.DownwardAPIVolumeSource | None) -> v1.DownwardAPIVolumeSource | None:
    source = _with_mode(source)
    return source and replace(source, items=tuple(map(default_field_refs, source.items)))


def _default_projected(source: v1.ProjectedVolumeSource | None) -> v1.ProjectedVolumeSource | None:
    source = _with_mode(source)
    return source and replace(source, sources=tuple(map(_default_projection, source.sources)))


def _default_projection(projection: v1.VolumeProjection) -> v1.VolumeProjection:
    token = projection.service_account_token
    if token is not None and token.expiration_seconds is None:
        token = replace(token, expiration_seconds=TOKEN_EXPIRATION_SECONDS)
    downward = projection.downward_api
    if downward is not None:
        downward = replace(downward, items=tuple(map(default_field_refs, downward.items)))
    return replace(projection, service_account_token=token, downward_api=downward)


def _default_ephemeral(source: v1.EphemeralVolumeSource | None) -> v1.EphemeralVolumeSource | None:
    template = source.volume_claim_template if source is not None else None
    if source is None or template is None or template.spec.volume_mode is not None:
        return source
    template = replace(template, spec=replace(template.spec, volume_mode="Filesystem"))
    return replace(source, volume_claim_template=template)


def _default_image(source: v1.ImageVolumeSource | None) -> v1.ImageVolumeSource | None:
    if source is None or source.pull_policy:
        return source
    return replace(source, pull_policy=pull_policy(source.reference or ""))

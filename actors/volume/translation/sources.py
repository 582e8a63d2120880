"""The CSI source of each in-tree type. Pure. Source: the files in plugins/ of csi-translation-lib."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from proto.v1 import SecretReference
from proto.v1.cluster import CSIPersistentVolumeSource
from proto.v1.volumes import legacy
from proto.v1.volumes.migrated import MIGRATED

UNSPECIFIED = "UNSPECIFIED"
"""GCE's placeholder for a project or zone that only the driver knows."""
_EBS_ID = re.compile(r"vol-[^/]*")
_ACCOUNT = re.compile(r"azure-storage-account-(.+)-secret")
POLICY = "storagepolicyname"


class NotTranslated(Exception):
    """A volume cannot be translated; the message is the library's."""


def ebs(source: legacy.AWSElasticBlockStoreVolumeSource) -> CSIPersistentVolumeSource:
    """An EBS volume, of an ID like vol-1 or aws://ZONE/vol-1. Raises NotTranslated."""
    try:
        handle = _ebs_id(source.volume_id)
    except NotTranslated as problem:
        raise NotTranslated(f"failed to translate Kubernetes ID to EBS Volume ID {problem}") from None
    return CSIPersistentVolumeSource(
        driver=MIGRATED["aws_elastic_block_store"].driver,
        volume_handle=handle,
        read_only=source.read_only,
        fs_type=source.fs_type,
        volume_attributes={"partition": str(source.partition or 0)},
    )


def _ebs_id(name: str) -> str:
    if not name.startswith("aws://"):
        return name
    try:
        found = urlsplit(name).path.strip("/")
    except ValueError as error:
        raise NotTranslated(f"Invalid disk name ({name}): {error}") from None
    if not _EBS_ID.fullmatch(found):
        raise NotTranslated(f"Invalid format for AWS volume ({name})")
    return found


def azure_disk(source: legacy.AzureDiskVolumeSource) -> CSIPersistentVolumeSource:
    """An Azure disk, by its URI."""
    attributes = {"kind": "Managed" if source.kind is None else source.kind, "csi-migration": "true"}
    if source.caching_mode:
        attributes["cachingMode"] = source.caching_mode
    if source.fs_type is not None:
        attributes["fsType"] = source.fs_type
    return CSIPersistentVolumeSource(
        driver=MIGRATED["azure_disk"].driver,
        volume_handle=source.disk_uri,
        read_only=source.read_only,
        fs_type=source.fs_type,
        volume_attributes=attributes,
    )


def azure_file(
    source: legacy.AzureFileVolumeSource | legacy.AzureFilePersistentVolumeSource,
    volume: str,
    namespace: str,
    group: str = "",
) -> CSIPersistentVolumeSource:
    """An Azure file share. `volume`: name of the volume; `namespace` of its Secret; `group`: Azure's resource group."""
    found = _ACCOUNT.search(source.secret_name)
    account = found[1] if found else source.secret_name
    return CSIPersistentVolumeSource(
        driver=MIGRATED["azure_file"].driver,
        volume_handle="#".join((group, account, source.share_name, volume, namespace)),
        read_only=source.read_only,
        volume_attributes={"sharename": source.share_name},
        node_stage_secret_ref=SecretReference(name=source.secret_name, namespace=namespace),
    )


def cinder(
    source: legacy.CinderVolumeSource | legacy.CinderPersistentVolumeSource,
) -> CSIPersistentVolumeSource:
    """An OpenStack volume; the driver has credentials of its own, so the volume's Secret is not used."""
    return CSIPersistentVolumeSource(
        driver=MIGRATED["cinder"].driver,
        volume_handle=source.volume_id,
        read_only=source.read_only,
        fs_type=source.fs_type,
    )


def gce(source: legacy.GCEPersistentDiskVolumeSource, zones: tuple[str, ...] = ()) -> CSIPersistentVolumeSource:
    """A GCE disk, regional with several zones. Raises NotTranslated."""
    place = f"zones/{zones[0] if zones else UNSPECIFIED}"
    if len(zones) > 1:
        place = f"regions/{_gce_region(zones)}"
    return CSIPersistentVolumeSource(
        driver=MIGRATED["gce_persistent_disk"].driver,
        volume_handle=f"projects/{UNSPECIFIED}/{place}/disks/{source.pd_name}",
        read_only=source.read_only,
        fs_type=source.fs_type,
        volume_attributes={"partition": str(source.partition or "")},
    )


def _gce_region(zones: tuple[str, ...]) -> str:
    # us-east1 of us-east1-a.
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            text = f"zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            raise NotTranslated(f"failed to get region from zones: {text}")
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        text = f"multiple or no regions gotten from zones, got: {' '.join(sorted(regions))}"
        raise NotTranslated(f"failed to get region from zones: {text}")
    return regions.pop()


def portworx(
    source: legacy.PortworxVolumeSource, secret: SecretReference | None = None
) -> CSIPersistentVolumeSource:  # fmt: skip
    """A Portworx volume. Unlike upstream's it stays read-only: the node publishes it so."""
    return CSIPersistentVolumeSource(
        driver=MIGRATED["portworx_volume"].driver,
        volume_handle=source.volume_id,
        read_only=source.read_only,
        fs_type=source.fs_type,
        controller_publish_secret_ref=secret,
        node_stage_secret_ref=secret,
        node_publish_secret_ref=secret,
        controller_expand_secret_ref=secret,
        node_expand_secret_ref=secret,
    )


def vsphere(source: legacy.VsphereVirtualDiskVolumeSource) -> CSIPersistentVolumeSource:
    """A vSphere virtual disk, by its path."""
    return CSIPersistentVolumeSource(
        driver=MIGRATED["vsphere_volume"].driver,
        volume_handle=source.volume_path,
        fs_type=source.fs_type,
        volume_attributes={POLICY: source.storage_policy_name} if source.storage_policy_name else {},
    )

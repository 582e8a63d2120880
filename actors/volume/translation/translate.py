"""Translates a PersistentVolume or a pod's volume of an in-tree type to a PersistentVolume of its CSI driver. Pure.

Source: translate.go of csi-translation-lib, and pkg/volume/csimigration. Controllers translate in the same way: names,
handles and access modes must be theirs, so that a volume's attachment is found.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.volume.translation import sources
from actors.volume.translation.sources import NotTranslated
from actors.volume.translation.topology import BETA, DELIMITER, STABLE, with_zone, with_zone_and_region
from proto.v1 import ObjectMeta, SecretReference, Volume
from proto.v1.cluster import CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeSpec
from proto.v1.volumes.migrated import MIGRATED

RESOURCE_GROUP = "kubernetes.io/azure-file-resource-group"
"""Annotation of a PersistentVolume: Azure's resource group of the storage account."""
PORTWORX_SECRET = "openstorage.io/auth-secret-name"
PORTWORX_SECRET_NAMESPACE = "openstorage.io/auth-secret-namespace"
_ONCE, _READ, _MANY = "ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"
_ZONES = {
    "aws_elastic_block_store": "topology.ebs.csi.aws.com/zone",
    "cinder": "topology.cinder.csi.openstack.org/zone",
    "gce_persistent_disk": "topology.gke.io/zone",
}
"""Topology keys of the drivers. Shares, Portworx volumes and Azure's disks keep the affinity they have."""
_VSPHERE_ZONE, _VSPHERE_REGION = "topology.csi.vmware.com/zone", "topology.csi.vmware.com/region"


def message(problem: NotTranslated) -> str:
    """The kubelet's message for a volume that cannot be translated."""
    return f"failed to translate in-tree pv to CSI: {problem}"


def migrated_type(spec: PersistentVolumeSpec | Volume) -> str:
    """The in-tree type, as a key of MIGRATED; empty for other volumes."""
    return next((name for name in MIGRATED if getattr(spec, name) is not None), "")


def persistent(volume: PersistentVolume) -> PersistentVolume:
    """The PersistentVolume with its CSI source, topology and access modes. Raises NotTranslated."""
    kind = migrated_type(volume.spec)
    source = _persistent_source(kind, volume)
    _check(source, volume.metadata.name)
    if kind in _ZONES:
        volume = with_zone(volume, _ZONES[kind])
    elif kind == "vsphere_volume":
        volume = with_zone_and_region(volume, _VSPHERE_ZONE, _VSPHERE_REGION)
    spec = replace(volume.spec, csi=source, **{kind: None})
    if kind == "gce_persistent_disk" and spec.access_modes:
        spec = replace(spec, access_modes=(_gce_access_mode(spec.access_modes),))
    return replace(volume, spec=spec)


def _persistent_source(kind: str, volume: PersistentVolume) -> CSIPersistentVolumeSource:
    spec, meta = volume.spec, volume.metadata
    if spec.azure_file is not None:
        claim = spec.claim_ref.namespace if spec.claim_ref is not None else None
        namespace = spec.azure_file.secret_namespace
        namespace = claim if namespace is None else namespace
        if not namespace:
            raise NotTranslated("could not find a secret namespace in PersistentVolumeSource or ClaimRef")
        group = meta.annotations.get(RESOURCE_GROUP, "")
        return sources.azure_file(spec.azure_file, meta.name, namespace, group)
    if spec.gce_persistent_disk is not None:
        label = meta.labels.get(BETA.zone) or meta.labels.get(STABLE.zone) or ""
        return sources.gce(spec.gce_persistent_disk, tuple(label.split(DELIMITER)) if label else ())
    if spec.portworx_volume is not None:
        notes, secret = meta.annotations, None
        if PORTWORX_SECRET in notes and PORTWORX_SECRET_NAMESPACE in notes:
            secret = SecretReference(name=notes[PORTWORX_SECRET], namespace=notes[PORTWORX_SECRET_NAMESPACE])
        return sources.portworx(spec.portworx_volume, secret)
    return _simple_source(kind, spec)


def _gce_access_mode(modes: tuple[str, ...]) -> str:
    # The in-tree plugin did not enforce access modes. The driver refuses ReadWriteMany.
    return _READ if _READ in modes and {_ONCE, _MANY}.isdisjoint(modes) else _ONCE


def inline(volume: Volume, namespace: str) -> PersistentVolume:
    """A pod's volume as a PersistentVolume; `namespace` of the pod. Raises NotTranslated."""
    kind, mode = migrated_type(volume), _ONCE
    driver = MIGRATED[kind].driver
    if volume.azure_file is not None:
        source, mode = sources.azure_file(volume.azure_file, volume.name, namespace or "default"), _MANY
        name = source.volume_handle
    elif volume.gce_persistent_disk is not None:
        source = sources.gce(volume.gce_persistent_disk)
        mode = _READ if volume.gce_persistent_disk.read_only else _ONCE
        name = f"{driver}-{volume.gce_persistent_disk.pd_name}"
    elif volume.portworx_volume is not None:
        source = sources.portworx(volume.portworx_volume)
        mode = _READ if volume.portworx_volume.read_only else _ONCE
        name = f"{driver}-{source.volume_handle}"
    else:
        source = _simple_source(kind, volume)
        disk = volume.azure_disk.disk_name if volume.azure_disk is not None else source.volume_handle
        name = f"{driver}-{disk}"
    _check(source, name)
    spec = PersistentVolumeSpec(csi=source, access_modes=(mode,), volume_mode="Filesystem")
    return PersistentVolume(metadata=ObjectMeta(name=name), spec=spec)


def _simple_source(kind: str, spec: PersistentVolumeSpec | Volume) -> CSIPersistentVolumeSource:
    if spec.aws_elastic_block_store is not None:
        return sources.ebs(spec.aws_elastic_block_store)
    if spec.azure_disk is not None:
        return sources.azure_disk(spec.azure_disk)
    if spec.cinder is not None:
        return sources.cinder(spec.cinder)
    if spec.vsphere_volume is not None:
        return sources.vsphere(spec.vsphere_volume)
    raise NotTranslated(f"could not find in-tree plugin translation logic for {kind!r}")


def _check(source: CSIPersistentVolumeSource, name: str) -> None:
    # Both name directories on this node. The API's validation keeps a handle from being empty.
    if not source.volume_handle or "\0" in source.volume_handle + name:
        raise NotTranslated(f"volume handle {source.volume_handle!r} for driver {source.driver} is invalid")

"""Records of in-tree volume sources of cloud and storage vendors.

CSI drivers mount those of `migrated.py`. The others no longer exist; their records keep a pod with such a source
unchanged when it is decoded and encoded.
"""

from proto.v1.meta import LocalObjectReference, SecretReference
from proto.v1.scalars.base import Int32, Record


class GCEPersistentDiskVolumeSource(Record, frozen=True, kw_only=True):
    """A GCE disk."""

    pd_name: str = ""
    fs_type: str | None = None
    partition: Int32 | None = None
    read_only: bool | None = None


class AWSElasticBlockStoreVolumeSource(Record, frozen=True, kw_only=True):
    """An EBS volume."""

    volume_id: str = ""
    fs_type: str | None = None
    partition: Int32 | None = None
    read_only: bool | None = None


class GitRepoVolumeSource(Record, frozen=True, kw_only=True):
    """A git checkout; disabled in Kubernetes since 1.33."""

    repository: str = ""
    revision: str | None = None
    directory: str | None = None


class GlusterfsVolumeSource(Record, frozen=True, kw_only=True):
    """A Glusterfs volume."""

    endpoints: str = ""
    path: str = ""
    read_only: bool | None = None


class RBDVolumeSource(Record, frozen=True, kw_only=True):
    """A Ceph block device."""

    monitors: tuple[str, ...] = ()
    image: str = ""
    fs_type: str | None = None
    pool: str | None = None
    user: str | None = None
    keyring: str | None = None
    secret_ref: LocalObjectReference | None = None
    read_only: bool | None = None


class FlexVolumeSource(Record, frozen=True, kw_only=True):
    """A volume of an exec-based plugin."""

    driver: str = ""
    fs_type: str | None = None
    secret_ref: LocalObjectReference | None = None
    read_only: bool | None = None
    options: dict[str, str] = {}


class CinderVolumeSource(Record, frozen=True, kw_only=True):
    """An OpenStack volume."""

    volume_id: str = ""
    fs_type: str | None = None
    read_only: bool | None = None
    secret_ref: LocalObjectReference | None = None


class CinderPersistentVolumeSource(Record, frozen=True, kw_only=True):
    """An OpenStack volume of a PersistentVolume."""

    volume_id: str = ""
    fs_type: str | None = None
    read_only: bool | None = None
    secret_ref: SecretReference | None = None


class CephFSVolumeSource(Record, frozen=True, kw_only=True):
    """A Ceph file system."""

    monitors: tuple[str, ...] = ()
    path: str | None = None
    user: str | None = None
    secret_file: str | None = None
    secret_ref: LocalObjectReference | None = None
    read_only: bool | None = None


class FlockerVolumeSource(Record, frozen=True, kw_only=True):
    """A Flocker dataset."""

    dataset_name: str | None = None
    dataset_uuid: str | None = None


class AzureFileVolumeSource(Record, frozen=True, kw_only=True):
    """An Azure file share."""

    secret_name: str = ""
    share_name: str = ""
    read_only: bool | None = None


class AzureFilePersistentVolumeSource(Record, frozen=True, kw_only=True):
    """An Azure file share of a PersistentVolume. `secret_namespace` unset: the claim's namespace."""

    secret_name: str = ""
    share_name: str = ""
    read_only: bool | None = None
    secret_namespace: str | None = None


class VsphereVirtualDiskVolumeSource(Record, frozen=True, kw_only=True):
    """A vSphere virtual disk."""

    volume_path: str = ""
    fs_type: str | None = None
    storage_policy_name: str | None = None
    storage_policy_id: str | None = None


class QuobyteVolumeSource(Record, frozen=True, kw_only=True):
    """A Quobyte volume."""

    registry: str = ""
    volume: str = ""
    read_only: bool | None = None
    user: str | None = None
    group: str | None = None
    tenant: str | None = None


class AzureDiskVolumeSource(Record, frozen=True, kw_only=True):
    """An Azure disk."""

    disk_name: str = ""
    disk_uri: str = ""
    caching_mode: str | None = None
    fs_type: str | None = None
    read_only: bool | None = None
    kind: str | None = None


class PhotonPersistentDiskVolumeSource(Record, frozen=True, kw_only=True):
    """A Photon Controller disk."""

    pd_id: str = ""
    fs_type: str | None = None


class PortworxVolumeSource(Record, frozen=True, kw_only=True):
    """A Portworx volume."""

    volume_id: str = ""
    fs_type: str | None = None
    read_only: bool | None = None


class ScaleIOVolumeSource(Record, frozen=True, kw_only=True):
    """A ScaleIO volume."""

    gateway: str = ""
    system: str = ""
    secret_ref: LocalObjectReference | None = None
    ssl_enabled: bool | None = None
    protection_domain: str | None = None
    storage_pool: str | None = None
    storage_mode: str | None = None
    volume_name: str | None = None
    fs_type: str | None = None
    read_only: bool | None = None


class StorageOSVolumeSource(Record, frozen=True, kw_only=True):
    """A StorageOS volume."""

    volume_name: str | None = None
    volume_namespace: str | None = None
    fs_type: str | None = None
    read_only: bool | None = None
    secret_ref: LocalObjectReference | None = None

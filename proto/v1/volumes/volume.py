"""Records of Volume and of the sources that the node or a CSI driver mounts.

In-tree sources of vendors are in `legacy.py`, the parts of a projected volume in `projected.py`.
"""

from proto.v1.containers.resources import VolumeResourceRequirements
from proto.v1.meta import (
    LabelSelector,
    LocalObjectReference,
    ObjectMeta,
    TypedLocalObjectReference,
    TypedObjectReference,
)
from proto.v1.scalars.base import Int32, Quantity, Record
from proto.v1.volumes import legacy
from proto.v1.volumes.projected import (
    ConfigMapVolumeSource,
    DownwardAPIVolumeSource,
    ProjectedVolumeSource,
    SecretVolumeSource,
)


class HostPathVolumeSource(Record, frozen=True, kw_only=True):
    """A path of the node; `type` says what must be there (Directory, FileOrCreate, ...); empty is not checked."""

    path: str = ""
    type: str | None = None


class EmptyDirVolumeSource(Record, frozen=True, kw_only=True):
    """A directory that lives as long as the pod; medium empty (disk), Memory or HugePages[-SIZE]."""

    medium: str | None = None
    size_limit: Quantity | None = None


class NFSVolumeSource(Record, frozen=True, kw_only=True):
    """An NFS export."""

    server: str = ""
    path: str = ""
    read_only: bool | None = None


class ISCSIVolumeSource(Record, frozen=True, kw_only=True):
    """An iSCSI LUN."""

    target_portal: str = ""
    iqn: str = ""
    lun: Int32 = 0
    iscsi_interface: str | None = None
    fs_type: str | None = None
    read_only: bool | None = None
    portals: tuple[str, ...] = ()
    chap_auth_discovery: bool | None = None
    chap_auth_session: bool | None = None
    secret_ref: LocalObjectReference | None = None
    initiator_name: str | None = None


class FCVolumeSource(Record, frozen=True, kw_only=True):
    """A Fibre Channel LUN."""

    target_wwns: tuple[str, ...] = ()
    lun: Int32 | None = None
    fs_type: str | None = None
    read_only: bool | None = None
    wwids: tuple[str, ...] = ()


class CSIVolumeSource(Record, frozen=True, kw_only=True):
    """An inline ephemeral CSI volume."""

    driver: str = ""
    read_only: bool | None = None
    fs_type: str | None = None
    volume_attributes: dict[str, str] = {}
    node_publish_secret_ref: LocalObjectReference | None = None


class PersistentVolumeClaimVolumeSource(Record, frozen=True, kw_only=True):
    """A PersistentVolumeClaim of the pod's namespace."""

    claim_name: str = ""
    read_only: bool | None = None


class PersistentVolumeClaimSpec(Record, frozen=True, kw_only=True):
    """The requested properties of a claim."""

    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: VolumeResourceRequirements = VolumeResourceRequirements()
    volume_name: str | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    data_source: TypedLocalObjectReference | None = None
    data_source_ref: TypedObjectReference | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimTemplate(Record, frozen=True, kw_only=True):
    """The claim made for a pod's generic ephemeral volume."""

    metadata: ObjectMeta | None = None
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class EphemeralVolumeSource(Record, frozen=True, kw_only=True):
    """A claim that lives as long as the pod."""

    volume_claim_template: PersistentVolumeClaimTemplate | None = None


class ImageVolumeSource(Record, frozen=True, kw_only=True):
    """An OCI object mounted read-only (KEP-4639)."""

    reference: str | None = None
    pull_policy: str | None = None


class Volume(Record, frozen=True, kw_only=True):
    """A named volume and at most one source; none means emptyDir."""

    name: str = ""
    host_path: HostPathVolumeSource | None = None
    empty_dir: EmptyDirVolumeSource | None = None
    gce_persistent_disk: legacy.GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: legacy.AWSElasticBlockStoreVolumeSource | None = None
    git_repo: legacy.GitRepoVolumeSource | None = None
    secret: SecretVolumeSource | None = None
    nfs: NFSVolumeSource | None = None
    iscsi: ISCSIVolumeSource | None = None
    glusterfs: legacy.GlusterfsVolumeSource | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    rbd: legacy.RBDVolumeSource | None = None
    flex_volume: legacy.FlexVolumeSource | None = None
    cinder: legacy.CinderVolumeSource | None = None
    cephfs: legacy.CephFSVolumeSource | None = None
    flocker: legacy.FlockerVolumeSource | None = None
    downward_api: DownwardAPIVolumeSource | None = None
    fc: FCVolumeSource | None = None
    azure_file: legacy.AzureFileVolumeSource | None = None
    config_map: ConfigMapVolumeSource | None = None
    vsphere_volume: legacy.VsphereVirtualDiskVolumeSource | None = None
    quobyte: legacy.QuobyteVolumeSource | None = None
    azure_disk: legacy.AzureDiskVolumeSource | None = None
    photon_persistent_disk: legacy.PhotonPersistentDiskVolumeSource | None = None
    projected: ProjectedVolumeSource | None = None
    portworx_volume: legacy.PortworxVolumeSource | None = None
    scale_io: legacy.ScaleIOVolumeSource | None = None
    storageos: legacy.StorageOSVolumeSource | None = None
    csi: CSIVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    image: ImageVolumeSource | None = None


VOLUME_SOURCES: tuple[str, ...] = tuple(field for field in Volume.__struct_fields__ if field != "name")
"""Attribute names of Volume of which at most one is set."""

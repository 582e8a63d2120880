"""Cluster objects that a node reads: Service, RuntimeClass, PriorityClass, persistent volumes, CSI drivers, claims.

The records are from the v1 groups core, node.k8s.io, scheduling.k8s.io, storage.k8s.io and resource.k8s.io. Fields that
only controllers or the scheduler read are left out.
"""

from proto.v1.meta import Object, ObjectReference, SecretReference
from proto.v1.scalars.base import Int32, Int64, IntOrString, Record, ResourceList
from proto.v1.scheduling import NodeSelector, Toleration
from proto.v1.volumes import legacy
from proto.v1.volumes.volume import HostPathVolumeSource, NFSVolumeSource, PersistentVolumeClaimSpec


class ServicePort(Record, frozen=True, kw_only=True):
    """A port of a Service; `protocol` empty is TCP."""

    name: str | None = None
    protocol: str | None = None
    app_protocol: str | None = None
    port: Int32 = 0
    target_port: IntOrString | None = None
    node_port: Int32 | None = None


class ServiceSpec(Record, frozen=True, kw_only=True):
    """Ports and addresses of a Service. `cluster_ip` empty or `None`: a headless Service."""

    ports: tuple[ServicePort, ...] = ()
    selector: dict[str, str] = {}
    cluster_ip: str = ""
    cluster_ips: tuple[str, ...] = ()
    type: str | None = None
    external_name: str | None = None


class Service(Object, frozen=True, kw_only=True):
    """A name and address for pods."""

    spec: ServiceSpec = ServiceSpec()


class Overhead(Record, frozen=True, kw_only=True):
    """Resources of the sandbox itself."""

    pod_fixed: ResourceList = {}


class RuntimeClassScheduling(Record, frozen=True, kw_only=True):
    """Nodes with the handler."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(Object, frozen=True, kw_only=True):
    """A name for a runtime's handler (node.k8s.io/v1)."""

    handler: str = ""
    overhead: Overhead | None = None
    scheduling: RuntimeClassScheduling | None = None


class PriorityClass(Object, frozen=True, kw_only=True):
    """A name for a priority (scheduling.k8s.io/v1)."""

    value: Int32 = 0
    global_default: bool | None = None
    description: str | None = None
    preemption_policy: str | None = None


class LocalVolumeSource(Record, frozen=True, kw_only=True):
    """A directory or block device of one node."""

    path: str = ""
    fs_type: str | None = None


class CSIPersistentVolumeSource(Record, frozen=True, kw_only=True):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""
    read_only: bool | None = None
    fs_type: str | None = None
    volume_attributes: dict[str, str] = {}
    controller_publish_secret_ref: SecretReference | None = None
    node_stage_secret_ref: SecretReference | None = None
    node_publish_secret_ref: SecretReference | None = None
    controller_expand_secret_ref: SecretReference | None = None
    node_expand_secret_ref: SecretReference | None = None


class VolumeNodeAffinity(Record, frozen=True, kw_only=True):
    """Nodes that can use the volume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Record, frozen=True, kw_only=True):
    """A volume and the claim that it is bound to."""

    capacity: ResourceList = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    persistent_volume_reclaim_policy: str | None = None
    storage_class_name: str | None = None
    mount_options: tuple[str, ...] = ()
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    host_path: HostPathVolumeSource | None = None
    local: LocalVolumeSource | None = None
    nfs: NFSVolumeSource | None = None
    csi: CSIPersistentVolumeSource | None = None
    aws_elastic_block_store: legacy.AWSElasticBlockStoreVolumeSource | None = None
    azure_disk: legacy.AzureDiskVolumeSource | None = None
    azure_file: legacy.AzureFilePersistentVolumeSource | None = None
    cinder: legacy.CinderPersistentVolumeSource | None = None
    gce_persistent_disk: legacy.GCEPersistentDiskVolumeSource | None = None
    portworx_volume: legacy.PortworxVolumeSource | None = None
    vsphere_volume: legacy.VsphereVirtualDiskVolumeSource | None = None


class PersistentVolume(Object, frozen=True, kw_only=True):
    """A volume of the cluster, without namespace."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class PersistentVolumeClaimStatus(Record, frozen=True, kw_only=True):
    """The phase of a claim (Pending, Bound or Lost) and the bound volume's capacity."""

    phase: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: ResourceList = {}
    allocated_resources: ResourceList = {}
    """Size to which the controllers expand the volume, or have expanded it (KEP-1790); empty: none, or older ones."""
    allocated_resource_statuses: dict[str, str] = {}
    """State of an expansion by resource (KEP-1790); empty: none."""


class PersistentVolumeClaim(Object, frozen=True, kw_only=True):
    """A pod's claim on storage. `spec.volume_name` is its PersistentVolume."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class TokenRequest(Record, frozen=True, kw_only=True):
    """A service account token that a CSI driver needs for each pod."""

    audience: str = ""
    expiration_seconds: Int64 | None = None


class CSIDriverSpec(Record, frozen=True, kw_only=True):
    """Requirements of a CSI driver. `attach_required` unset is true."""

    attach_required: bool | None = None
    pod_info_on_mount: bool | None = None
    volume_lifecycle_modes: tuple[str, ...] = ()
    fs_group_policy: str | None = None
    token_requests: tuple[TokenRequest, ...] = ()
    service_account_token_in_secrets: bool | None = None
    requires_republish: bool | None = None
    se_linux_mount: bool | None = None
    """Its volumes may be mounted with `context=LABEL` (KEP-1710)."""
    node_allocatable_update_period_seconds: Int64 | None = None


class CSIDriver(Object, frozen=True, kw_only=True):
    """A CSI driver (storage.k8s.io/v1), by its registered name."""

    spec: CSIDriverSpec = CSIDriverSpec()


class VolumeError(Record, frozen=True, kw_only=True):
    """The reason of a failed attachment."""

    message: str = ""
    error_code: Int32 | None = None
    """The driver's gRPC code, if the attacher reports it (KEP-4876)."""


class VolumeAttachmentStatus(Record, frozen=True, kw_only=True):
    """State of an attachment, with metadata from the driver's controller for its node plugin."""

    attached: bool = False
    attachment_metadata: dict[str, str] = {}
    attach_error: VolumeError | None = None


class VolumeAttachment(Object, frozen=True, kw_only=True):
    """The attachment of a volume to a node (storage.k8s.io/v1)."""

    status: VolumeAttachmentStatus = VolumeAttachmentStatus()


class DeviceRequestAllocationResult(Record, frozen=True, kw_only=True):
    """A device that is allocated for one request of a claim."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""


class DeviceAllocationResult(Record, frozen=True, kw_only=True):
    """All devices that are allocated to a claim."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()


class AllocationResult(Record, frozen=True, kw_only=True):
    """The allocation of a claim, made by the scheduler."""

    devices: DeviceAllocationResult = DeviceAllocationResult()


class ResourceClaimConsumerReference(Record, frozen=True, kw_only=True):
    """A user of a claim: `resource` is `pods`."""

    api_group: str | None = None
    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimStatus(Record, frozen=True, kw_only=True):
    """The allocation of a claim, and the pods that may use it."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()


class ResourceClaim(Object, frozen=True, kw_only=True):
    """A claim on devices (resource.k8s.io/v1). Only the scheduler reads its spec."""

    status: ResourceClaimStatus = ResourceClaimStatus()

"""Services, classes, and all about persistent volumes and their drivers, as far as a node reads them.

Covers the records of core/v1, node.k8s.io/v1, scheduling.k8s.io/v1 and storage.k8s.io/v1. Does not cover what
controllers and the scheduler make of them; fields that only those read are carried by nobody.
"""

from proto.v1.meta import Object, ObjectReference, SecretReference
from proto.v1.scalars.base import IntOrString, Record, ResourceList
from proto.v1.scheduling import NodeSelector, Toleration
from proto.v1.volumes.volume import HostPathVolumeSource, NFSVolumeSource, PersistentVolumeClaimSpec


class ServicePort(Record, frozen=True, kw_only=True):
    """A port of a Service; `protocol` empty is TCP."""

    name: str | None = None
    protocol: str | None = None
    app_protocol: str | None = None
    port: int = 0
    target_port: IntOrString | None = None
    node_port: int | None = None


class ServiceSpec(Record, frozen=True, kw_only=True):
    """How a Service is reached. `cluster_ip` empty or `None`: it has no address of its own."""

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
    """What the sandbox itself takes."""

    pod_fixed: ResourceList = {}


class RuntimeClassScheduling(Record, frozen=True, kw_only=True):
    """Which nodes have the handler."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(Object, frozen=True, kw_only=True):
    """A name for a runtime's handler (node.k8s.io/v1)."""

    handler: str = ""
    overhead: Overhead | None = None
    scheduling: RuntimeClassScheduling | None = None


class PriorityClass(Object, frozen=True, kw_only=True):
    """A name for a priority (scheduling.k8s.io/v1)."""

    value: int = 0
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
    """Nodes from which the volume can be used."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Record, frozen=True, kw_only=True):
    """A piece of storage and who has claimed it."""

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


class PersistentVolume(Object, frozen=True, kw_only=True):
    """A piece of storage, in no namespace."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class PersistentVolumeClaimStatus(Record, frozen=True, kw_only=True):
    """How far a claim has come: Pending, Bound or Lost, and what it got."""

    phase: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: ResourceList = {}
    allocated_resource_statuses: dict[str, str] = {}
    """How far a growth is, by resource (KEP-1790); empty where nobody keeps it, or nothing grows."""


class PersistentVolumeClaim(Object, frozen=True, kw_only=True):
    """A pod's claim on storage; `spec.volume_name` is the volume it is bound to."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class TokenRequest(Record, frozen=True, kw_only=True):
    """A service account token that a CSI driver wants for each pod."""

    audience: str = ""
    expiration_seconds: int | None = None


class CSIDriverSpec(Record, frozen=True, kw_only=True):
    """What a CSI driver needs of whoever calls it. `attach_required` unset is true."""

    attach_required: bool | None = None
    pod_info_on_mount: bool | None = None
    volume_lifecycle_modes: tuple[str, ...] = ()
    fs_group_policy: str | None = None
    token_requests: tuple[TokenRequest, ...] = ()
    service_account_token_in_secrets: bool | None = None
    requires_republish: bool | None = None
    node_allocatable_update_period_seconds: int | None = None


class CSIDriver(Object, frozen=True, kw_only=True):
    """A CSI driver (storage.k8s.io/v1); its name is the one it registers with."""

    spec: CSIDriverSpec = CSIDriverSpec()


class VolumeError(Record, frozen=True, kw_only=True):
    """Why a volume could not be attached."""

    message: str = ""
    error_code: int | None = None
    """The driver's gRPC code, where the attacher passes it on (KEP-4876)."""


class VolumeAttachmentStatus(Record, frozen=True, kw_only=True):
    """How far an attachment has come, and what the driver's controller wants its node part to know."""

    attached: bool = False
    attachment_metadata: dict[str, str] = {}
    attach_error: VolumeError | None = None


class VolumeAttachment(Object, frozen=True, kw_only=True):
    """A volume at a node (storage.k8s.io/v1)."""

    status: VolumeAttachmentStatus = VolumeAttachmentStatus()

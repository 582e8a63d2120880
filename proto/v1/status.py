"""Records of a pod's status: phase, conditions and container states.

As in Go, a container's `ready`, `restartCount`, `image`, `imageID`, `state` and `lastState` are always encoded.
"""

from msgspec import field

from proto.v1.containers.resources import ResourceRequirements
from proto.v1.scalars.base import Int32, Int64, Record, ResourceList, Timestamp
from proto.v1.scalars.resource_name import may_be_claimed


class PodIP(Record, frozen=True, kw_only=True):
    """An address of the pod."""

    ip: str = ""


class HostIP(Record, frozen=True, kw_only=True):
    """An address of the node."""

    ip: str = ""


class PodCondition(Record, frozen=True, kw_only=True):
    """One condition; status is True, False or Unknown."""

    type: str = ""
    observed_generation: Int64 | None = None
    status: str = ""
    last_probe_time: Timestamp | None = None
    last_transition_time: Timestamp | None = None
    reason: str | None = None
    message: str | None = None


class ContainerStateWaiting(Record, frozen=True, kw_only=True):
    """A container that waits, and the reason."""

    reason: str | None = None
    message: str | None = None


class ContainerStateRunning(Record, frozen=True, kw_only=True):
    """A running container's start time."""

    started_at: Timestamp | None = None


class ContainerStateTerminated(Record, frozen=True, kw_only=True):
    """The end of a container; `exit_code` is always encoded."""

    exit_code: Int32 = field(default_factory=int)
    signal: Int32 | None = None
    reason: str | None = None
    message: str | None = None
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    container_id: str | None = None


class ContainerState(Record, frozen=True, kw_only=True):
    """At most one of the three; none means waiting."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ImageVolumeStatus(Record, frozen=True, kw_only=True):
    """The digest an image volume was mounted from (KEP-5365)."""

    image_ref: str = ""


class VolumeStatus(Record, frozen=True, kw_only=True):
    """The status of a mounted volume, by kind."""

    image: ImageVolumeStatus | None = None


class VolumeMountStatus(Record, frozen=True, kw_only=True):
    """The result of a volume mount."""

    name: str = ""
    mount_path: str = ""
    read_only: bool | None = None
    recursive_read_only: str | None = None
    volume_status: VolumeStatus | None = None


class LinuxContainerUser(Record, frozen=True, kw_only=True):
    """The first process's user and groups (KEP-3619)."""

    uid: Int64 = field(default_factory=int)
    gid: Int64 = field(default_factory=int)
    supplemental_groups: tuple[Int64, ...] = ()


class ContainerUser(Record, frozen=True, kw_only=True):
    """The user of a container by operating system."""

    linux: LinuxContainerUser | None = None


class ResourceHealth(Record, frozen=True, kw_only=True):
    """A device's health: Healthy, Unhealthy, Unknown."""

    resource_id: str = ""
    health: str | None = None
    message: str | None = None


class ResourceStatus(Record, frozen=True, kw_only=True):
    """The devices behind a resource of a container (KEP-4680)."""

    name: str = ""
    resources: tuple[ResourceHealth, ...] = ()


class ContainerStatus(Record, frozen=True, kw_only=True):
    """The status of one container."""

    name: str = field(default_factory=str)
    state: ContainerState = field(default_factory=ContainerState)
    last_state: ContainerState = field(name="lastState", default_factory=ContainerState)
    ready: bool = field(default_factory=bool)
    restart_count: Int32 = field(name="restartCount", default_factory=int)
    image: str = field(default_factory=str)
    image_id: str = field(name="imageID", default_factory=str)
    container_id: str | None = None
    started: bool | None = None
    allocated_resources: ResourceList = {}
    resources: ResourceRequirements | None = None
    volume_mounts: tuple[VolumeMountStatus, ...] = ()
    user: ContainerUser | None = None
    allocated_resources_status: tuple[ResourceStatus, ...] = ()
    stop_signal: str | None = None


class PodResourceClaimStatus(Record, frozen=True, kw_only=True):
    """The ResourceClaim made for an entry of spec.resourceClaims."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Record, frozen=True, kw_only=True):
    """The request of a claim behind a container's extended resource (KEP-5004)."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(Record, frozen=True, kw_only=True):
    """The claim behind extended resources."""

    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    resource_claim_name: str = ""


class NodeAllocatableResourceClaimStatus(Record, frozen=True, kw_only=True):
    """Node resources (cpu, memory) that containers have through a claim (KEP-5517)."""

    resource_claim_name: str = ""
    containers: tuple[str, ...] = ()
    resources: ResourceList = {}


class PodStatus(Record, frozen=True, kw_only=True):
    """The whole status of a pod."""

    observed_generation: Int64 | None = None
    phase: str | None = None
    conditions: tuple[PodCondition, ...] = ()
    message: str | None = None
    reason: str | None = None
    nominated_node_name: str | None = None
    host_ip: str | None = None
    host_ips: tuple[HostIP, ...] = ()
    pod_ip: str | None = None
    pod_ips: tuple[PodIP, ...] = ()
    start_time: Timestamp | None = None
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    qos_class: str | None = None
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()
    resize: str | None = None
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    allocated_resources: ResourceList = {}
    resources: ResourceRequirements | None = None
    node_allocatable_resource_claim_statuses: tuple[NodeAllocatableResourceClaimStatus, ...] = ()


NO_STATUS = PodStatus()


def claimed_resources(status: PodStatus, container: str) -> frozenset[str]:
    """Extended resources that the container gets from the pod's claim, not from the node (KEP-5004)."""
    extended = status.extended_resource_claim_status
    mappings = extended.request_mappings if extended is not None else ()
    return frozenset(
        one.resource_name for one in mappings if one.container_name == container and may_be_claimed(one.resource_name)
    )

"""Records of Pod, PodSpec and PodList. Containers, volumes, scheduling, security and status have their own modules."""

from msgspec import field

from proto.v1.containers.container import Container, EphemeralContainer
from proto.v1.containers.resources import PodResourceClaim, ResourceRequirements
from proto.v1.containers.security import PodSecurityContext
from proto.v1.meta import EMPTY_LIST_META, ListMeta, LocalObjectReference, Object
from proto.v1.scalars.base import Int32, Int64, Record, ResourceList
from proto.v1.scheduling import (
    Affinity,
    PodSchedulingGate,
    PodSchedulingGroup,
    Toleration,
    TopologySpreadConstraint,
)
from proto.v1.status import NO_STATUS, PodStatus
from proto.v1.volumes.volume import Volume


class PodDNSConfigOption(Record, frozen=True, kw_only=True):
    """A resolver option such as `ndots`."""

    name: str | None = None
    value: str | None = None


class PodDNSConfig(Record, frozen=True, kw_only=True):
    """Resolver settings, merged into those of dnsPolicy."""

    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[PodDNSConfigOption, ...] = ()


class HostAlias(Record, frozen=True, kw_only=True):
    """Names for an address in the pod's /etc/hosts."""

    ip: str = ""
    hostnames: tuple[str, ...] = ()


class PodReadinessGate(Record, frozen=True, kw_only=True):
    """A further condition for the pod's readiness."""

    condition_type: str = ""


class PodOS(Record, frozen=True, kw_only=True):
    """`linux` or `windows`."""

    name: str = ""


class PodSpec(Record, frozen=True, kw_only=True):
    """The desired state of a pod."""

    volumes: tuple[Volume, ...] = ()
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[EphemeralContainer, ...] = ()
    restart_policy: str | None = None
    termination_grace_period_seconds: Int64 | None = None
    active_deadline_seconds: Int64 | None = None
    dns_policy: str | None = None
    node_selector: dict[str, str] = {}
    service_account_name: str | None = None
    service_account: str | None = None
    automount_service_account_token: bool | None = None
    node_name: str | None = None
    host_network: bool | None = None
    host_pid: bool | None = None
    host_ipc: bool | None = None
    share_process_namespace: bool | None = None
    security_context: PodSecurityContext | None = None
    image_pull_secrets: tuple[LocalObjectReference, ...] = ()
    hostname: str | None = None
    subdomain: str | None = None
    affinity: Affinity | None = None
    scheduler_name: str | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_aliases: tuple[HostAlias, ...] = ()
    priority_class_name: str | None = None
    priority: Int32 | None = None
    dns_config: PodDNSConfig | None = None
    readiness_gates: tuple[PodReadinessGate, ...] = ()
    runtime_class_name: str | None = None
    enable_service_links: bool | None = None
    preemption_policy: str | None = None
    overhead: ResourceList = {}
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    set_hostname_as_fqdn: bool | None = None
    os: PodOS | None = None
    host_users: bool | None = None
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    resources: ResourceRequirements | None = None
    hostname_override: str | None = None
    scheduling_group: PodSchedulingGroup | None = None


NO_SPEC = PodSpec()


class Pod(Object, frozen=True, kw_only=True):
    """A pod: desired state (spec) and present state (status)."""

    spec: PodSpec = NO_SPEC
    status: PodStatus = NO_STATUS


class PodList(Record, frozen=True, kw_only=True):
    """Pods, always encoded with apiVersion, kind and items, because a factory's value counts as set."""

    api_version: str = field(name="apiVersion", default_factory=lambda: "v1")
    kind: str = field(default_factory=lambda: "PodList")
    metadata: ListMeta = EMPTY_LIST_META
    items: tuple[Pod, ...] = field(default_factory=lambda: ())

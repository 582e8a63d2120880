"""Converts requests and limits to the values of cgroup files and of CRI's LinuxContainerResources. Pure.

Sources: pkg/kubelet/cm/helpers_linux.go, pkg/kubelet/qos/policy.go and pkg/kubelet/kuberuntime of Kubernetes 1.36, and
KEP-2837 for resources of the pod as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from actors._cgroup.quantities import memory_qos, totals
from actors._cgroup.quantities.qos import qos_class
from actors._cgroup.quantities.swap import SwapRules, swap_limit_bytes
from actors._host.node.critical import is_node_critical
from proto.v1 import Container, Pod, ResourceRequirements
from proto.v1.scalars.base import ResourceList
from proto.v1.scalars.quantity import milli_value, parse, value

if TYPE_CHECKING:
    from proto.agent.settings import Settings

MIN_SHARES = 2
MAX_SHARES = 262_144
MIN_QUOTA_US = 1_000
"""The kernel rejects a quota below 1 ms."""
MAX_QUOTA_US = (1 << 63) - 1
"""CRI has 64 bits for it."""

GUARANTEED_OOM_SCORE_ADJ = -997
BEST_EFFORT_OOM_SCORE_ADJ = 1000
NO_SWAP_RULES = SwapRules()


@dataclass(frozen=True, slots=True)
class LinuxResources:
    """CRI's LinuxContainerResources with its field names; 0 is unset."""

    cpu_period: int = 0
    """Microseconds."""
    cpu_quota: int = 0
    """Microseconds per period."""
    cpu_shares: int = 0
    memory_limit_in_bytes: int = 0
    oom_score_adj: int = 0
    memory_swap_limit_in_bytes: int = 0
    hugepage_limits: tuple[tuple[str, int], ...] = ()
    """Page size as CRI writes it (`2MB`) and bytes."""
    unified: tuple[tuple[str, str], ...] = ()
    """Files of cgroup v2 and their content."""


@dataclass(frozen=True, slots=True)
class PodLimits:
    """The limits of a pod's cgroup; None keeps the kernel's default."""

    cpu_shares: int | None = None
    cpu_quota_us: int | None = None
    """-1: no limit."""
    cpu_period_us: int | None = None
    memory_bytes: int | None = None
    pids: int | None = None
    memory_min_bytes: int | None = None
    """This and memory_low_bytes only on cgroup v2."""
    huge_pages: tuple[tuple[str, int], ...] = ()
    """Page size as CRI writes it (`2MB`) and bytes."""
    cpus: str = ""
    """A CPU list (`0-3`), on cgroup v2 only; empty keeps the kernel's default."""
    memory_low_bytes: int | None = None


def milli_cpu_to_shares(milli_cpu: int) -> int:
    """Return cpu.shares for a request in thousandths of a core: 1024 for one core, within 2 and 262144."""
    return min(MAX_SHARES, max(MIN_SHARES, milli_cpu * 1024 // 1000))


def milli_cpu_to_quota(milli_cpu: int, period_us: int = 100_000) -> int:
    """Return cpu.cfs_quota_us for a limit in thousandths of a core, 1000 to 2^63-1; 0 for no limit."""
    return min(MAX_QUOTA_US, max(MIN_QUOTA_US, milli_cpu * period_us // 1000)) if milli_cpu else 0


def shares_to_weight(shares: int) -> int:
    """Return cpu.weight of v2 (1 to 10000) for cpu.shares of v1 (2 to 262144), by the kubelet's linear map."""
    return 1 + (min(MAX_SHARES, max(MIN_SHARES, shares)) - MIN_SHARES) * 9999 // 262_142


def weight_to_shares(weight: int) -> int:
    """Return the fewest cpu.shares of v1 that `shares_to_weight` maps to cpu.weight of v2."""
    return MIN_SHARES - (1 - min(10_000, max(1, weight))) * 262_142 // 9999


def shares_to_milli_cpu(shares: int) -> int:
    """Return the request in thousandths of a core for cpu.shares; 0 below MIN_SHARES."""
    return -(-shares * 1000 // 1024) if shares >= MIN_SHARES else 0


def quota_to_milli_cpu(quota_us: int, period_us: int) -> int:
    """Return the limit in thousandths of a core for a quota; 0 for no limit."""
    return quota_us * 1000 // period_us if quota_us > 0 and period_us > 0 else 0


def container_resources(
    pod: Pod,
    container: Container,
    settings: Settings,
    *,
    memory_capacity_bytes: int,
    allocatable_memory_bytes: int = 0,
    page_sizes: Iterable[str] = (),
    swap: SwapRules = NO_SWAP_RULES,
) -> LinuxResources:
    """Return the resources of `container` for CreateContainer and UpdateContainerResources. Raises QuantityError.

    A container without a limit gets its pod's (KEP-2837). `page_sizes`: the machine's huge page sizes
    (`hierarchy.huge_page_sizes`). `allocatable_memory_bytes`: the node's, for Memory QoS. On cgroup v1 an equal limit
    for memory, and for memory and swap, forbids swap.
    """
    limits = with_pod_limits(container.resources.limits, pod.spec.resources)
    basic = _basic(container.resources.requests, limits, settings)
    return replace(
        basic,
        oom_score_adj=oom_score_adj(pod, container, memory_capacity_bytes),
        memory_swap_limit_in_bytes=basic.memory_limit_in_bytes if swap.accounting and not swap.unified else 0,
        hugepage_limits=tuple((size, _container_huge_pages(pod, container, size)) for size in page_sizes),
        unified=_unified(pod, container, settings, swap, allocatable_memory_bytes),
    )


def with_pod_limits(limits: ResourceList, of_pod: ResourceRequirements | None) -> ResourceList:
    """Return a container's limits, with those of its pod that it lacks. Raises QuantityError."""
    own = of_pod.limits if of_pod is not None else {}
    inherited = [name for name in ("cpu", "memory") if name in own and not parse(limits.get(name, 0))]
    return limits | {name: own[name] for name in inherited}


def _unified(
    pod: Pod, container: Container, settings: Settings, swap: SwapRules, allocatable_memory_bytes: int
) -> tuple[tuple[str, str], ...]:
    files = []
    if swap.unified:
        files += memory_qos.container_files(pod, container, settings, allocatable_memory_bytes)
    files += _oom_group(settings, unified=swap.unified)
    swap_bytes = swap_limit_bytes(pod, container, swap)
    if swap_bytes is not None:
        files.append(("memory.swap.max", str(swap_bytes)))
    return tuple(files)


def _oom_group(settings: Settings, *, unified: bool) -> tuple[tuple[str, str], ...]:
    """On cgroup v2, the kernel ends the container as a whole."""
    return (("memory.oom.group", "1"),) if unified and not settings.single_process_oom_kill else ()


def sandbox_resources(pod: Pod, settings: Settings, *, unified: bool = False) -> LinuxResources:
    """Return linux.resources for RunPodSandbox: the sum of the pod's containers. Raises QuantityError.

    `unified`: cgroup v2.
    """
    basic = _basic(totals.requests(pod, overhead=False), totals.limits(pod, overhead=False), settings)
    return replace(basic, unified=_oom_group(settings, unified=unified))


def overhead_resources(pod: Pod, settings: Settings, *, unified: bool = False) -> LinuxResources:
    """Return linux.overhead for RunPodSandbox: spec.overhead, or nothing set. Raises QuantityError.

    `unified`: cgroup v2.
    """
    overhead = pod.spec.overhead
    if not overhead:
        return LinuxResources()
    return replace(_basic(overhead, overhead, settings), unified=_oom_group(settings, unified=unified))


def _basic(requests: ResourceList, limits: ResourceList, settings: Settings) -> LinuxResources:
    limit = milli_value(limits.get("cpu", 0))
    # A limit without a request is a request, too. The API server defaults it, and the kubelet does so again.
    request = milli_value(requests["cpu"]) if "cpu" in requests else limit
    quota, period = settings.cpu_cfs_quota, settings.cpu_cfs_quota_period_us
    return LinuxResources(
        cpu_period=period if quota else 0,
        cpu_quota=milli_cpu_to_quota(limit, period) if quota else 0,
        cpu_shares=milli_cpu_to_shares(request),
        memory_limit_in_bytes=value(limits.get("memory", 0)),
    )


def _container_huge_pages(pod: Pod, container: Container, page_size: str) -> int:
    """Return the container's own limit for pages of a size, a zero included; without one, the pod's limit."""
    of_pod = pod.spec.resources.limits if pod.spec.resources is not None else {}
    return _huge_pages(of_pod | container.resources.limits, page_size)


def _huge_pages(amounts: ResourceList, page_size: str) -> int:
    """Return the bytes of huge pages of `page_size` (`2MB`, the resource hugepages-2Mi)."""
    return value(amounts.get(f"hugepages-{page_size.removesuffix('B')}i", 0))


def oom_score_adj(pod: Pod, container: Container, memory_capacity_bytes: int) -> int:
    """Return /proc/PID/oom_score_adj of a container: a smaller memory request gives a higher score.

    https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-out-of-memory-behavior
    """
    qos = qos_class(pod)
    if is_node_critical(pod) or qos == "Guaranteed":
        return GUARANTEED_OOM_SCORE_ADJ
    if qos == "BestEffort":
        return BEST_EFFORT_OOM_SCORE_ADJ
    share = totals.spare_memory_per_container(pod)
    request = _memory(container)
    if container.restart_policy == "Always" and container in pod.spec.init_containers:
        # A sidecar scores no higher than the main container with the smallest request.
        request = max(request, min((_memory(main) for main in pod.spec.containers), default=0))
    score = 1000 - 1000 * (request + share) // memory_capacity_bytes
    return min(BEST_EFFORT_OOM_SCORE_ADJ - 1, max(1000 + GUARANTEED_OOM_SCORE_ADJ, score))


def _memory(container: Container) -> int:
    return value(container.resources.requests.get("memory", 0))


def pod_limits(pod: Pod, settings: Settings, pids_limit: int = -1, page_sizes: Iterable[str] = ()) -> PodLimits:
    """Return the limits of the pod's cgroup (ResourceConfigForPod). Raises QuantityError.

    A Burstable pod is limited in a resource only when the pod itself or every container limits it. `pids_limit` is
    Settings.pod_pids_limit, -1 for none. `page_sizes` are the machine's huge page sizes: a pod gets the huge pages
    that it requests, and no others.
    """
    pids = pids_limit if pids_limit > 0 else None
    qos, requests = qos_class(pod), totals.requests(pod)
    huge_pages = tuple((size, _huge_pages(requests, size)) for size in page_sizes)
    protected = memory_qos.protection(qos, value(requests.get("memory", 0)), settings)
    common = PodLimits(
        pids=pids, memory_min_bytes=protected.min_bytes, memory_low_bytes=protected.low_bytes, huge_pages=huge_pages
    )
    if qos == "BestEffort":
        return replace(common, cpu_shares=MIN_SHARES)
    limits = totals.limits(pod)
    cpu = qos == "Guaranteed" or totals.all_limited(pod, "cpu")
    memory = qos == "Guaranteed" or totals.all_limited(pod, "memory")
    period = settings.cpu_cfs_quota_period_us
    quota = milli_cpu_to_quota(milli_value(limits.get("cpu", 0)), period) if settings.cpu_cfs_quota else -1
    return replace(
        common,
        cpu_shares=milli_cpu_to_shares(milli_value(requests.get("cpu", 0))),
        cpu_quota_us=quota if cpu else None,
        cpu_period_us=period if cpu else None,
        memory_bytes=value(limits.get("memory", 0)) if memory else None,
    )

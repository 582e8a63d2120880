"""Reads the machine once at the actor's start, and builds the WorkerContext that all pod workers share."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from actors._base import Actor
from actors._base.messaging.ref import RemoteRef
from actors._cgroup.migration_prewarm import MigrationPrewarm
from actors._cri.client import Cri
from actors._cri.errors import CriError, Unimplemented
from actors._cri.relay import RelayedCri
from actors._host import selinux
from actors._host.first_look import machine_of_agent
from actors._host.machine import Machine, thermal_throttle_paths
from actors._host.node.addresses import LOOPBACK, configured_ips, host_ips
from actors._metrics import kubelet as metrics
from actors._objects.peer import objects_of
from actors.pod_workers.admission import NodeInfo, node_info
from actors.pod_workers.checkpoint import Checkpoint
from actors.pod_workers.resources.allocation_manager import AllocationManager
from actors.pod_workers.shared.ends import Ends
from actors.pod_workers.shared.http_hooks import HttpHooks
from actors.pod_workers.shared.managed_resources import ManagedResources
from actors.pod_workers.shared.network import RELAY_S, RuntimeNetwork
from actors.pod_workers.shared.userns import UserNamespaces, user_namespaces
from actors.pod_workers.shared.worker_context import Published, WorkerContext
from proto.agent.settings import Settings
from proto.common.backoff import Backoff
from proto.node.stats import GetThrottling, Throttling
from proto.wire.errors import ActorError

log = logging.getLogger(__name__)


HOST_INFO_S = 30.0
"""Deadline of looks at this machine."""
THROTTLING_S = 2.0
"""Deadline for the figures of a container that is being ended. Its end does not wait for them."""
DRIVER_NEEDED_FROM = "1.37.0"
"""The kubelet that will need the rpc RuntimeConfig, by that of 1.36 (kubernetes/kubernetes#136846)."""


@dataclass(frozen=True)
class HostInfo:
    """The machine as it was when the agent started."""

    machine: Machine
    node: NodeInfo
    userns: UserNamespaces
    masked_paths: tuple[str, ...]
    selinux: bool


def read_host_info(settings: Settings, supervisor_pidfd: int) -> HostInfo:
    """Read the machine. Blocks on the disk. Raises OSError, QuantityError."""
    machine = machine_of_agent(settings.root_dir, settings.run_dir, supervisor_pidfd)
    return HostInfo(
        machine=machine,
        node=node_info(settings, machine),
        userns=user_namespaces(settings.root_dir, settings.user_namespace_ids_per_pod, settings.max_pods),
        masked_paths=thermal_throttle_paths(),
        selinux=selinux.read().enabled,
    )


def find_host_ips(settings: Settings) -> tuple[str, ...]:
    """Return the addresses of this machine, until node tells those of the Node. Blocks on the resolver.

    Return none in a cluster while the machine has none, or if a cloud provider sets them and there is no --node-ip.
    Pods on the host's network would keep wrong ones.
    """
    if settings.kubeconfig and settings.cloud_provider == "external" and not settings.node_ip:
        return ()
    found = host_ips(settings.node_name, settings.node_ip)
    without_any = found == (LOOPBACK,) and configured_ips(settings.node_ip) != found
    return () if settings.kubeconfig and without_any else found


async def compare_driver(asked: Awaitable[str], ours: str, told: Callable[[str], None]) -> str:
    """The reason why no pod may start yet by the runtime's cgroup driver; empty when it is ours, or has no name.

    `asked` is the call, and `told` gets its answer. Where the runtime was away at the agent's start, the agent took the
    driver of the last start or the configured one. As with the kubelet, only a runtime without the rpc, such as
    containerd 1.x, leaves the choice to the configuration; a gauge shows that runtime.
    """
    try:
        driver = await asked
    except Unimplemented:
        metrics.LOSING_SUPPORT.set(1, DRIVER_NEEDED_FROM)
        told("")
        return ""
    except CriError as error:
        return f"it does not tell its cgroup driver: {error}"
    metrics.LOSING_SUPPORT.drop(DRIVER_NEEDED_FROM)
    told(driver)
    if driver in ("", ours):
        return ""
    return f"its cgroup driver is {driver}, the agent's {ours}; the agent ends and has to start again"


def throttling_of(stats: RemoteRef) -> Callable[[str, str], Awaitable[str]]:
    """WorkerContext.throttling by the actor stats; without its answer nothing is said."""

    async def ask(uid: str, container_id: str) -> str:
        try:
            found: Throttling = await stats.ask(GetThrottling(pod_uid=uid, container_id=container_id), THROTTLING_S)
            return found.in_words
        except ActorError as error:
            log.debug("cannot tell whether a CPU limit held container %s back: %s", container_id, error)
            return ""

    return ask


def make_context(
    actor: Actor,
    host: HostInfo,
    allocations: AllocationManager,
    checkpoint: Checkpoint,
    managed: ManagedResources,
    *,
    restored: Collection[str],
    on_new_pod: Callable[[], None],
    on_terminated: Callable[[str], None],
) -> WorkerContext:
    """The context; its callbacks are called in the actor's own thread.

    `restored`: UIDs of pods that come from the checkpoint of API pods alone. `on_new_pod`: a pod was published for the
    first time. `on_terminated`: no process of the pod with this UID runs any more.
    """
    settings, objects = actor.settings, objects_of(actor)
    cri = Cri(
        settings.container_runtime_endpoint,
        settings.image_service_endpoint or None,
        request_seconds=settings.runtime_request_timeout_s,
        after=actor.after,
    )
    return WorkerContext(
        settings=settings,
        cri=cri,
        network=RuntimeNetwork(cri, RelayedCri(actor.peer("pleg"), on_the_way_s=RELAY_S)),
        timers=actor.bus,
        published=Published.to(actor.peer, objects, lambda: actor.post(on_new_pod), cluster=bool(settings.kubeconfig)),
        images=actor.peer("image_pull"),
        volumes=actor.peer("volume"),
        objects=objects,
        container_gc=actor.peer("container_gc"),
        resources=actor.peer("resources"),
        managed=managed,
        http_hooks=HttpHooks(actor),
        blocking=actor.blocking,
        events=allocations.events,
        moves=MigrationPrewarm(),
        allocated=allocations.allocated,
        actuated=allocations.actuated,
        crash_loop=Backoff(
            settings.crash_loop_initial_back_off_s,
            cap_s=settings.crash_loop_max_back_off_s,
            reset_after_s=settings.crash_loop_reset_s,
        ),
        userns=host.userns,
        allocatable=host.node.allocatable,
        host_ips_told=not settings.kubeconfig,
        masked_paths=host.masked_paths,
        selinux=host.selinux,
        restored=restored,
        back_offs=checkpoint.saved.back_offs,
        replaced=checkpoint.saved.replaced,
        ends=Ends(
            checkpoint.saved.ends,
            checkpoint.saved.container_ends,
            lambda: actor.post(checkpoint.save_soon),
            checkpoint.saved.kills,
        ),
        on_back_off=lambda: actor.post(checkpoint.save_soon),
        throttling=throttling_of(actor.peer("stats")),
        outlive_kill=checkpoint.outlive_kill,
        on_terminated=lambda uid: actor.post(on_terminated, uid),
    )

"""The Node that all workers share, put together from the actor's settings and peers."""

from __future__ import annotations

from collections.abc import Callable, Collection

from actors._base import Actor
from actors._cri.client import Cri
from actors._objects.peer import objects_of
from actors.pod_workers.model.back_off import BackOffLimits
from actors.pod_workers.resources.allocation_manager import AllocationManager
from actors.pod_workers.shared.host_info import HostInfo
from actors.pod_workers.shared.http_hooks import HttpHooks
from actors.pod_workers.shared.worker_context import Published, WorkerContext


def make_context(
    actor: Actor,
    host: HostInfo,
    allocations: AllocationManager,
    restored: Collection[str],
    on_new_pod: Callable[[], None],
    on_back_off: Callable[[], None],
    on_terminated: Callable[[str], None],
) -> WorkerContext:
    """The callbacks are called in the actor's own thread."""
    settings, objects = actor.settings, objects_of(actor)
    return WorkerContext(
        settings=settings,
        cri=Cri(
            settings.container_runtime_endpoint,
            settings.image_service_endpoint or None,
            request_seconds=settings.runtime_request_timeout_s,
        ),
        timers=actor.bus,
        published=Published.to(actor.peer, objects, lambda: actor.post(on_new_pod), cluster=bool(settings.kubeconfig)),
        images=actor.peer("image_pull"),
        volumes=actor.peer("volume"),
        objects=objects,
        container_gc=actor.peer("container_gc"),
        http_hooks=HttpHooks(actor),
        blocking=actor.blocking,
        events=allocations.events,
        allocated=allocations.allocated,
        actuated=allocations.actuated,
        limits=BackOffLimits(
            settings.crash_loop_initial_back_off_s,
            settings.crash_loop_max_back_off_s,
            settings.crash_loop_reset_s,
        ),
        userns=host.userns,
        allocatable=host.info.allocatable,
        host_ips=host.host_ips,
        restored=restored,
        on_back_off=lambda: actor.post(on_back_off),
        on_terminated=lambda uid: actor.post(on_terminated, uid),
    )

"""Fetches what the resources actor has assigned, before a container or its pod's cgroup is created."""

from __future__ import annotations

import msgspec

from actors.pod_workers.shared.managed_resources import has_claims
from actors.pod_workers.shared.worker_context import WorkerContext
from proto.agent.settings import Settings
from proto.resources.grants import Grant
from proto.resources.resources import GetGrant, HasExclusiveCpus, PrepareClaims, UnprepareClaims
from proto.v1 import Container, Pod

GRANT_S = 60.0
"""The actor has its own deadline for device plugins."""
CLAIMS_S = 180.0
"""The actor has its own deadline for each call to a DRA driver."""


async def grant_of(context: WorkerContext, pod: Pod, container: Container) -> Grant:
    """The container's grant. Asks only for a pod that can have one of its own. Raises Refused, and errors of an ask."""
    if not context.managed.concerns(pod) and not has_claims(pod):
        return context.managed.shared()
    return (await context.resources.ask(GetGrant(pod=pod, container=container.name), GRANT_S)).grant


async def prepare_claims(context: WorkerContext, pod: Pod) -> None:
    """Have DRA drivers prepare the pod's claims. Raises Refused, and errors of an ask."""
    if has_claims(pod):
        await context.resources.ask(PrepareClaims(pod=pod), CLAIMS_S)


async def unprepare_claims(context: WorkerContext, pod: Pod) -> None:
    """Have DRA drivers unprepare the claims of a pod without processes. Raises Refused, and errors of an ask."""
    if has_claims(pod):
        await context.resources.ask(UnprepareClaims(pod_uid=pod.metadata.uid), CLAIMS_S)


async def pod_cgroup_settings(context: WorkerContext, pod: Pod) -> Settings:
    """The settings for the pod's cgroup: without CFS quota if a container has exclusive CPUs. Raises as `grant_of`."""
    settings = context.settings
    if settings.cpu_quota_with_exclusive_cpus or not context.managed.static_cpus or not context.managed.concerns(pod):
        return settings
    answer = await context.resources.ask(HasExclusiveCpus(pod=pod), GRANT_S)
    return msgspec.structs.replace(settings, cpu_cfs_quota=False) if answer.exclusive else settings

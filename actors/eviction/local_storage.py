"""Finds pods above their own limits of ephemeral storage, independent of node pressure. Pure.

Source: localStorageEviction of pkg/kubelet/eviction/eviction_manager.go and
https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#local-ephemeral-storage
"""

from __future__ import annotations

from actors._cgroup.quantities import totals
from actors.eviction.message import binary_si, decimal_si
from actors.eviction.thresholds import DiskLayout
from proto.node.stats import PodUsage
from proto.v1 import Pod
from proto.v1.scalars.quantity import canonical, value

RESOURCE = "ephemeral-storage"
GRACE_PERIOD_S = 1
"""immediateEvictionGracePeriodSeconds of the kubelet."""


def is_limited(pod: Pod) -> bool:
    """Return True when the pod has a limit of ephemeral storage, or an emptyDir with a size limit."""
    sized = any(one.empty_dir is not None and one.empty_dir.size_limit is not None for one in pod.spec.volumes)
    return sized or RESOURCE in totals.limits(pod)


def violation(pod: Pod, usage: PodUsage, layout: DiskLayout) -> str:
    """Return the kubelet's eviction message for a pod above a limit; empty for other pods."""
    return _of_volumes(pod, usage) or _of_pod(pod, usage) or _of_containers(pod, usage, layout)


_SIGNALS = {"Usage": "emptydirfs.limit", "Pod": "ephemeralpodfs.limit", "Container": "ephemeralcontainerfs.limit"}


def signal(text: str) -> str:
    """Return the signal under which the kubelet counts a `violation`, by the message's first word."""
    return _SIGNALS[text.partition(" ")[0]]


def _of_volumes(pod: Pod, usage: PodUsage) -> str:
    used = {one.name: one.used_bytes for one in usage.volumes}
    for volume in pod.spec.volumes:
        limit = volume.empty_dir.size_limit if volume.empty_dir is not None else None
        if limit is not None and 0 < value(limit) < used.get(volume.name, 0):
            return f'Usage of EmptyDir volume "{volume.name}" exceeds the limit "{canonical(limit)}". '
    return ""


def _of_pod(pod: Pod, usage: PodUsage) -> str:
    limit = totals.limits(pod).get(RESOURCE)
    if limit is None or usage.disk_bytes <= value(limit):
        return ""
    written_binary = any(
        str(one.resources.limits.get(RESOURCE, "")).endswith("i")
        for one in (*pod.spec.containers, *pod.spec.init_containers)
    )
    text = binary_si(value(limit)) if written_binary else decimal_si(value(limit))
    return f"Pod ephemeral local storage usage exceeds the total limit of containers {text}. "


def _of_containers(pod: Pod, usage: PodUsage, layout: DiskLayout) -> str:
    with_layers = layout == "one disk"
    used = {one.name: one.log_bytes + (one.writable_layer_bytes if with_layers else 0) for one in usage.containers}
    for container in pod.spec.containers:
        limit = container.resources.limits.get(RESOURCE)
        if limit is not None and 0 < value(limit) < used.get(container.name, 0):
            return f'Container {container.name} exceeded its local ephemeral storage limit "{canonical(limit)}". '
    return ""

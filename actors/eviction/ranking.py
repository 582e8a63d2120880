"""Ranks pods for eviction. Pure.

Source: rankMemoryPressure, rankDiskPressureFunc and rankPIDPressure of pkg/kubelet/eviction/helpers.go, and
https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#pod-selection-for-kubelet-eviction
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from actors._cgroup.quantities import totals
from actors._host.node.critical import is_critical
from actors.eviction.thresholds import SIGNALS, DiskLayout
from proto.node.stats import PodUsage
from proto.v1 import Pod
from proto.v1.scalars.quantity import value


def ranked(pods: Iterable[Pod], usages: Mapping[str, PodUsage], signal: str, layout: DiskLayout) -> list[Pod]:
    """Return `pods` in their order of eviction for `signal`.

    Pods without known usage come first, then pods above their requests, then the others. Within each group the lower
    priority goes first, then the pod furthest above its request. So BestEffort pods, without requests, go early.
    Processes have no requests: the lowest priority goes first, then a pod without known usage, then the most tasks.
    """

    def key(pod: Pod) -> tuple[int, int, int, int, str]:
        priority = pod.spec.priority or 0
        usage = usages.get(pod.metadata.uid)
        if usage is None:
            return (0, priority, 0, 0, pod.metadata.uid)
        above = used(usage, signal, layout) - requested(pod, signal)
        exceeds = 0 if SIGNALS[signal].resource == "pids" else 1 if above > 0 else 2
        return (exceeds, priority, 1, -above, pod.metadata.uid)

    return sorted(pods, key=key)


def evictable(pods: Iterable[Pod], usages: Mapping[str, PodUsage], signal: str, layout: DiskLayout) -> list[Pod]:
    """Return the pods that may be evicted for `signal`, as `ranked`. Critical pods are left out."""
    order = ranked(pods, usages, signal, layout)
    return [pod for pod in order if not is_critical(pod)]


def why(pod: Pod, usage: PodUsage | None, signal: str, layout: DiskLayout) -> str:
    """Return the rule that gives a pod its place in the order."""
    if usage is None:
        return "usage not known"
    if SIGNALS[signal].resource == "pids":
        return f"priority {pod.spec.priority or 0}, then processes"
    above = used(usage, signal, layout) > requested(pod, signal)
    return f"{'above' if above else 'within'} its request, priority {pod.spec.priority or 0}"


def used(usage: PodUsage, signal: str, layout: DiskLayout) -> int:
    """Return the pod's use of the signal's resource, on the signal's disk."""
    resource = SIGNALS[signal].resource
    if resource == "memory":
        return usage.memory_working_set_bytes
    if resource == "pids":
        return usage.tasks
    inodes, on_images = resource == "inodes", signal.startswith("imagefs")
    whole = usage.inodes if inodes else usage.disk_bytes
    layers = usage.writable_layer_inodes if inodes else usage.writable_layer_bytes
    if layout == "one disk":
        return whole
    if layout == "split":  # pods have nothing on a disk of images; the layers are taken to be on nodefs
        return 0 if on_images else whole
    return whole - layers if signal.startswith("nodefs") else layers


def requested(pod: Pod, signal: str) -> int:
    """Return the pod's request for the signal's resource; 0 for inodes and processes, which have no requests."""
    resource = SIGNALS[signal].resource
    if resource not in ("memory", "ephemeral-storage"):
        return 0
    return value(totals.requests(pod).get(resource, 0))

"""Sets the limits of the cgroups above the pods': at start, and those of QoS classes when a pod comes or goes.

The kernel refuses a memory limit below current usage. Then the write is tried again every minute, as in the kubelet.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping

from actors._base import Actor
from actors._cgroup import tiers
from actors._cgroup.hierarchy import Hierarchy, hierarchy
from actors._cgroup.names import ROOT, qos_cgroup
from actors._cgroup.quantities import memory_qos
from actors._cgroup.quantities.qos import QosClass
from actors._cgroup.quantities.resources import PodLimits
from actors._events.recorder import Recorder
from actors._host.machine import Machine
from actors._metrics import kubelet as metrics
from actors.pod_workers.admission import Share
from proto.wire.errors import ActorError

log = logging.getLogger(__name__)

RETRY_S = 60.0
SETTLE_S = 0.1
"""The limits of QoS classes are set once for all pods that come or go within this time."""
WRITE_S = 30.0


class NodeCgroups:
    """Used in the actor's mailbox thread only.

    `shares`: resources of all admitted pods. None before every source has reported: an incomplete sum would starve the
    running pods.
    """

    def __init__(self, actor: Actor, events: Recorder, shares: Callable[[], Iterable[Share] | None]) -> None:
        self.settings = settings = actor.settings
        self._events = events
        self._shares = shares
        self._blocking = actor.blocking
        self._after = actor.after
        self._spawn = actor.spawn
        self._driver = settings.cgroup_driver
        self._allocatable_memory = 0
        self._due = False
        self._set: dict[QosClass, PodLimits] = {}

    def begin(self, machine: Machine, allocatable_memory: int) -> None:
        """Set all limits. Raises QuantityError."""
        if problem := memory_qos.problem(self.settings, unified=hierarchy().unified, release=os.uname().release):
            log.warning("%s", problem)
        if not self.settings.cgroups_per_qos:
            return
        self._allocatable_memory = allocatable_memory
        self._spawn(self._enforce_pods(tiers.of_all_pods(machine, self.settings)), "enforce_pods")
        for kind, name, reservation in (
            ("system-reserved", self.settings.system_reserved_cgroup, self.settings.system_reserved),
            ("kube-reserved", self.settings.kube_reserved_cgroup, self.settings.kube_reserved),
        ):
            wanted = self.settings.enforce_node_allocatable
            if kind in wanted or f"{kind}-compressible" in wanted:
                limits = tiers.of_reservation(reservation, self.settings, compressible=kind not in wanted)
                self._spawn(self._enforce_reservation(kind, name, limits), f"enforce {kind}")

    def pods_changed(self) -> None:
        """Pods were admitted or resized, or have terminated."""
        if self.settings.cgroups_per_qos and not self._due:
            self._due = True
            self._after(SETTLE_S, lambda: self._spawn(self._set_classes(), "qos_cgroups"))

    async def _enforce_pods(self, limits: PodLimits) -> None:
        name = qos_cgroup(self._driver, self.settings.cgroup_root, "Guaranteed")
        problem = await self._write(tiers.apply, name, limits)
        if not problem:
            self._events.node("Normal", "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
            return
        text = f'Failed to update Node Allocatable Limits ["{ROOT}"]: {problem}'
        self._failed(text, lambda: self._spawn(self._enforce_pods(limits), "enforce_pods"))

    async def _enforce_reservation(self, kind: str, name: str, limits: PodLimits) -> None:
        problem = await self._write(tiers.apply_existing, name, limits)
        title = "System" if kind == "system-reserved" else "Kube"
        if not problem:
            text = f"Updated limits on {title.lower()} reserved cgroup {name}"
            self._events.node("Normal", "NodeAllocatableEnforced", text)
            return
        text = f'Failed to enforce {title} Reserved Cgroup Limits on "{name}": {problem}'
        self._failed(text, lambda: self._spawn(self._enforce_reservation(kind, name, limits), f"enforce {kind}"))

    def _failed(self, text: str, again: Callable[[], object]) -> None:
        log.error("%s; tried again in a minute", text)
        self._events.node("Warning", "FailedNodeAllocatableEnforcement", text)
        self._after(RETRY_S, again)

    async def _set_classes(self) -> None:
        self._due = False
        settings, shares = self.settings, self._shares()
        if shares is None:
            return
        wanted = tiers.of_classes(shares, self._allocatable_memory, settings)
        _measure(wanted)
        for qos, limits in wanted.items():
            if self._set.get(qos) == limits:
                continue
            problem = await self._write(tiers.apply, qos_cgroup(self._driver, settings.cgroup_root, qos), limits)
            if problem:
                log.warning("cannot limit the cgroup of %s pods: %s; tried again in a minute", qos, problem)
                self._set.pop(qos, None)
                self._after(RETRY_S, self.pods_changed)
            else:
                self._set[qos] = limits

    async def _write(
        self, apply: Callable[[str, PodLimits, str, Hierarchy], None], name: str, limits: PodLimits
    ) -> str:
        """The error; empty if there was none."""
        try:
            await self._blocking(WRITE_S, lambda: apply(name, limits, self._driver, hierarchy()))
        except (OSError, ActorError) as error:
            return str(error)
        return ""


def _measure(wanted: Mapping[QosClass, PodLimits]) -> None:
    """Set the gauges of Memory QoS. The cgroup of all pods protects those of both classes."""
    least = wanted.get("Guaranteed", PodLimits()).memory_min_bytes
    if least is not None:
        low = wanted["Burstable"].memory_low_bytes or 0
        metrics.MEMORY_QOS_MIN.set(least - low)
        metrics.MEMORY_QOS_LOW.set(low)

"""Sets the limits of the cgroups above the pods': at start, and those of QoS classes also when a pod comes or goes.

Source: pkg/kubelet/cm/qos_container_manager_linux.go. There the classes are set before the sources have answered, too.

The kernel refuses a memory limit below current usage. Then the write is tried again every minute, as in the kubelet.
Limits of a class that something else has changed are set again within a minute, too. The kubelet writes each minute.
Here the files are read first: with the systemd driver a write is some calls on the system bus.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from actors._base import Actor, Semaphore
from actors._cgroup import tiers
from actors._cgroup.hierarchy import Hierarchy, hierarchy
from actors._cgroup.limits import read_limits
from actors._cgroup.names import ROOT, qos_cgroup
from actors._cgroup.quantities import memory_qos
from actors._cgroup.quantities.qos import QosClass
from actors._cgroup.quantities.resources import PodLimits
from actors._events.recorder import Recorder
from actors._host.machine import Machine
from actors._metrics import kubelet as metrics
from actors.pod_workers.admission import Share
from proto.common.until import Until
from proto.wire.errors import ActorError

log = logging.getLogger(__name__)

RETRY_S = 60.0
LOOK = Until(60.0)
"""Between looks at the cgroups of QoS classes: the kubelet's periodicQOSCgroupUpdateInterval."""
SETTLE_S = 0.1
"""The limits of QoS classes are set once for all pods that come or go within this time."""
WRITE_S = 30.0


class NodeCgroups:
    """Used in the actor's mailbox thread only.

    `admitted`: shares of all admitted pods. `is_complete`: every source has reported its pods. Before, CPU shares of
    Burstable are only raised, and no memory is limited: an incomplete sum would starve the running pods.
    """

    def __init__(
        self, actor: Actor, events: Recorder, admitted: Callable[[], Iterable[Share]], is_complete: Callable[[], bool]
    ) -> None:
        self.settings = settings = actor.settings
        self._events = events
        self._admitted, self._is_complete = admitted, is_complete
        self._blocking = actor.blocking
        self._after, self._every = actor.after, actor.every
        self._spawn = actor.spawn
        self._driver = settings.cgroup_driver
        self._allocatable_memory = 0
        self._due = False
        self._one_at_a_time = Semaphore(1)
        self._written: dict[QosClass, PodLimits] = {}
        """The limits written since every source has reported."""

    def begin(self, machine: Machine, allocatable_memory: int) -> None:
        """Begin to set all limits, and to look at the QoS classes every minute. Call once.

        `allocatable_memory`: bytes. Raises QuantityError.
        """
        if problem := memory_qos.problem(self.settings, unified=hierarchy().unified, release=os.uname().release):
            log.warning("%s", problem)
        if not self.settings.cgroups_per_qos:
            return
        self._allocatable_memory = allocatable_memory
        self._spawn(self._enforce_pods(tiers.of_all_pods(machine, self.settings)), "enforce_pods")
        # At once, else BestEffort competes as an equal until the sources answer.
        self._every(LOOK, lambda: self._set_classes(look=True), "qos_cgroups")
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
        log.error("%s; trying again in a minute", text)
        self._events.node("Warning", "FailedNodeAllocatableEnforcement", text)
        self._after(RETRY_S, again)

    async def _set_classes(self, *, look: bool = False) -> None:
        """Set the limits that are not set. `look`: read first whether the cgroups still have the others."""
        self._due = False
        async with self._one_at_a_time:
            if look:
                await self._forget_changed()
            is_complete = self._is_complete()
            wanted = tiers.of_classes(self._admitted(), self._allocatable_memory, self.settings)
            if is_complete:
                _measure(wanted)
            else:
                wanted = {qos: PodLimits(wanted[qos].cpu_shares) for qos in ("Burstable", "BestEffort")}
            for qos, limits in wanted.items():
                if self._written.get(qos) != limits:
                    await self._set_class(qos, limits, is_complete)

    async def _forget_changed(self) -> None:
        for qos, limits in list(self._written.items()):
            name = qos_cgroup(self._driver, self.settings.cgroup_root, qos)
            try:
                kept = await self._blocking(WRITE_S, tiers.has_limits, name, limits, hierarchy())
                problem = "" if kept else "something else has changed them"
            except (OSError, ActorError) as error:
                problem = str(error)
            if problem:
                log.warning("the limits of the cgroup of %s pods are set again: %s", qos, problem)
                del self._written[qos]

    async def _set_class(self, qos: QosClass, limits: PodLimits, is_complete: bool) -> None:
        apply = tiers.apply if is_complete or qos == "BestEffort" else _raise_cpu_shares
        problem = await self._write(apply, qos_cgroup(self._driver, self.settings.cgroup_root, qos), limits)
        if problem:
            log.warning("cannot limit the cgroup of %s pods: %s; trying again in a minute", qos, problem)
            self._written.pop(qos, None)
        elif is_complete:
            self._written[qos] = limits

    async def _write(
        self, apply: Callable[[str, PodLimits, str, Hierarchy], None], name: str, limits: PodLimits
    ) -> str:
        """The error; empty if there was none."""
        try:
            await self._blocking(WRITE_S, lambda: apply(name, limits, self._driver, hierarchy()))
        except (OSError, ActorError) as error:
            return str(error)
        return ""


def _raise_cpu_shares(name: str, limits: PodLimits, driver: str, tree: Hierarchy) -> None:
    """Do as `tiers.apply`, but never lower CPU shares that the cgroup has. Raises OSError."""
    now = read_limits(name, tree)
    if now is not None and now.cpu_shares >= (limits.cpu_shares or 0):
        limits = replace(limits, cpu_shares=None)
    tiers.apply(name, limits, driver, tree)


def _measure(wanted: Mapping[QosClass, PodLimits]) -> None:
    """Set the gauges of Memory QoS. The cgroup of all pods protects those of both classes."""
    least = wanted.get("Guaranteed", PodLimits()).memory_min_bytes
    if least is not None:
        low = wanted["Burstable"].memory_low_bytes or 0
        metrics.MEMORY_QOS_MIN.set(least - low)
        metrics.MEMORY_QOS_LOW.set(low)

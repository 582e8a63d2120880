"""Publishes CSI volumes to pods, republishes them on request of the driver, and grows them with their claims.

Runs in the actor's mailbox thread, concurrently with the pod's other volumes.
"""

from __future__ import annotations

import logging
import random
import time
from dataclasses import replace
from functools import partial
from typing import Literal

from actors._base import Actor
from actors.volume import policy
from actors.volume.csi.policy import GrowthPhase, growth_phase
from actors.volume.helper.pool import HelperGone, HelperHung
from actors.volume.plugins.base import SET_UP_FAILED, CannotMount, Claimed, Context
from actors.volume.plugins.csi import growth, may_grow, republishes, storage_bytes
from actors.volume.policy import NEW, Wanted
from actors.volume.reconcile.failure_reporter import FailureReporter, Recheck
from actors.volume.reconcile.mounter import Mounter
from actors.volume.reconcile.volume_state import PodVolumes
from actors.volume.steps.codec import Outcome
from actors.volume.steps.csi import CsiMount
from actors.volume.steps.places import host_path, map_places
from proto.pods.objects import SetClaimCapacity, SetClaimExpansion
from proto.v1.scalars.quantity import value
from proto.wire.errors import ActorError

log = logging.getLogger(__name__)

Phase = GrowthPhase | Literal["NodeResizeInProgress"]
GROW_FAILED = "NodeExpandVolume.NodeExpandVolume failed"
GROW_FAILED_FIRST = "MountVolume.Setup failed while expanding volume"
TELL_S = 15.0
"""Deadline of a request to the objects actor that writes to a claim."""
TOLD_S = 30.0
"""So long after its report a new capacity counts as reported, though a read of the claim may be older."""
REPUBLISH_S = 60.0
"""About the kubelet's period for a driver with requiresRepublish."""


class Publisher:
    """Publishes volumes through the mounter, and reports growth to the claims."""

    def __init__(
        self, actor: Actor, mounter: Mounter, pods: dict[str, PodVolumes], reporter: FailureReporter, recheck: Recheck
    ) -> None:
        """`pods` by UID."""
        self._actor, self._mounter, self._pods = actor, mounter, pods
        self._reporter, self._recheck = reporter, recheck
        self._root = actor.settings.root_dir

    def growth_bytes(self, pod: PodVolumes, one: Wanted, context: Context) -> int:
        """Size in bytes that the volume's file system has to grow to; 0 for no growth."""
        claimed = _claimed(pod, one, context)
        if claimed is None:
            return 0
        size = storage_bytes(claimed)
        if size > pod.sizes.setdefault(one.name, size):
            wanted = size if may_grow(claimed) else 0
        else:
            # The controllers have grown the volume, and the claim waits for the node, perhaps since before this actor.
            wanted = growth(claimed) if one.name not in pod.reported_growth else 0
        if not wanted or not claimed.read_only:
            return wanted
        pod.sizes[one.name] = size
        pod.reported_growth.add(one.name)
        self._reporter.not_grown(pod, claimed)
        return 0

    def begin_growth(self, pod: PodVolumes, name: str, claimed: Claimed) -> None:
        """Note for the claim of a volume that is about to be grown what to report."""
        meta, capacity = claimed.claim.metadata, claimed.volume.spec.capacity["storage"]
        pod.growing[name] = SetClaimCapacity(namespace=meta.namespace, name=meta.name, capacity=str(capacity))
        pod.requested[name] = value(claimed.claim.spec.resources.requests.get("storage", 0))

    def is_due(self, pod: PodVolumes, one: Wanted, context: Context) -> bool:
        """True when the driver of a mounted volume wants it published again now. Plans the first such publication."""
        name, now = one.name, time.monotonic()
        actual = pod.actual.get(name, NEW)
        if not actual.mounted:
            return False
        wants = republishes(_driver(pod, one, context), context)
        if wants is False:
            pod.republish_at.pop(name, None)
        elif wants and name not in pod.republish_at:
            # An earlier incarnation published a volume without digest. Those of all pods are spread over the period.
            pod.republish_at[name] = 0.0 if actual.digest else now + random.uniform(0.0, REPUBLISH_S)
        due = name in pod.republish_at and pod.republish_at[name] <= now
        if due and wants is None:  # its objects are not there now; their return is a change, which comes sooner
            pod.republish_at[name] = now + REPUBLISH_S
        return due and bool(wants)

    def schedule(self, uid: str, pod: PodVolumes) -> None:
        """Set the timer of the pod's next repeated publication. A failed one has its retry instead."""
        pod.stop_republication()
        states = {name: pod.actual.get(name, NEW) for name in pod.wanted if name not in pod.driver_calls}
        times = [
            pod.republish_at[name]
            for name, one in states.items()
            if one.mounted and not one.error and name in pod.republish_at
        ]
        if times and not pod.requests:
            delay_s = max(0.0, min(times) - time.monotonic())
            pod.republication = self._actor.after(delay_s, self._republish, uid, pod)

    def _republish(self, uid: str, pod: PodVolumes) -> None:
        pod.stop_republication()
        pod.changes += 1
        self._recheck(uid, pod)

    def publish(self, uid: str, pod: PodVolumes, name: str, step: CsiMount, as_of: float) -> None:
        """Start the driver's call; the pod is reconciled again after it. `as_of`: when its objects began to be read."""
        pod.on_disk = pod.csi = True
        self._mounter.start(pod, name, self._publish(uid, pod, name, step, as_of), partial(self._recheck, uid, pod))

    async def _publish(self, uid: str, pod: PodVolumes, name: str, step: CsiMount, as_of: float) -> None:
        if step.expand_bytes:
            await self._report_expansion(pod, name, "NodeResizeInProgress")
        try:
            outcome = await self._mounter.mount(step)
        except HelperHung as hung:
            self._reporter.hung(uid, pod, name, hung)
            return
        except HelperGone as gone:
            outcome = Outcome(str(gone))
        if outcome.error:
            stage = outcome.stage or SET_UP_FAILED
            if outcome.grown:
                stage = GROW_FAILED if pod.actual.get(name, NEW).mounted else GROW_FAILED_FIRST
                message = f"failed to expand pvc with {outcome.error}"
                withdrawn = pod.requested.get(name) != step.expand_bytes
                phase = growth_phase(outcome.grown, again=name in pod.failed_growth, withdrawn=withdrawn)
                pod.failed_growth.add(name)
                await self._report_expansion(pod, name, phase, message)
            self._reporter.failed(uid, pod, name, CannotMount(outcome.error, stage=stage, volume=step.volume.spec_name))
            return
        if not step.republish:
            pod.republish_at.pop(name, None)
        elif pod.republish_at.get(name, as_of) <= as_of:  # else an object has changed meanwhile
            pod.republish_at[name] = time.monotonic() + REPUBLISH_S
        if step.expand_bytes:
            pod.sizes[name] = step.expand_bytes
            pod.failed_growth.discard(name)
        if not pod.actual.get(name, NEW).mounted:
            self._reporter.mapped(pod, *map_places(self._root, step))
        pod.actual[name] = policy.done(policy.digest(step), host_path(self._root, step))
        if outcome.grown == "done":
            self._reporter.grown(pod, step.volume.spec_name)
        if step.expand_bytes and outcome.grown != "refused":
            await self._report_capacity(pod, name)

    async def _report_expansion(self, pod: PodVolumes, name: str, phase: Phase, message: str = "") -> None:
        # By the claim's status the controllers decide if its owner may request less.
        growth = pod.growing.get(name)
        if growth is None or not self._actor.settings.kubeconfig:
            return
        request = SetClaimExpansion(namespace=growth.namespace, name=growth.name, phase=phase, message=message)
        try:
            await self._actor.peer("objects").ask(request, TELL_S)
        except ActorError as error:
            log.warning("cannot write %s to claim %s/%s: %s", phase, growth.namespace, growth.name, error)

    async def _report_capacity(self, pod: PodVolumes, name: str) -> None:
        # The new capacity in the claim's status ends its owner's wait.
        growth = pod.growing.pop(name, None)
        if growth is None or not self._actor.settings.kubeconfig:
            return
        pod.reported_growth.add(name)
        try:
            await self._actor.peer("objects").ask(growth, TELL_S)
        except ActorError as error:
            log.warning("cannot write the new capacity to claim %s/%s: %s", growth.namespace, growth.name, error)
        # Until then the claim may still be read with its old status.
        self._actor.after(TOLD_S, pod.reported_growth.discard, name)

    async def wait_for_drivers(self, pod: PodVolumes) -> None:
        """Wait for the drivers at most PATIENCE_S, and note volumes that do not answer."""
        missing = [name for name in pod.driver_calls if not pod.actual.get(name, NEW).mounted]
        silent = await self._mounter.wait(pod, missing)
        for name, since in silent.items():
            pod.actual[name] = replace(pod.actual.get(name, NEW), hung_since=since)

    def driver_registered(self, driver: str) -> None:
        """Retry at once the volumes that failed because this driver was not registered."""
        for uid, pod in self._pods.items():
            names = [name for name in pod.wanted if driver in pod.actual.get(name, NEW).error]
            for name in names:
                pod.actual[name] = replace(pod.actual[name], retry_at=0.0, failures=0)
            if names:
                pod.changes += 1
                self._recheck(uid, pod)


def _claimed(pod: PodVolumes, one: Wanted, context: Context) -> Claimed | None:
    try:
        return one.plugin.claimed(pod.pod, one.volume, context) if pod.pod is not None else None
    except CannotMount:
        return None


def _driver(pod: PodVolumes, one: Wanted, context: Context) -> str:
    """Name of the volume's CSI driver; empty for other volumes, and while its claim cannot be used."""
    if one.name in pod.published:
        return pod.published[one.name].driver
    if one.volume.csi is not None:
        return one.volume.csi.driver
    claimed = _claimed(pod, one, context)
    source = claimed.volume.spec.csi if claimed is not None else None
    return source.driver if source is not None else ""

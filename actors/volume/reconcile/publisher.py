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
from actors.volume.csi import growth
from actors.volume.helper.pool import HelperGone, HelperHung
from actors.volume.plugins.base import SET_UP_FAILED, CannotMount, Claimed, Context
from actors.volume.plugins.csi import republishes
from actors.volume.policy import NEW, Wanted
from actors.volume.reconcile.failure_reporter import FailureReporter, Recheck, claim_reference
from actors.volume.reconcile.mounter import Mounter
from actors.volume.reconcile.volume_state import Growing, PodVolumes
from actors.volume.steps.codec import Outcome
from actors.volume.steps.csi import CsiMount
from actors.volume.steps.places import host_path, map_places
from proto.pods.objects import SetClaimCapacity, SetClaimExpansion
from proto.v1.scalars.quantity import value
from proto.wire.errors import ActorError

log = logging.getLogger(__name__)

Phase = growth.GrowthPhase | Literal["NodeResizeInProgress"]
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
        if claimed is None or one.name in pod.refused_growth:
            return 0
        size = growth.storage_bytes(claimed.volume)
        made_for = pod.sizes.setdefault(one.name, size)
        due = growth.due_growth(claimed.volume, claimed.claim, made_for)
        if due.is_done:
            pod.sizes[one.name] = size
        if size <= made_for and one.name in pod.reported_growth:
            return 0  # the claim may be read with its old status
        if not due.bytes or not claimed.read_only:
            return due.bytes
        pod.sizes[one.name] = size
        pod.reported_growth.add(one.name)
        self._reporter.not_grown(pod, claimed)
        return 0

    def begin_growth(self, pod: PodVolumes, name: str, claimed: Claimed) -> None:
        """Note for the claim of a volume that is about to be grown what to report."""
        volume, claim = claimed.volume, claimed.claim
        pod.growing[name] = Growing(
            claim_reference(claimed),
            size=growth.storage_bytes(volume),
            requested=value(claim.spec.resources.requests.get("storage", 0)),
            capacity=growth.new_capacity(volume, claim),
        )

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
                await self._report_failure(pod, name, step, outcome)
                is_first = not pod.actual.get(name, NEW).mounted
                stage = policy.GROW_FAILED_FIRST if is_first else policy.GROW_FAILED
            self._reporter.failed(uid, pod, name, CannotMount(outcome.error, stage=stage, volume=step.volume.spec_name))
            return
        if not step.republish:
            pod.republish_at.pop(name, None)
        elif pod.republish_at.get(name, as_of) <= as_of:  # else an object has changed meanwhile
            pod.republish_at[name] = time.monotonic() + REPUBLISH_S
        if not pod.actual.get(name, NEW).mounted:
            self._reporter.mapped(pod, *map_places(self._root, step))
        relabel = outcome.seclabel and not step.selinux_label
        pod.actual[name] = policy.done(policy.digest(step), host_path(self._root, step), relabel=relabel)
        growing = pod.growing.get(name) if step.expand_bytes else None
        if outcome.grown == "refused":
            pod.refused_growth.add(name)
            await self._report_failure(pod, name, step, outcome)
        elif growing is not None:
            pod.sizes[name] = growing.size
            pod.failed_growth.discard(name)
            if outcome.grown == "done":
                self._reporter.grown(pod, step.volume.spec_name, growing.claim)
            await self._report_capacity(pod, name, growing)

    async def _report_failure(self, pod: PodVolumes, name: str, step: CsiMount, outcome: Outcome) -> None:
        growing = pod.growing.get(name)
        withdrawn = growing is not None and growing.requested != step.expand_bytes
        phase = growth.failure_phase(outcome.grown, again=name in pod.failed_growth, withdrawn=withdrawn)
        if phase is None:
            return
        pod.failed_growth.add(name)
        if growing is not None and not growing.capacity and outcome.grown == "infeasible":
            pod.sizes[name] = growing.size  # the claim keeps no state that would end the tries
        await self._report_expansion(pod, name, phase, f"failed to expand pvc with {outcome.refusal or outcome.error}")

    async def _report_expansion(self, pod: PodVolumes, name: str, phase: Phase, message: str = "") -> None:
        # By the claim's status the controllers decide if its owner may request less.
        growing = pod.growing.get(name)
        if growing is None or not growing.capacity or not self._actor.settings.kubeconfig:
            return
        namespace, claim = growing.claim.namespace or "", growing.claim.name or ""
        request = SetClaimExpansion(namespace=namespace, name=claim, phase=phase, message=message)
        try:
            await self._actor.peer("objects").ask(request, TELL_S)
        except ActorError as error:
            log.warning("cannot write %s to claim %s/%s: %s", phase, namespace, claim, error)

    async def _report_capacity(self, pod: PodVolumes, name: str, growing: Growing) -> None:
        # The new capacity in the claim's status ends its owner's wait.
        if not growing.capacity:
            return
        pod.reported_growth.add(name)
        if not self._actor.settings.kubeconfig:
            return  # a claim of the objects directory keeps its old status
        namespace, claim = growing.claim.namespace or "", growing.claim.name or ""
        try:
            request = SetClaimCapacity(namespace=namespace, name=claim, capacity=growing.capacity)
            await self._actor.peer("objects").ask(request, TELL_S)
        except ActorError as error:
            log.warning("cannot write the new capacity to claim %s/%s: %s", namespace, claim, error)
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

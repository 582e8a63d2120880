"""The reconciler: brings the volumes of each pod to their desired state.

`policy.py` decides what is due, plugins make the steps, helpers carry them out. Runs in the actor's mailbox thread.
Each pod has one batch of steps at a time; pods do not wait for each other.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from actors._base import Actor
from actors._base.messaging import waits
from actors._host.files import paths
from actors._objects.peer import objects_of
from actors.volume import policy
from actors.volume.drivers.attachments import NOT_IN_USE, Attachments
from actors.volume.drivers.labels import Labels
from actors.volume.drivers.limits import Limits
from actors.volume.drivers.unstaging import Unstaging
from actors.volume.helper.pool import HelperGone, HelperHung, Pool
from actors.volume.plugins.base import ATTACH_FAILED, SET_UP_FAILED, CannotMount, Claimed, Context
from actors.volume.plugins.csi import attached
from actors.volume.plugins.payload import PodFiles
from actors.volume.policy import NEW, Wanted
from actors.volume.reconcile import operation_counts
from actors.volume.reconcile.devices import Devices, batches
from actors.volume.reconcile.failure_reporter import ALREADY_MOUNTED, FailureReporter, Unresponsive
from actors.volume.reconcile.mounter import Mounter
from actors.volume.reconcile.publisher import Publisher
from actors.volume.reconcile.remover import Remover
from actors.volume.reconcile.required_objects import Needed, needed
from actors.volume.reconcile.volume_state import PodVolumes
from actors.volume.reconcile.waits import VolumeWaits, subject_of
from actors.volume.selinux_labels import is_labelled_by_runtime
from actors.volume.steps.codec import Outcome, SetUp
from actors.volume.steps.csi import CsiMount
from actors.volume.steps.places import host_path, map_places
from actors.volume.steps.volumes import HostPath, Local, ReadFile, SubPath
from proto.pods.objects import ObjectRef
from proto.pods.pod_workers import VolumesMounted

SOONEST_RENEWAL_S = 1.0
"""Shortest pause before a renewal; with a wrong clock tokens would be requested without a pause."""


class Reconciler:
    """Sets up the volumes of all pods, and runs steps on mounted ones."""

    def __init__(
        self,
        actor: Actor,
        pool: Pool,
        mounter: Mounter,
        unstaging: Unstaging,
        limits: Limits,
        pods: dict[str, PodVolumes],
        context: Context,
    ) -> None:
        """`pods` by UID."""
        self._actor, self._pool, self._pods, self._context = actor, pool, pods, context
        self._root = actor.settings.root_dir
        self._limits = limits
        self.waits = VolumeWaits()
        self.devices = Devices(actor, pool)
        self.labels = Labels(context.selinux, self._label_free, every_mode=actor.settings.selinux_mount)
        self.in_use = unstaging.in_use
        self._attachments = Attachments(actor, self.in_use)
        path = f"{paths.checkpoints_dir(self._root)}/{actor.name}.json"
        self.reporter = FailureReporter(actor, pool, pods, path, self._recheck)
        self.publisher = Publisher(actor, mounter, pods, self.reporter, self._recheck)
        self.remover = Remover(actor, pool, mounter, self.devices, unstaging, self.reporter, self._recheck)

    async def reconcile(self, uid: str, pod: PodVolumes) -> None:
        """Bring the pod's volumes to the desired state as far as possible now, and schedule retries for the rest."""
        pod.requests += 1
        if pod.pod is not None:
            waits.on_behalf_of(subject_of(pod.pod))
        try:
            self.waits.tell(uid, pod)
            async with pod.lock:
                again = True
                while again and pod.pod is not None and not pod.is_settled:
                    changes = pod.changes
                    again = await self._round(uid, pod) or changes != pod.changes
        finally:
            pod.requests -= 1
            self.waits.tell(uid, pod)
        if pod.pod is None:
            return
        self._schedule_retry(uid, pod)
        self.publisher.schedule(uid, pod)
        if pod.is_mounted:
            pod.stop_overdue()
        if pod.refused and pod.is_mounted:
            pod.refused = False
            self._actor.peer("pod_workers").tell(VolumesMounted(pod_uid=uid))

    async def _round(self, uid: str, pod: PodVolumes) -> bool:
        # True when another round can do more at once.
        changes, now = pod.changes, time.monotonic()
        is_whole = not pod.driver_calls  # else their volumes are left out, and the next round is after the calls
        due = [
            one
            for one in pod.wanted.values()
            if one.name not in pod.driver_calls and policy.is_due(pod.actual.get(one.name, NEW), now)
        ]
        need = await needed(objects_of(self._actor), pod, due, self._context)
        self._schedule_renewal(uid, pod, need)
        attachable = self._attachable(pod, due, need)
        objects, unattached = await self._attachments.check(uid, attachable, need.objects)
        need = need._replace(objects=objects)
        todo: dict[str, SetUp] = {}
        files = PodFiles()
        for one in due:
            try:
                _check_read(pod, one, need.failed)
                step = self._step(uid, pod, one, need, unattached.get(one.name, NOT_IN_USE), files)
            except CannotMount as error:
                self.reporter.failed(uid, pod, one.name, error)
                self._note_limit(pod, one.name, error.exhausted)
            else:
                pod.exhausted.pop(one.name, None)
                if isinstance(step, CsiMount):
                    self.publisher.publish(uid, pod, one.name, step, now)
                elif step is not None:
                    todo[one.name] = step
        again = False
        for batch in batches(todo):
            if pod.pod is None:
                break  # its removal waits for this
            again = await self._set_up(uid, pod, batch) or again
        states = [pod.actual.get(name, NEW) for name in pod.wanted]
        if is_whole and changes == pod.changes and not again and all(one.mounted and not one.error for one in states):
            pod.settled = changes
        return again

    def _note_limit(self, pod: PodVolumes, name: str, driver: str) -> None:
        if not driver:
            pod.exhausted.pop(name, None)
        elif name not in pod.exhausted:
            pod.exhausted[name] = time.monotonic()
            self._actor.spawn(self._limits.ask(driver), "volume limits")

    def _step(
        self, uid: str, pod: PodVolumes, one: Wanted, need: Needed, unattached: str, files: PodFiles
    ) -> SetUp | None:
        """The step that is due for the volume; None when there is none. Raises CannotMount.

        `unattached`: why a volume that a controller attaches may not be mounted now, see Attachments. `files` of the
        volumes before.
        """
        if pod.pod is None:
            return None
        actual = pod.actual.get(one.name, NEW)
        if actual.unresponsive:
            return HostPath(one.name, actual.path)  # a mounted volume of any kind stays, it only has to answer
        context = self._context.with_objects(need.objects, need.credentials)
        grown = self.publisher.growth_bytes(pod, one, context)
        again = self.publisher.is_due(pod, one, context) or bool(grown)
        if actual.mounted and one.name in pod.persistent and not again:
            if actual.error:
                pod.actual[one.name] = policy.recovered(actual, actual.digest)
            return None  # a mounted PersistentVolume stays, even when its claim changes or goes
        claimed = one.plugin.claimed(pod.pod, one.volume, context)
        mounted = actual.mounted  # with a label that stays as long as the mount
        label = self.labels.of(uid, one.name) if mounted else self.labels.admit(pod.pod, one.volume, claimed, context)
        if claimed is not None:
            self._reserve(uid, pod, one.name, claimed)
            if claimed.group is not None:
                pod.groups[one.name] = claimed.group
            attachment = attached(claimed, context)
            if attachment is not None:
                self.in_use.want(uid, *attachment)
            if attachment is not None and not actual.mounted and unattached:
                raise CannotMount(unattached, stage=ATTACH_FAILED, volume=claimed.name, soon=True)
        points = pod.mount_points.of(one.name, mounted=actual.mounted)
        step = one.plugin.step(pod.pod, one.volume, replace(context, mount_points=points))
        files.add(step)
        if isinstance(step, CsiMount):
            pod.publish(one.name, step.volume)
            step = msgspec.structs.replace(step, name=one.name, expand_bytes=grown, selinux_label=label)
            if grown and claimed is not None:
                self.publisher.begin_growth(pod, one.name, claimed)
        digest = policy.digest(step)
        if again or policy.needs(one, step, digest, actual):
            return step
        if actual.error:
            pod.actual[one.name] = policy.recovered(actual, digest)
        return None

    def _attachable(self, pod: PodVolumes, due: list[Wanted], need: Needed) -> dict[str, tuple[str, str]]:
        """(driver, handle) of the volumes to mount that a controller attaches, by name."""
        context = self._context.with_objects(need.objects, need.credentials)
        found = {}
        for one in due:
            if pod.pod is None or pod.actual.get(one.name, NEW).mounted:
                continue
            try:
                claimed = one.plugin.claimed(pod.pod, one.volume, context)
            except CannotMount:
                continue  # raised again by `_step`
            attachment = attached(claimed, context) if claimed is not None else None
            if attachment is not None:
                found[one.name] = attachment
        return found

    def set_node_labels(self, labels: Mapping[str, str]) -> None:
        """Take the labels that the API server has for this node."""
        self._context = replace(self._context, labels=labels)

    def _schedule_renewal(self, uid: str, pod: PodVolumes, need: Needed) -> None:
        times = [one.refresh for one in need.credentials.values() if not isinstance(one, str)]
        if pod.pod is None or not times or (pod.renewal is not None and pod.renewal_at <= min(times)):
            return
        pod.stop_renewal()
        pod.renewal_at = min(times)
        pod.renewal = self._actor.after(max(SOONEST_RENEWAL_S, pod.renewal_at - time.time()), self._renew, uid, pod)

    def renew_overdue(self) -> None:
        """Renew tokens whose time has come by the wall clock: timers stand still in a suspend, and miss its steps."""
        now = time.time()
        for uid, pod in self._pods.items():
            if pod.renewal is not None and pod.renewal_at <= now:
                self._renew(uid, pod)

    def _renew(self, uid: str, pod: PodVolumes) -> None:
        pod.stop_renewal()
        pod.changes += 1
        self._recheck(uid, pod)

    def _label_free(self, uid: str, name: str) -> None:
        # A pod that waited for another SELinux label need not wait for its back-off.
        pod = self._pods.get(uid)
        if pod is not None and name in pod.actual:
            pod.actual[name] = replace(pod.actual[name], retry_at=0.0, failures=0)
            pod.changes += 1
            self._recheck(uid, pod)

    def _recheck(self, uid: str, pod: PodVolumes) -> None:
        if pod.pod is not None:
            self._actor.spawn(self.reconcile(uid, pod), "look again")

    def _reserve(self, uid: str, pod: PodVolumes, name: str, claimed: Claimed) -> None:
        """Note that the pod has the volume, or is about to mount it.

        Raises CannotMount for a volume that is for one pod and that another one has, unless it is mounted here.
        """
        others = (other for key, other in self._pods.items() if key != uid)
        is_free = pod.actual.get(name, NEW).mounted or not claimed.exclusive
        if not is_free and any(claimed.name in other.persistent.values() for other in others):
            text = "volume uses the ReadWriteOncePod access mode and is already in use by another pod"
            raise CannotMount(text, volume=claimed.name)
        pod.persistent[name] = claimed.name

    async def _set_up(self, uid: str, pod: PodVolumes, todo: dict[str, SetUp]) -> bool:
        # True when some of the steps are still to be done, and can be at once.
        pod.on_disk = pod.on_disk or any(not isinstance(step, HostPath) for step in todo.values())
        pod.devices.update(step.name for step in todo.values() if isinstance(step, Local))
        names, began = list(todo), time.monotonic()
        try:
            outcomes = await self.devices.run(*todo.values(), is_wanted=lambda: pod.pod is not None)
        except HelperHung as hung:
            name = names[hung.index]
            self.reporter.hung(uid, pod, name, hung)
            return len(names) > 1
        except HelperGone as gone:
            outcomes = (Outcome(str(gone)),) * len(names)
        for name, outcome in zip(names, outcomes, strict=True):
            operation_counts.set_up(pod.wanted.get(name), time.monotonic() - began, failed=bool(outcome.error))
            if outcome.stuck_pid:
                self._pool.adopt(outcome.stuck_pid)
                self.reporter.hung(uid, pod, name, HelperHung(0, name, outcome.stuck_since, outcome.stuck_pid))
            elif outcome.error:
                volume = pod.persistent.get(name, "")
                problem = CannotMount(outcome.error, stage=outcome.stage or SET_UP_FAILED, volume=volume)
                self.reporter.failed(uid, pod, name, problem)
                step = todo[name]
                if outcome.mismatch and isinstance(step, Local):
                    self.reporter.mismatch(step, outcome.error)
            else:
                self._record_mounted(pod, name, todo[name], outcome)
        return False

    def _record_mounted(self, pod: PodVolumes, name: str, step: SetUp, outcome: Outcome) -> None:
        if outcome.warning:
            self.reporter.record(pod, outcome.warning, ALREADY_MOUNTED)
        before = pod.actual.get(name, NEW)
        if not before.mounted:
            self.reporter.mapped(pod, *map_places(self._root, step))
        # The step of a mounted volume may only have looked if it answers.
        relabel = before.relabel if before.mounted else is_labelled_by_runtime(step)
        pod.actual[name] = policy.done(policy.digest(step), host_path(self._root, step), relabel=relabel)

    def _schedule_retry(self, uid: str, pod: PodVolumes) -> None:
        pod.stop_timer()
        states = (pod.actual.get(name, NEW) for name in pod.wanted if name not in pod.driver_calls)
        delay_s = policy.next_try_s(states, time.monotonic())
        if delay_s is not None and not pod.requests:
            pod.timer = self._actor.after(delay_s, lambda: self._actor.spawn(self.reconcile(uid, pod), "try again"))

    # Steps on mounted volumes

    async def run(self, uid: str, pod: PodVolumes, *steps: HostPath | ReadFile | SubPath) -> tuple[Outcome, ...]:
        """Run steps on the pod's volumes; none is run while one of the volumes has a stuck helper.

        Raises Unresponsive, HelperGone.
        """
        pod.requests += 1
        try:
            async with pod.lock:
                since = {
                    step.name: one.hung_since for step in steps if (one := pod.actual.get(step.name, NEW)).stuck_pid
                }
                if since:
                    raise Unresponsive(since)
                return await self._pool.run(*steps)
        except HelperHung as hung:
            name = steps[hung.index].name
            before = pod.actual.get(name, NEW)
            pod.actual[name] = replace(before, unresponsive=before.mounted)
            pod.changes += 1
            pod.refused = True
            self.reporter.hung(uid, pod, name, hung)
            raise Unresponsive({name: pod.actual[name].hung_since}) from None
        finally:
            pod.requests -= 1
            self.waits.tell(uid, pod)
            if pod.pod is not None:  # a round that ended meanwhile has set no timers
                self._schedule_retry(uid, pod)
                self.publisher.schedule(uid, pod)


def _check_read(pod: PodVolumes, one: Wanted, failed: Mapping[ObjectRef, str]) -> None:
    """Raises CannotMount when objects of the volume could not be read, except for a mounted PersistentVolume."""
    unread = {ref: failed[ref] for ref in sorted(pod.refs_of(one.name)) if ref in failed}
    if unread and not (one.name in pod.persistent and pod.actual.get(one.name, NEW).mounted):
        # The API server forbids a node to read an attachment until a controller has made it.
        stage = ATTACH_FAILED if all(ref.kind == "VolumeAttachment" for ref in unread) else SET_UP_FAILED
        raise CannotMount("; ".join(dict.fromkeys(unread.values())), stage=stage)

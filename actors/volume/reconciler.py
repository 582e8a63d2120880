"""Bringing one pod's volumes to what is desired: the steps decided in policy.py, done by helpers.

Runs in the actor's mailbox thread. One batch of steps for each pod at a time; pods do not wait for each other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import msgspec

from actors._base import Actor, Gate
from actors._events.recorder import Recorder
from actors.volume import policy
from actors.volume.book import PodVolumes
from actors.volume.csi.mounter import CsiFailed, Mounter
from actors.volume.csi.steps import CsiMount
from actors.volume.devices import Devices
from actors.volume.needs import needed
from actors.volume.plugins import SET_UP_FAILED, CannotMount, Claimed, Context
from actors.volume.plugins.csi import storage_bytes
from actors.volume.policy import NEW, Actual, Wanted
from actors.volume.pool import HelperGone, HelperHung, Pool
from actors.volume.quarantine import Quarantine, Stuck
from actors.volume.steps import HostPath, Local, Outcome, ReadFile, SetUp, SubPath, TearDown, host_path
from proto.objects import ApiObject, ObjectRef
from proto.pod_workers import VolumesMounted

log = logging.getLogger(__name__)

FAILED_MOUNT = "FailedMount"
DISK_S = 5.0
SLICE_S = 0.05
"""A removal gives its helper back so often, so that removals take turns however large they are."""
SLICE_PAUSE_S = 0.002
"""Between slices: a removal that makes no headway does not spin."""
REMOVALS_AT_ONCE = 2
REPUBLISH_S = 60.0
"""About as often as the kubelet calls a driver that wants to be called again and again."""


class RemovalFailed(Exception):
    """A pod's volumes cannot be removed now; the message is the kubelet's."""


class Silent(Exception):
    """Mounted volumes do not answer; the message names them and says for how long."""

    def __init__(self, since: Mapping[str, float]) -> None:
        super().__init__(policy.silence(since, time.time()))
        self.names = tuple(since)


class Reconciler:
    """See the module."""

    def __init__(
        self, actor: Actor, pool: Pool, mounter: Mounter, pods: dict[str, PodVolumes], context: Context, path: str
    ) -> None:
        """`pods` by UID; `path` of the file that keeps the quarantine."""
        self._actor, self._pool, self._pods, self._context = actor, pool, pods, context
        self._root = actor.settings.root_dir
        self._quarantine = Quarantine(path)
        self._events = Recorder(actor.peer("events"))
        self._removals = Gate(REMOVALS_AT_ONCE)
        self._csi = mounter
        self.devices = Devices(actor, pool)

    async def bring_up(self, uid: str, pod: PodVolumes) -> None:
        """Bring the pod's volumes as far as they go now, and have what failed tried again in time."""
        pod.users += 1
        try:
            async with pod.turn:
                again = True
                while again and pod.pod is not None and not pod.is_settled:
                    changes = pod.changes
                    again = await self._round(uid, pod) or changes != pod.changes
        finally:
            pod.users -= 1
        if pod.pod is None:
            return
        self._try_again_in_time(uid, pod)
        if pod.refused and pod.is_mounted:
            pod.refused = False
            self._actor.peer("pod_workers").tell(VolumesMounted(pod_uid=uid))

    async def _round(self, uid: str, pod: PodVolumes) -> bool:
        """Whether another round can do more at once."""
        changes, now = pod.changes, time.monotonic()
        due = [
            one
            for one in pod.wanted.values()
            if one.name not in pod.at_work and policy.is_due(pod.actual.get(one.name, NEW), now)
        ]
        found, problem = await needed(self._actor.peer("objects"), pod, due, self._context)
        todo: dict[str, SetUp] = {}
        for one in due:
            try:
                if problem and one.refs:
                    raise CannotMount(problem)
                step = self._step(uid, pod, one, found)
            except CannotMount as error:
                self._failed(uid, pod, one.name, error)
            else:
                if isinstance(step, CsiMount):
                    self._publish(uid, pod, one.name, step)
                elif step is not None:
                    todo[one.name] = step
        again = bool(todo) and await self._set_up(uid, pod, todo)
        states = [pod.actual.get(name, NEW) for name in pod.wanted]
        if changes == pod.changes and not again and all(one.mounted and not one.error for one in states):
            pod.settled = changes
        return again

    def _step(self, uid: str, pod: PodVolumes, one: Wanted, found: Mapping[ObjectRef, ApiObject]) -> SetUp | None:
        """What sets the volume up; None when it is as it should be. Raises CannotMount."""
        if pod.pod is None:
            return None
        actual = pod.actual.get(one.name, NEW)
        if actual.silent:
            return HostPath(one.name, actual.path)  # whatever it is: mounted it stays, and has only to answer
        context = self._context.with_objects(found)
        grown = self._grown(pod, one, context)
        again = bool(grown) or one.name in pod.again
        if actual.mounted and one.name in pod.persistent and not again:
            return None  # what stands behind a claim stays, whatever becomes of the claim
        claimed = one.plugin.claimed(pod.pod, one.volume, context)
        if claimed is not None:
            self._reserve(uid, pod, one.name, claimed)
        step = one.plugin.step(pod.pod, one.volume, context)
        if isinstance(step, CsiMount):
            pod.published[one.name] = step.volume
            step = msgspec.structs.replace(step, name=one.name, expand_bytes=grown or step.expand_bytes)
        digest = policy.digest(step)
        if again or policy.needs(one, step, digest, actual):
            return step
        if actual.error:
            pod.actual[one.name] = policy.done(digest, actual.path)
        return None

    def _grown(self, pod: PodVolumes, one: Wanted, context: Context) -> int:
        """The bytes that a CSI volume has come to have since it was published; 0 for none."""
        try:
            claimed = one.plugin.claimed(pod.pod, one.volume, context) if pod.pod is not None else None
        except CannotMount:
            return 0
        size = storage_bytes(claimed) if claimed is not None else 0
        return size if size > pod.sizes.setdefault(one.name, size) else 0

    def _publish(self, uid: str, pod: PodVolumes, name: str, step: CsiMount) -> None:
        """Have the driver do it; the pod is looked at again when it has."""
        pod.on_disk = pod.csi = True
        self._csi.begin(pod, name, self._published(uid, pod, name, step), partial(self._look_again, uid, pod))

    async def _published(self, uid: str, pod: PodVolumes, name: str, step: CsiMount) -> None:
        try:
            outcome = await self._csi.mount(step)
        except HelperHung as hung:
            self._hung(uid, pod, name, hung)
            return
        except HelperGone as gone:
            outcome = Outcome(str(gone))
        if outcome.error:
            self._failed(uid, pod, name, CannotMount(outcome.error, volume=step.volume.spec_name))
            return
        pod.again.discard(name)
        if step.expand_bytes:
            pod.sizes[name] = step.expand_bytes
        pod.actual[name] = after = policy.done(policy.digest(step), host_path(self._root, step))
        if step.republish:
            self._actor.after(REPUBLISH_S, self._publish_again, uid, pod, name, after)

    def _publish_again(self, uid: str, pod: PodVolumes, name: str, as_it_was: Actual) -> None:
        if pod.actual.get(name) is as_it_was and pod.pod is not None:
            pod.again.add(name)
            pod.changes += 1
            self._look_again(uid, pod)

    def _look_again(self, uid: str, pod: PodVolumes) -> None:
        if pod.pod is not None:
            self._actor.spawn(self.bring_up(uid, pod), "look again")

    async def settle(self, pod: PodVolumes) -> None:
        """Give the drivers a while; what then does not answer is said so."""
        missing = [name for name in pod.at_work if not pod.actual.get(name, NEW).mounted]
        silent = await self._csi.in_time(pod, missing)
        for name, since in silent.items():
            pod.actual[name] = replace(pod.actual.get(name, NEW), hung_since=since)
        if silent:
            self._record(pod, policy.refusal(pod.wanted, pod.actual, time.time()))

    def driver_came(self, driver: str) -> None:
        """A driver can be used from now on: what failed for want of it is tried at once."""
        for uid, pod in self._pods.items():
            names = [name for name in pod.wanted if driver in pod.actual.get(name, NEW).error]
            for name in names:
                pod.actual[name] = replace(pod.actual[name], retry_at=0.0, failures=0)
            if names:
                pod.changes += 1
                self._look_again(uid, pod)

    def _reserve(self, uid: str, pod: PodVolumes, name: str, claimed: Claimed) -> None:
        """The pod is about to have the persistent volume. Raises CannotMount when it is another pod's alone."""
        others = (other for key, other in self._pods.items() if key != uid)
        if claimed.exclusive and any(claimed.name in other.persistent.values() for other in others):
            text = "volume uses the ReadWriteOncePod access mode and is already in use by another pod"
            raise CannotMount(text, volume=claimed.name)
        pod.persistent[name] = claimed.name

    async def _set_up(self, uid: str, pod: PodVolumes, todo: dict[str, SetUp]) -> bool:
        """Whether something of it is still to be done, and can be at once."""
        pod.on_disk = pod.on_disk or any(not isinstance(step, HostPath) for step in todo.values())
        pod.devices.update(step.name for step in todo.values() if isinstance(step, Local))
        names = list(todo)
        try:
            outcomes = await self.devices.run(*todo.values())
        except HelperHung as hung:
            name = names[hung.index]
            self._hung(uid, pod, name, hung)
            return len(names) > 1
        except HelperGone as gone:
            outcomes = (Outcome(str(gone)),) * len(names)
        for name, outcome in zip(names, outcomes, strict=True):
            if outcome.kept_pid:
                self._pool.adopt(outcome.kept_pid)
                self._hung(uid, pod, name, HelperHung(0, name, outcome.kept_since, outcome.kept_pid))
            elif outcome.error:
                volume = pod.persistent.get(name, "")
                problem = CannotMount(outcome.error, stage=outcome.stage or SET_UP_FAILED, volume=volume)
                self._failed(uid, pod, name, problem)
            else:
                step = todo[name]
                pod.actual[name] = policy.done(policy.digest(step), host_path(self._root, step))
        return False

    def _failed(self, uid: str, pod: PodVolumes, name: str, error: CannotMount) -> None:
        before = pod.actual.get(name, NEW)
        after = pod.actual[name] = policy.failed(before, error, time.monotonic())
        if not before.mounted:
            pod.persistent.pop(name, None)
        message = policy.failure_message(name, after)
        if before.error != str(error):
            log.warning("pod %s: %s", uid, message)
        self._record(pod, message)

    def _record(self, pod: PodVolumes, message: str) -> None:
        if pod.pod is not None:
            self._events.pod(pod.pod, "Warning", FAILED_MOUNT, message)

    def _hung(self, uid: str, pod: PodVolumes, name: str, hung: HelperHung) -> None:
        after = policy.hung(pod.actual.get(name, NEW), hung.since, hung.pid, time.monotonic())
        pod.actual[name] = after
        log.error("pod %s: volume %s does not answer", uid, name)
        self._record(pod, policy.refusal(pod.wanted, pod.actual, time.time()))
        if hung.pid:
            self._isolate(Stuck(pid=hung.pid, uid=uid, name=name, since=after.hung_since))

    def _isolate(self, stuck: Stuck) -> None:
        self._quarantine.add(stuck)
        self._save()
        self._pool.when_gone(stuck.pid, partial(self._released, stuck.uid, stuck.pid))

    def _save(self) -> None:
        self._actor.blocking(DISK_S, self._quarantine.save)

    def _released(self, uid: str, pid: int) -> None:
        """The helper that hung at one of the pod's volumes is gone: they may be tried again."""
        self._quarantine.discard(pid)
        self._save()
        pod = self._pods.get(uid)
        if pod is None:
            return
        for name, one in list(pod.actual.items()):
            if one.stuck_pid == pid:
                pod.actual[name] = policy.released(one)
        if pod.stuck_pid == pid:
            pod.stuck_pid, pod.error = 0, ""
        self._actor.spawn(self.bring_up(uid, pod), "released")

    def new_pod(self, uid: str) -> PodVolumes:
        """A pod nothing is known of, but what a static pod of its UID may have run into before."""
        now = time.monotonic()
        hung = {stuck.name: policy.hung(NEW, stuck.since, stuck.pid, now) for stuck in self._quarantine.of(uid)}
        return PodVolumes(actual=dict(hung), csi=bool(hung))

    def take_over(self) -> None:
        """The quarantine of earlier incarnations."""
        for stuck, pidfd in self._quarantine.load():
            pod = self._pods.setdefault(stuck.uid, PodVolumes(on_disk=True))
            if stuck.removal:
                pod.stuck_pid = stuck.pid
                pod.error = policy.tear_down_message(stuck.name, policy.silence({stuck.name: stuck.since}, time.time()))
            else:
                pod.actual[stuck.name] = policy.hung(NEW, stuck.since, stuck.pid, time.monotonic())
            self._pool.adopt(stuck.pid, pidfd)
            self._pool.when_gone(stuck.pid, partial(self._released, stuck.uid, stuck.pid))

    def _try_again_in_time(self, uid: str, pod: PodVolumes) -> None:
        pod.stop_timer()
        states = (pod.actual.get(name, NEW) for name in pod.wanted if name not in pod.at_work)
        delay_s = policy.next_try_s(states, time.monotonic())
        if delay_s is not None and not pod.users:
            pod.timer = self._actor.after(delay_s, lambda: self._actor.spawn(self.bring_up(uid, pod), "try again"))

    # What is done with mounted volumes

    async def use(self, uid: str, pod: PodVolumes, *steps: HostPath | ReadFile | SubPath) -> tuple[Outcome, ...]:
        """Do these on the pod's volumes. With one that does not answer nothing is done until it does. Raises Silent,
        HelperGone."""
        pod.users += 1
        try:
            async with pod.turn:
                since = {
                    step.name: one.hung_since for step in steps if (one := pod.actual.get(step.name, NEW)).stuck_pid
                }
                if since:
                    raise Silent(since)
                return await self._pool.run(*steps)
        except HelperHung as hung:
            name = steps[hung.index].name
            before = pod.actual.get(name, NEW)
            pod.actual[name] = replace(before, silent=before.mounted)
            pod.changes += 1
            pod.refused = True
            self._hung(uid, pod, name, hung)
            raise Silent({name: pod.actual[name].hung_since}) from None
        finally:
            pod.users -= 1
            if pod.refused and pod.pod is not None:
                self._try_again_in_time(uid, pod)

    # Removal

    async def take_down(self, uid: str, pod: PodVolumes) -> None:
        """Remove all of the pod's volumes, once what is under way has come to an end. Raises RemovalFailed."""
        pod.give_up()
        pod.users += 1
        try:
            async with pod.turn:
                if pod.stuck_pid:
                    raise RemovalFailed(pod.error)
                if pod.csi:
                    await self._unpublish(uid, pod)
                await self._remove(uid, pod)
                pod.actual.clear()
                pod.persistent.clear()
                self.devices.release(*pod.devices)
                pod.devices.clear()
                pod.on_disk, pod.error = False, ""
        except RemovalFailed as failure:
            pod.error = str(failure)
            raise
        finally:
            pod.users -= 1

    async def _unpublish(self, uid: str, pod: PodVolumes) -> None:
        try:
            await self._csi.unmount_all(uid, pod, partial(self._look_again, uid, pod))
        except CsiFailed as failure:
            if failure.hung is not None and failure.hung.pid:
                hung = failure.hung
                pod.stuck_pid = hung.pid
                self._isolate(Stuck(pid=hung.pid, uid=uid, name=hung.name, since=hung.since, removal=True))
            raise RemovalFailed(str(failure)) from None
        for known in (pod.published, pod.sizes, pod.again):
            known.clear()

    def _removal_hung(self, uid: str, pod: PodVolumes, hung: HelperHung) -> None:
        pod.error = policy.tear_down_message(hung.name, policy.silence({hung.name: hung.since}, time.time()))
        if hung.pid:
            pod.stuck_pid = hung.pid
            self._isolate(Stuck(pid=hung.pid, uid=uid, name=hung.name, since=hung.since, removal=True))

    async def _remove(self, uid: str, pod: PodVolumes) -> None:
        more = True
        while more:
            try:
                async with self._removals:
                    (outcome,) = await self._pool.run(TearDown(uid, SLICE_S))
            except HelperHung as hung:
                self._removal_hung(uid, pod, hung)
                raise RemovalFailed(pod.error) from None
            except HelperGone as gone:
                raise RemovalFailed(f"cannot remove the volumes of pod {uid}: {gone}") from None
            for name in [name for name, one in pod.actual.items() if not one.stuck_pid]:
                del pod.actual[name]  # half removed is not mounted
            if outcome.kept_pid:
                self._pool.adopt(outcome.kept_pid)
                self._removal_hung(uid, pod, HelperHung(0, "", outcome.kept_since, outcome.kept_pid))
                raise RemovalFailed(pod.error)
            if outcome.error:
                raise RemovalFailed(outcome.error)
            more = outcome.more
            if more:
                await self._actor.sleep(SLICE_PAUSE_S)

"""Records volume failures, emits the kubelet's events, and quarantines volumes that do not answer.

Runs in the actor's mailbox thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial

from actors._base import Actor
from actors._events.recorder import Recorder
from actors.volume import policy
from actors.volume.helper.pool import HelperHung, Pool
from actors.volume.helper.quarantine import Quarantine, Stuck
from actors.volume.plugins.base import CannotMount, Claimed
from actors.volume.policy import NEW
from actors.volume.reconcile.volume_state import PodVolumes
from actors.volume.steps.codec import Step
from actors.volume.steps.csi import CsiMount
from actors.volume.steps.errors import tear_down_message
from actors.volume.steps.places import host_path
from actors.volume.steps.volumes import Local
from proto.v1 import ObjectReference

log = logging.getLogger(__name__)

FAILED_MOUNT = "FailedMount"
FAILED_MAP = "FailedMapVolume"
_REASONS = {
    policy.MAP_AFFINITY_FAILED: FAILED_MOUNT,
    "MapVolume": FAILED_MAP,
    "NodeExpandVolume": "VolumeResizeFailed",
}
"""Event reasons of failures, by operation or its first word."""
MAPPED = "SuccessfulMountVolume"
GROWN = "FileSystemResizeSuccessful"
NOT_GROWN = "FileSystemResizeFailed"
OWNING = "VolumePermissionChangeInProgress"
SLOW = (
    " is taking longer than expected, consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-"
    "container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods"
)
MISMATCH = "FailedMountOnFilesystemMismatch"
ALREADY_MOUNTED = "AlreadyMountedVolume"
DISK_S = 5.0

Recheck = Callable[[str, PodVolumes], None]
"""Reconciles a pod again, if it still wants volumes: (UID, state)."""


class Unresponsive(Exception):
    """Mounted volumes do not answer; the message names them, with seconds."""

    def __init__(self, since: Mapping[str, float]) -> None:
        super().__init__(policy.unresponsive_message(since, time.time()))
        self.names = tuple(since)


class RemovalFailed(Exception):
    """A pod's volumes cannot be removed now; the message is the kubelet's."""


class FailureReporter:
    """Records failures in the state of pods, and keeps the quarantine."""

    def __init__(self, actor: Actor, pool: Pool, pods: dict[str, PodVolumes], path: str, recheck: Recheck) -> None:
        """`pods` by UID; `path` of the file that keeps the quarantine."""
        self._actor, self._pool, self._pods, self._recheck = actor, pool, pods, recheck
        self._quarantine = Quarantine(path)
        self._events = Recorder(actor.peer("events"))
        pool.on_owning = self.owning

    def owning(self, step: Step, files: int) -> None:
        """Emit the event for a change of ownership that takes long; `files` so far, 0 the first time."""
        if not isinstance(step, CsiMount | Local):
            return
        uid = step.volume.uid if isinstance(step, CsiMount) else step.uid
        path = host_path(self._actor.settings.root_dir, step)
        what = f"Setting volume ownership for {path[path.index(uid) :]}"
        if uid in self._pods:
            self.record(self._pods[uid], f"{what}, processed {files} files." if files else what + SLOW, OWNING)

    def failed(self, uid: str, pod: PodVolumes, name: str, error: CannotMount) -> None:
        """Record a failure to set a volume up; the reconciler retries it after its back-off.

        The first failures to refresh a mounted volume are no event, nor are any of an ending pod; see policy.is_quiet.
        A wait for the attachment is no event, as in the kubelet (VerifyControllerAttachedVolume): each disk has one.
        Without an API server it is an event, since no controller will attach the disk.
        """
        before, wanted = pod.actual.get(name, NEW), pod.wanted.get(name)
        stage = error.stage = policy.operation(error.stage, wanted)
        after = pod.actual[name] = policy.failed(before, error, time.monotonic())
        pod.settled = -1  # a repeated publication may fail once the pod's volumes are as desired
        if not before.mounted:
            pod.persistent.pop(name, None)
        message = policy.failure_message(name, after)
        waits = stage in policy.ATTACHING and bool(self._actor.settings.kubeconfig)
        quiet = policy.is_quiet(wanted, after, ending=pod.ending)
        if before.error != str(error) or (not quiet and policy.is_quiet(wanted, before)):
            log.log(logging.INFO if waits or quiet else logging.WARNING, "pod %s: %s", uid, message)
        if waits or quiet:
            return
        self.record(pod, message, _REASONS.get(stage) or _REASONS.get(stage.partition(".")[0], FAILED_MOUNT))

    def watch(self, pod: PodVolumes) -> None:
        """Emit an event each time that the pod has waited MAY_WAIT_S for its volumes."""
        if pod.overdue is None:
            pod.overdue = self._actor.after(policy.MAY_WAIT_S, self._overdue, pod)

    def _overdue(self, pod: PodVolumes) -> None:
        pod.overdue = None
        if pod.pod is None or pod.is_mounted:
            return
        message = policy.overdue_message(pod.wanted, pod.actual, time.time())
        if message:
            self.record(pod, message)
        self.watch(pod)

    def record(self, pod: PodVolumes, message: str, reason: str = FAILED_MOUNT) -> None:
        """Emit a Warning event, if the pod still wants its volumes."""
        if pod.pod is not None:
            self._events.pod(pod.pod, "Warning", reason, message)

    def mapped(self, pod: PodVolumes, volume: str, paths: Mapping[str, str]) -> None:
        """Emit events for a raw device in the pod's directory; `paths` by the kubelet's names."""
        for kind, path in paths.items():
            message = f'MapVolume.MapPodDevice succeeded for volume "{volume}" {kind} "{path}"'
            if pod.pod is not None:
                self._events.pod(pod.pod, "Normal", MAPPED, message)

    def grown(self, pod: PodVolumes, volume: str, claim: ObjectReference) -> None:
        """Emit the events for a volume that its driver has grown."""
        message = f'MountVolume.NodeExpandVolume succeeded for volume "{volume}" {self._actor.settings.node_name}'
        if pod.pod is not None:
            self._events.pod(pod.pod, "Normal", GROWN, message)
        self._events.object(claim, "Normal", GROWN, message)

    def not_grown(self, pod: PodVolumes, claimed: Claimed) -> None:
        """Emit the events for a volume that has grown, and that this pod may only read."""
        message = f'MountVolume.NodeExpandVolume failed for volume "{claimed.name}" requested read-only file system'
        self.record(pod, message, NOT_GROWN)
        self._events.object(claim_reference(claimed), "Warning", NOT_GROWN, message)

    def mismatch(self, step: Local, error: str) -> None:
        """Emit the event for a PersistentVolume whose disk has another file system than it says."""
        volume = ObjectReference(api_version="v1", kind="PersistentVolume", name=step.name, uid=step.volume_uid)
        message = f'MountVolume failed for volume "{step.name}" {error}'
        self._events.object(volume, "Warning", MISMATCH, message)

    def hung(self, uid: str, pod: PodVolumes, name: str, hung: HelperHung) -> None:
        """Record a volume that does not answer, and isolate it while it keeps a helper in the kernel."""
        after = policy.hung(pod.actual.get(name, NEW), hung.since, hung.pid, time.monotonic())
        pod.actual[name] = after
        pod.settled = -1
        log.error("pod %s: volume %s does not answer", uid, name)
        self.record(pod, policy.refusal(pod.wanted, pod.actual, time.time()))
        if hung.pid:
            self._isolate(Stuck(pid=hung.pid, uid=uid, name=name, since=after.hung_since))

    def removal_hung(self, uid: str, pod: PodVolumes, hung: HelperHung) -> None:
        """Record a volume that does not answer during its removal, and isolate it likewise."""
        pod.error = tear_down_message(hung.name, policy.unresponsive_message({hung.name: hung.since}, time.time()))
        if hung.pid:
            pod.stuck_pid = hung.pid
            self._isolate(Stuck(pid=hung.pid, uid=uid, name=hung.name, since=hung.since, removal=True))

    def _isolate(self, stuck: Stuck) -> None:
        self._quarantine.add(stuck)
        self._save()
        self._pool.when_gone(stuck.pid, partial(self._released, stuck.uid, stuck.pid))

    def _save(self) -> None:
        self._actor.blocking(DISK_S, self._quarantine.save)

    def _released(self, uid: str, pid: int) -> None:
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
        self._recheck(uid, pod)

    def new_pod(self, uid: str, *, scanned: bool) -> PodVolumes:
        """State of a new pod; a static pod's UID may be in quarantine from an earlier run.

        `scanned`: the disk was read at the start. Otherwise the pod may have CSI volumes of an earlier incarnation.
        """
        now = time.monotonic()
        hung = {stuck.name: policy.hung(NEW, stuck.since, stuck.pid, now) for stuck in self._quarantine.of(uid)}
        return PodVolumes(actual=dict(hung), csi=bool(hung) or not scanned)

    def take_over(self) -> None:
        """Restore the quarantine of earlier incarnations."""
        for stuck, pidfd in self._quarantine.load():
            pod = self._pods.setdefault(stuck.uid, PodVolumes(on_disk=True))
            if stuck.removal:
                pod.stuck_pid = stuck.pid
                pod.error = tear_down_message(
                    stuck.name, policy.unresponsive_message({stuck.name: stuck.since}, time.time())
                )
            else:
                pod.actual[stuck.name] = policy.hung(NEW, stuck.since, stuck.pid, time.monotonic())
            self._pool.adopt(stuck.pid, pidfd)
            self._pool.when_gone(stuck.pid, partial(self._released, stuck.uid, stuck.pid))


def claim_reference(claimed: Claimed) -> ObjectReference:
    """Reference to the claim in events."""
    meta = claimed.claim.metadata
    return ObjectReference(
        api_version="v1", kind="PersistentVolumeClaim", namespace=meta.namespace, name=meta.name, uid=meta.uid
    )

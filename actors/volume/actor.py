"""The volume actor: sets up what a pod's containers mount, and removes it when the pod is gone.

The actual state is on disk and in the mount table; it is read once at the start, and kept in memory from then on, so
that MountPod of what is there costs no system call. One operation for each pod at a time, in a thread; a file system
that hangs holds up its own pod only. Killed at any moment, the next incarnation finds what is done, and a repeat does
the rest.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from actors._base import Actor, Gate, handles
from actors._host import paths
from actors.volume import policy, removal, setup, sizes
from actors.volume.policy import CannotMount, HostPath, Wanted
from actors.volume.setup import VolumeError
from proto.errors import AskTimeout, Refused
from proto.message import Done
from proto.volume import MountPod, PodMounted, UnmountPod

log = logging.getLogger(__name__)

FAILED_MOUNT = "FailedMount"
FAILED_UNMOUNT = "FailedUnMount"
NOT_IN_TIME = "context deadline exceeded"
SET_UP_S = 123.0
"""podAttachAndMountTimeout of the kubelet: 2 minutes, and 3 s to recognise it by."""
SCAN_S = 0.1
"""How long the start may wait for the disk. Without the scan every answer costs system calls, and is as right."""
SLICE_S = 0.05
"""A removal gives its thread back so often, so that removals take turns however large they are."""
SLICE_PAUSE_S = 0.002
"""Between slices: a removal that makes no headway does not spin."""
REMOVE_S = 60.0
"""A slice that does not return so long hangs in the kernel."""
REMOVALS_AT_ONCE = 2


@dataclass
class PodVolumes:
    """What is known of one pod."""

    there: dict[str, Wanted] = field(default_factory=dict)
    turn: Gate = field(default_factory=lambda: Gate(1))
    users: int = 0
    """Requests at work or in wait for their turn."""
    in_thread: bool = False
    """A call has not returned from the kernel, even if nobody waits for it any more."""
    on_disk: bool = False
    error: str = ""


class VolumeManager(Actor):
    """The kubelet's volume manager, for volumes that need nothing from outside the node."""

    name = "volume"
    asks = frozenset()
    blocking_threads = 64

    async def rebuild(self) -> None:
        """The actual state, from disk and mount table."""
        self.root = self.settings.root_dir
        self.pods: dict[str, PodVolumes] = {}
        self.removals = Gate(REMOVALS_AT_ONCE)
        capacity = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.allocatable = sizes.allocatable_memory(capacity, self.settings.eviction_hard.get("memory.available"))
        self.scanned = False
        try:
            found = await self.blocking(SCAN_S, setup.find_ready, self.root)
        except (AskTimeout, OSError) as error:
            log.warning("cannot see what volumes are set up under %s: %s; each pod's are looked at", self.root, error)
            return
        self.scanned = True
        for uid, there in found.items():
            self.pods[uid] = PodVolumes(there, on_disk=True)

    def describe(self) -> dict[str, Any]:
        """Counts, and pods that wait or failed."""
        return {
            "pods": len(self.pods),
            "volumes": sum(len(pod.there) for pod in self.pods.values()),
            "busy": [uid for uid, pod in self.pods.items() if pod.users],
            "hung": [uid for uid, pod in self.pods.items() if pod.in_thread and not pod.users],
            "failed": {uid: pod.error for uid, pod in self.pods.items() if pod.error},
        }

    @handles(MountPod)
    def mount_pod(self, request: MountPod) -> PodMounted | Coroutine[Any, None, PodMounted]:
        """Answered at once when nothing is missing."""
        uid = request.pod.metadata.uid
        try:
            wanted = policy.wanted_volumes(request.pod, self.allocatable)
            policy.check_component(uid)
        except CannotMount as error:
            raise Refused(FAILED_MOUNT, str(error), retry=False) from None
        pod = self.pods.get(uid)
        if not wanted:
            return PodMounted(host_paths={})
        if pod is not None and not pod.users and not policy.missing_volumes(wanted, pod.there):
            return self._mounted(uid, wanted)
        return self._mount(uid, wanted)

    def _mounted(self, uid: str, wanted: tuple[Wanted, ...]) -> PodMounted:
        return PodMounted(
            host_paths={
                volume.name: volume.path
                if isinstance(volume, HostPath)
                else paths.volume_dir(self.root, uid, policy.EMPTY_DIR, volume.name)
                for volume in wanted
            }
        )

    async def _mount(self, uid: str, wanted: tuple[Wanted, ...]) -> PodMounted:
        pod = self.pods.setdefault(uid, PodVolumes())
        pod.users += 1
        try:
            async with pod.turn:
                missing = policy.missing_volumes(wanted, pod.there)
                if any(not isinstance(volume, HostPath) for volume in missing):
                    pod.on_disk = True
                if missing:
                    await self._set_up(uid, pod, missing)
        finally:
            pod.users -= 1
        return self._mounted(uid, wanted)

    async def _set_up(self, uid: str, pod: PodVolumes, missing: tuple[Wanted, ...]) -> None:
        names = [volume.name for volume in missing]
        try:
            errors = await self._in_thread(pod, SET_UP_S, self._set_up_all, uid, missing)
        except AskTimeout:
            pod.error = policy.unmounted_message(names, (), NOT_IN_TIME)
            raise Refused(FAILED_MOUNT, pod.error) from None
        pod.there.update((volume.name, volume) for volume in missing if volume.name not in errors)
        pod.error = "; ".join(policy.set_up_message(name, text) for name, text in errors.items())
        if errors:
            raise Refused(FAILED_MOUNT, pod.error)

    def _set_up_all(self, uid: str, missing: tuple[Wanted, ...]) -> dict[str, str]:
        """What went wrong, by volume. In a thread."""
        errors: dict[str, str] = {}
        for volume in missing:
            try:
                setup.set_up(self.root, uid, volume)
            except VolumeError as error:
                errors[volume.name] = str(error)
        return errors

    @handles(UnmountPod)
    def unmount_pod(self, request: UnmountPod) -> Done | Coroutine[Any, None, Done]:
        """Answered at once for a pod that never had anything on disk."""
        uid = request.pod_uid
        try:
            policy.check_component(uid)
        except CannotMount as error:
            raise Refused(FAILED_UNMOUNT, str(error), retry=False) from None
        pod = self.pods.get(uid)
        if self.scanned and (pod is None or (not pod.on_disk and not pod.users)):
            self.pods.pop(uid, None)
            return Done()
        return self._unmount(uid)

    async def _unmount(self, uid: str) -> Done:
        pod = self.pods.setdefault(uid, PodVolumes(on_disk=True))
        pod.users += 1
        try:
            async with pod.turn:
                pod.there.clear()
                await self._remove(uid, pod)
                pod.on_disk, pod.error = False, ""
        finally:
            pod.users -= 1
            if not pod.users and not pod.on_disk:
                self.pods.pop(uid, None)
        return Done()

    async def _remove(self, uid: str, pod: PodVolumes) -> None:
        try:
            while not await self._remove_slice(uid, pod):
                await self.sleep(SLICE_PAUSE_S)
        except VolumeError as error:
            pod.error = str(error)
        except AskTimeout:
            pod.error = f"cannot remove the volumes of pod {uid}: {NOT_IN_TIME}"
        else:
            return
        raise Refused(FAILED_UNMOUNT, pod.error)

    async def _remove_slice(self, uid: str, pod: PodVolumes) -> bool:
        async with self.removals:
            gone: bool = await self._in_thread(pod, REMOVE_S, removal.remove_pod_volumes, self.root, uid, SLICE_S)
        return gone

    async def _in_thread(self, pod: PodVolumes, timeout_s: float, function: Any, *args: Any) -> Any:
        """`blocking`, but never a second call for a pod whose last one still hangs: that would be one thread more each
        time somebody asks."""
        if pod.in_thread:
            raise AskTimeout("an earlier call has not returned")
        pod.in_thread = True

        def call() -> Any:
            try:
                return function(*args)
            finally:
                pod.in_thread = False

        return await self.blocking(timeout_s, call)


ACTOR = VolumeManager

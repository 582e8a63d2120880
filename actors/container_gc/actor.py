"""The container_gc actor: takes away dead containers and sandboxes, and what pods that are gone left on the node.

It also rotates the logs of containers that run (`rotation`).

Only pods with a mark of ours are touched (`actors._host.files.own_pods`). A pod's directory goes after its logs, and
after all that the runtime has of it; what appears later is known by the record of removed pods.

A full pass every period looks at everything; pods that the pod workers report as terminated are cleaned up after a
moment, all that came in it together. Whatever cannot go now goes in a later pass: it is seen again.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection
from typing import Any

from actors._base import Actor, gather, handles
from actors._base.messaging.tasks import Semaphore
from actors._cgroup import fs as cgroup_fs
from actors._cgroup.kill import kill_processes
from actors._cri.errors import CriError
from actors._cri.relay import RelayedCri
from actors._events.recorder import Recorder
from actors._host.files import listing, paths
from actors._host.files.own_pods import OwnPods
from actors.container_gc import foreign, policy, removal
from actors.container_gc.listing import container_views, sandbox_views
from actors.container_gc.policy import ContainerView, Limits, Pods, SandboxView, Seen
from actors.container_gc.rotation import LogRotation
from proto.common.until import Until
from proto.node.container_gc import Collected, CollectGarbage, PodTerminated
from proto.pods.pod_workers import ListPodWorkers
from proto.pods.volume import UnmountPod
from proto.wire.errors import ActorError, Refused

log = logging.getLogger(__name__)

COALESCE_S = 0.2
"""Pods deleted together are reported one by one; one pass over all of them costs little more than one over one."""
FIRST_PASS_S = 5.0
"""From the start, by when the pod workers have seen their sources."""
RETRY_S = 1.0
"""After the pod workers did not answer."""
WORKERS_S = 10.0
UNMOUNT_S = 60.0
DISK_S = 60.0
SHOWN = 20
"""Foreign pods that `describe` names."""
AT_ONCE = 4
"""Removals in the runtime under way together: dead containers are never urgent."""


class ContainerGc(Actor):
    """State: pods reported as terminated and not yet cleaned up. A full pass finds them too, were it lost."""

    name = "container_gc"
    asks = frozenset({"pod_workers", "volume", "pleg"})

    async def rebuild(self) -> None:
        """Nothing to bring back: the runtime and the disk are looked at in each pass."""
        settings = self.settings
        endpoint = settings.container_runtime_endpoint
        self._cri = (
            RelayedCri(self.peer("pleg"), request_seconds=settings.runtime_request_timeout_s) if endpoint else None
        )
        self._limits = Limits(
            settings.container_gc_min_age_s,
            settings.container_gc_max_per_pod_container,
            settings.container_gc_max_containers,
        )
        self._own = OwnPods(settings.root_dir, take_over=settings.take_over)
        self._rotation = self._log_rotation()
        self._alone = Semaphore(1)
        self._removals = Semaphore(AT_ONCE)
        self._terminated: dict[str, PodTerminated] = {}
        self._waiting = False
        self._busy: set[str] = set()
        """Pods that are gone and whose cgroup was busy in the pass before."""
        self._passes = self._pod_passes = 0
        self._last = Collected(containers=0, sandboxes=0, directories=0)
        self._last_error = ""
        self._foreign: dict[str, tuple[str, ...]] = {}
        """What the last full pass left alone, by UID: where it was seen."""

    def _log_rotation(self) -> LogRotation | None:
        settings = self.settings
        if self._cri is None or settings.container_log_max_bytes < 0:
            return None
        return LogRotation(
            self._cri,
            self.blocking,
            settings.pod_logs_dir,
            settings.container_log_max_bytes,
            settings.container_log_max_files,
            settings.container_log_max_workers,
            self._own.among,
        )

    def on_ready(self) -> None:
        """The first full pass comes a moment after the start."""
        self.after(min(self.settings.container_gc_period_s, FIRST_PASS_S), self._start)

    def _start(self) -> None:
        self.every(Until(self.settings.container_gc_period_s), self._tick, "collect")
        if self._rotation is not None:
            self.every(Until(self.settings.container_log_monitor_interval_s), self._rotate_logs, "rotate logs")

    async def _rotate_logs(self) -> None:
        assert self._rotation is not None
        try:
            await self._rotation.look(self.spawn)
        except (CriError, ActorError, OSError) as error:
            log.warning("cannot rotate logs now: %s; tried again at the next look", error)

    def describe(self) -> dict[str, Any]:
        """Passes, and what the last full one did."""
        return {
            "passes": self._passes,
            "pod_passes": self._pod_passes,
            "waiting": len(self._terminated),
            "containers": self._last.containers,
            "sandboxes": self._last.sandboxes,
            "directories": self._last.directories,
            "logs_rotated": self._rotation.rotated if self._rotation is not None else 0,
            "last_error": self._last_error,
            "foreign": len(self._foreign),
            "left_alone": [f"{uid} ({', '.join(self._foreign[uid])})" for uid in sorted(self._foreign)[:SHOWN]],
        }

    @handles(CollectGarbage)
    async def collect_garbage(self, request: CollectGarbage) -> Collected:
        """Refused ContainerGCFailed when the runtime or the pod workers do not answer."""
        try:
            return await self._full_pass(ended_too=request.all_dead)
        except (CriError, ActorError, OSError) as error:
            self._last_error = str(error)
            raise Refused("ContainerGCFailed", str(error)) from error

    async def _tick(self) -> None:
        try:
            await self._full_pass(ended_too=False)
        except (CriError, ActorError, OSError) as error:
            self._last_error = str(error)
            log.warning("container garbage collection failed: %s; tried again at its next period", error)
            if not isinstance(error, ActorError):  # a peer that is away is no news of the node
                Recorder(self.peer("events")).node("Warning", "ContainerGCFailed", str(error))

    # Pods that have just ended

    @handles(PodTerminated)
    def pod_terminated(self, message: PodTerminated) -> None:
        """Clean up soon, together with the other pods that end now."""
        self._terminated[message.pod_uid] = message
        if not self._waiting:
            self._waiting = True
            self.after(COALESCE_S, self._start_pod_pass)

    def _start_pod_pass(self) -> None:
        self._waiting = False
        self.spawn(self._pod_pass(), "pod pass")

    async def _pod_pass(self) -> None:
        reported: dict[str, PodTerminated] = {}
        try:
            async with self._alone:
                # Only now, so that those who came during the pass before are in this one.
                reported, self._terminated = self._terminated, {}
                if reported:
                    self._pod_passes += 1
                    await self._clean_up(reported)
        except (ActorError, OSError) as error:
            log.info("cannot clean up after terminated pods now: %s; trying again", error)
            self._terminated = reported | self._terminated
            if not self._waiting:
                self._waiting = True
                self.after(RETRY_S, self._start_pod_pass)

    async def _clean_up(self, reported: dict[str, PodTerminated]) -> None:
        pods = await self._ask_pods(reported.keys())  # ours: the pod workers had them
        gone = [one for uid, one in reported.items() if pods.is_gone(uid)]
        if gone:
            await self.blocking(DISK_S, self._remove_reported, gone)

    def _remove_reported(self, gone: list[PodTerminated]) -> None:
        """Of pods by name, without looking for others. In a thread of the pool."""
        settings = self.settings
        self._remove_cgroups({one.pod_uid for one in gone})
        logs = [paths.pod_log_dir(settings.pod_logs_dir, one.pod_namespace, one.pod_name, one.pod_uid) for one in gone]
        links = removal.symlinks_into(settings.container_logs_dir, logs)
        removal.remove_symlinks(settings.container_logs_dir, links)
        removal.remove_log_directories(settings.pod_logs_dir, map(os.path.basename, logs))
        self._remove_directories({one.pod_uid for one in gone})

    def _remove_directories(self, uids: set[str]) -> int:
        """The pods' own, last: they are marks. A cgroup that is busy yet is known by the record. How many went."""
        return removal.remove_pod_directories(self.settings.root_dir, uids, self._own.note_removed)

    # Everything

    async def _full_pass(self, *, ended_too: bool) -> Collected:
        if self._cri is None:
            raise Refused("ContainerGCFailed", "no container runtime is configured", retry=False)
        async with self._alone:
            self._passes += 1
            seen = await self._look(self._cri)
            own = await self.blocking(DISK_S, self._own_among, seen)
            pods = await self._ask_pods(own)
            self._report(foreign.foreign_pods(seen.uids, pods))
            removed = await self._remove_containers(self._cri, seen.containers, pods, ended_too=ended_too)
            kept = {container.sandbox_id for container in seen.containers if container.id not in removed}
            idle = policy.sandboxes_to_remove(seen.sandboxes, kept.__contains__, pods, ended_too=ended_too)
            went = await self._remove_sandboxes(self._cri, idle)
            running = {one.id for one in seen.containers if one.state != "exited"} - removed
            stale = policy.stale_links(seen.links, running, pods)
            directories = await self._remove_disk(seen, own, seen.held(removed | went), stale)
            self._last_error = ""
            self._last = Collected(containers=len(removed), sandboxes=len(went), directories=directories)
            return self._last

    async def _look(self, cri: RelayedCri) -> Seen:
        """All there is. The marks, and the pod workers, are asked after it: what a pod that begins meanwhile makes is
        not in the lists yet, and whatever is in them had its worker, and its mark, before it was made."""
        settings = self.settings
        links = await self.blocking(DISK_S, removal.dead_symlinks, settings.container_logs_dir, settings.pod_logs_dir)
        containers = container_views(await cri.list_containers(), settings.pod_logs_dir)
        sandboxes = sandbox_views(await cri.list_pod_sandbox())
        uids = await self.blocking(DISK_S, self._seen_on_disk)
        uids["runtime"] = {one.pod_uid for one in containers} | {one.pod_uid for one in sandboxes}
        return Seen(containers, sandboxes, uids, links)

    def _own_among(self, seen: Seen) -> set[str]:
        """Of the pods seen: those with a mark of ours. Logs alone are no reason to take a pod over."""
        logs = seen.uids["logs"].union(map(policy.log_directory_uid, seen.links.values()))
        others = seen.uids["directory"] | seen.uids["cgroup"] | seen.uids["runtime"]
        return OwnPods(self.settings.root_dir).among(logs) | self._own.among(others)

    def _report(self, found: dict[str, tuple[str, ...]]) -> None:
        """Say each foreign pod once, for as long as it is seen."""
        if new := {uid: places for uid, places in found.items() if uid not in self._foreign}:
            log.warning("%s", foreign.foreign_line(new))
        self._foreign = found

    async def _ask_pods(self, own: Collection[str] = frozenset()) -> Pods:
        return Pods.of(await self.peer("pod_workers").ask(ListPodWorkers(), WORKERS_S), own)

    async def _remove_containers(
        self, cri: RelayedCri, containers: list[ContainerView], pods: Pods, *, ended_too: bool
    ) -> set[str]:
        """IDs of those that went."""
        dead = policy.containers_to_remove(containers, pods, self._limits, time.time(), ended_too=ended_too)
        went = await gather(*[self.spawn(self._remove_container(cri, container), "remove") for container in dead])
        return {container.id for container, done in zip(dead, went, strict=True) if done}

    async def _remove_container(self, cri: RelayedCri, container: ContainerView) -> bool:
        try:
            async with self._removals:
                if container.state == "unknown":  # it may run
                    await cri.stop_container(container.id, 0)
                if container.log_path:
                    removal.remove_container_log(container.log_path)
                await cri.remove_container(container.id)
        except CriError as error:
            log.warning("cannot remove the dead container %s of pod %s: %s", container.name, container.pod_uid, error)
            return False
        return True

    async def _remove_sandboxes(self, cri: RelayedCri, idle: list[SandboxView]) -> set[str]:
        """IDs of those that went."""
        went = await gather(*[self.spawn(self._remove_sandbox(cri, sandbox), "remove") for sandbox in idle])
        return {sandbox.id for sandbox, done in zip(idle, went, strict=True) if done}

    async def _remove_sandbox(self, cri: RelayedCri, sandbox: SandboxView) -> bool:
        try:
            async with self._removals:
                # Its network may still be held: the pod worker that would have given it back may have been killed.
                await cri.stop_pod_sandbox(sandbox.id)
                await cri.remove_pod_sandbox(sandbox.id)
        except CriError as error:
            log.warning("cannot remove the sandbox %s of pod %s: %s", sandbox.id, sandbox.pod_uid, error)
            return False
        return True

    # The disk

    def _seen_on_disk(self) -> dict[str, set[str]]:
        """UIDs of all pods that have something here, by place. In a thread of the pool."""
        settings = self.settings
        logs = (policy.log_directory_uid(name) for name in listing.names(settings.pod_logs_dir))
        return {
            "directory": set(listing.names(paths.pods_dir(settings.root_dir))),
            "logs": {uid for uid in logs if uid},
            "cgroup": set(cgroup_fs.list_pod_cgroups(settings)),
        }

    async def _remove_disk(self, seen: Seen, own: set[str], held: set[str], stale: list[str]) -> int:
        """Each time by a fresh answer: a static pod that comes back has the UID, and the paths, it had before.

        `held`: pods that the runtime still has something of, whose directories stay.
        """
        pods = await self._ask_pods(own)
        gone = {uid for uids in seen.uids.values() for uid in uids if pods.is_gone(uid)}
        holding = await self.blocking(DISK_S, removal.with_volumes, self.settings.root_dir, gone)
        for uid in holding:
            try:  # nobody else asks for what a pod left that ended while no agent ran
                await self.peer("volume").ask(UnmountPod(pod_uid=uid), UNMOUNT_S)
            except ActorError as error:
                log.warning("cannot take down the volumes of pod %s, which is gone: %s", uid, error)
        if holding:
            pods = await self._ask_pods(own)
        return await self.blocking(DISK_S, self._remove_left, gone, pods, held, stale)

    def _remove_left(self, candidates: set[str], pods: Pods, held: set[str], links: list[str]) -> int:
        """In a thread of the pool; how many directories went."""
        settings = self.settings
        gone = {uid for uid in candidates if pods.is_gone(uid)}
        self._remove_cgroups(gone)
        names = {name: policy.log_directory_uid(name) for name in listing.names(settings.pod_logs_dir)}
        logs = [name for name, uid in names.items() if uid in gone]
        # A directory that was moved aside is in nobody's way, and nobody's need, when its pod has come back.
        aside = [name for name, uid in names.items() if name.startswith(removal.ASIDE) and not pods.is_foreign(uid)]
        full = [f"{settings.pod_logs_dir}/{name}" for name in logs]
        links += removal.symlinks_into(settings.container_logs_dir, full)
        removal.remove_symlinks(settings.container_logs_dir, links)
        went = removal.remove_log_directories(settings.pod_logs_dir, [*logs, *aside])
        return went + self._remove_directories(gone - held)

    def _remove_cgroups(self, uids: set[str]) -> None:
        """Those left of these pods, which are ours; a busy one is seen again in the next full pass."""
        busy: set[str] = set()
        try:
            for uid, name in cgroup_fs.list_pod_cgroups(self.settings).items():
                if uid not in uids or cgroup_fs.remove_pod_cgroup(uid, name, self.settings):
                    continue
                if uid not in self._busy:  # not at first sight: it may be the next life of a static pod
                    busy.add(uid)
                    continue
                count = kill_processes(name)
                log.warning("pod %s is gone, but %d processes are in its cgroup: killed", uid, count)
                cgroup_fs.remove_pod_cgroup(uid, name, self.settings)
        except OSError as error:
            log.warning("cannot remove cgroups of pods that are gone: %s", error)
        self._busy = self._busy - uids | busy


ACTOR = ContainerGc

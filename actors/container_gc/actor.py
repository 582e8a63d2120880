"""The container_gc actor: removes dead containers, unused sandboxes, and the files and cgroups of removed pods.

It also rotates the logs of running containers (`rotation`).

It touches only pods with a mark of ours (`actors._host.files.own_pods`). A pod's directory, which is a mark, goes after
its containers and sandboxes. The record of removed pods identifies its logs, and things that appear later.

A full pass runs every period. The cgroups and directories of pods that the pod workers report as terminated are removed
in batches after COALESCE_S. Their logs stay until the next full pass, as with the kubelet, so that log shippers read
the last lines. The full pass also retries a failed removal.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Sequence
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
from actors._host.node.plans import CHANGED, Basis, LastPlan
from actors._host.shim import end_shim
from actors.container_gc import foreign, policy, removal
from actors.container_gc.listing import container_views, sandbox_views
from actors.container_gc.policy import ContainerView, Limits, Pods, SandboxView, Seen
from actors.container_gc.rotation import LogRotation
from proto.common.until import Until
from proto.cri import api_pb2 as pb
from proto.node.container_gc import Collected, CollectGarbage, Plan, PlanCollection, PodTerminated
from proto.node.eviction import PlannedVictim
from proto.pods.pod_workers import ListPodWorkers
from proto.pods.volume import UnmountPod
from proto.v1 import ObjectReference
from proto.wire.errors import ActorError, Refused

log = logging.getLogger(__name__)

FAILED = "ContainerGCFailed"
COALESCE_S = 1.0
"""Delay that collects reports of pods deleted together. A pass over many costs little more than one over one."""
FIRST_PASS_S = 5.0
"""Time after the start; by then the pod workers have usually seen their sources."""
RETRY_S = 1.0
"""Delay after the pod workers did not answer."""
WORKERS_S = 10.0
UNMOUNT_S = 60.0
DISK_S = 60.0
SHOWN = 20
"""Foreign pods that `describe` lists."""
AT_ONCE = 4
"""Concurrent removals in the runtime: dead containers are never urgent."""


class ContainerGc(Actor):
    """State: pods reported as terminated and not yet cleaned up. After a loss a full pass finds them."""

    name = "container_gc"
    asks = frozenset({"pod_workers", "volume", "pleg"})

    async def rebuild(self) -> None:
        """Restore nothing: each pass looks at the runtime and the disk."""
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
        self._rotation: LogRotation | None = None
        if self._cri is not None and settings.container_log_max_bytes >= 0:
            self._rotation = LogRotation(self._cri, self.blocking, settings, self._own.among)
        self._alone = Semaphore(1)
        self._removals = Semaphore(AT_ONCE)
        self._terminated: dict[str, PodTerminated] = {}
        self._waiting = False
        self._busy: set[str] = set()
        """Removed pods with a busy cgroup in the pass before."""
        self._noted: set[str] = set()
        """Removed pods on record whose directories stay."""
        self._passes = self._pod_passes = 0
        self._last = Collected(containers=0, sandboxes=0, directories=0)
        self._last_error = ""
        self._events = Recorder(self.peer("events"))
        self._plan_shown = LastPlan()
        self._foreign: dict[str, tuple[str, ...]] = {}
        """Foreign pods of the last full pass: UID to places."""

    def on_ready(self) -> None:
        """Schedule the first full pass."""
        self.after(min(self.settings.container_gc_period_s, FIRST_PASS_S), self._start)

    def _start(self) -> None:
        self.every(Until(self.settings.container_gc_period_s), self._tick, "collect")
        if self._rotation is not None:
            self.every(Until(self.settings.container_log_monitor_interval_s), self._rotate_logs, "rotate logs")

    async def _rotate_logs(self) -> None:
        assert self._rotation is not None
        try:
            await self._rotation.rotate_due(self.spawn)
        except (CriError, ActorError, OSError) as error:
            log.warning("cannot rotate logs: %s; retrying at the next look", error)

    def describe(self) -> dict[str, Any]:
        """Return the number of passes and the result of the last full one."""
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
        """Run a full pass. Raises Refused ContainerGCFailed when the runtime or the pod workers do not answer."""
        try:
            return await self._full_pass(ended_too=request.all_dead)
        except (CriError, ActorError, OSError) as error:
            self._last_error = str(error)
            raise Refused(FAILED, str(error)) from error

    @handles(PlanCollection)
    async def plan_collection(self, _: PlanCollection) -> Plan:
        """Return what a pass would remove from the runtime. Raises Refused as `collect_garbage`."""
        try:
            return await self._plan(self._runtime())
        except (CriError, OSError) as error:
            raise Refused(FAILED, str(error)) from error

    async def _plan(self, cri: RelayedCri) -> Plan:
        now = time.time()
        async with self._alone:
            seen, pods = await self._look(cri)
        dead, idle = policy.to_remove(seen, pods, self._limits, now)
        victims: list[ContainerView | SandboxView] = [*dead, *idle]
        self._plan_shown.keep(policy.basis(seen, victims, pods, self._limits, now), time.monotonic())
        return Plan(victims=tuple(_planned(one, pods, now) for one in victims))

    def _runtime(self) -> RelayedCri:
        if self._cri is None:
            raise Refused(FAILED, "no container runtime is configured", retry=False)
        return self._cri

    async def _look(self, cri: RelayedCri) -> tuple[Seen, Pods]:
        """List everything, then ask for the pods: see `_list_all`."""
        seen = await self._list_all(cri)
        return seen, await self._ask_pods(await self.blocking(DISK_S, self._own_among, seen))

    async def _tick(self) -> None:
        try:
            await self._full_pass(ended_too=False)
        except (CriError, ActorError, OSError) as error:
            self._last_error = str(error)
            log.warning("cannot collect dead containers: %s; retrying at the next period", error)
            if not isinstance(error, ActorError):  # a restarting peer is no event of the node
                self._events.node("Warning", FAILED, str(error))

    # Pods that have just ended

    @handles(PodTerminated)
    def pod_terminated(self, message: PodTerminated) -> None:
        """Schedule a clean-up, together with other pods that end now."""
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
                # Taken inside the gate, so that reports during the pass before are in this one.
                reported, self._terminated = self._terminated, {}
                if reported:
                    self._pod_passes += 1
                    await self._clean_up(reported)
        except (ActorError, OSError) as error:
            log.info("cannot clean up terminated pods: %s; retrying", error)
            self._terminated = reported | self._terminated
            if not self._waiting:
                self._waiting = True
                self.after(RETRY_S, self._start_pod_pass)

    async def _clean_up(self, reported: dict[str, PodTerminated]) -> None:
        # They are ours: a pod worker reported them.
        pods = await self._ask_pods(reported.keys(), only=tuple(reported))
        finished = {uid for uid in reported if pods.has_finished(uid)}
        if finished:
            await self.blocking(DISK_S, removal.in_time(DISK_S, self._remove_reported), finished)

    def _remove_reported(self, finished: set[str]) -> None:
        """Remove cgroups and directories of reported pods, without a search for others. Runs in a thread."""
        self._remove_cgroups(finished)
        self._remove_directories(finished)

    def _remove_directories(self, uids: set[str]) -> int:
        """Remove the pods' directories, which are marks. The record still names logs and busy cgroups."""
        root = self.settings.root_dir
        went = removal.remove_pod_directories(root, uids, self._note_removed)
        self._noted = {uid for uid in self._noted if os.path.isdir(paths.pod_dir(root, uid))}
        return went

    def _note_removed(self, uids: list[str]) -> None:
        """Record each pod once. The record is bounded, and a pod that stays would push others out."""
        self._own.note_removed(uid for uid in uids if uid not in self._noted)
        self._noted = self._noted.union(uids)

    # Everything

    async def _full_pass(self, *, ended_too: bool) -> Collected:
        cri = self._runtime()
        async with self._alone:
            self._passes += 1
            seen, pods = await self._look(cri)
            self._report(foreign.foreign_pods(seen.uids, pods))
            if self._rotation is not None:
                self._rotation.expect(one for one in seen.containers if one.pod_uid in pods.own)
            now = time.time()
            dead = policy.containers_to_remove(seen.containers, pods, self._limits, now, ended_too=ended_too)
            removed = await self._remove_all(cri, dead, pods)
            idle = policy.idle_sandboxes(seen, pods, removed, ended_too=ended_too)
            went = await self._remove_all(cri, idle, pods)
            if not ended_too:
                going: list[ContainerView | SandboxView] = [*dead, *idle]
                done = [one for one in going if one.id in removed | went]
                self._compare(policy.basis(seen, done, pods, self._limits, now))
            running = {one.id for one in seen.containers if one.state != "exited"} - removed
            stale = policy.stale_links(seen.links, running, pods)
            directories = await self._remove_disk(seen, set(pods.own), seen.held(removed | went), stale)
            self._last_error = ""
            self._last = Collected(containers=len(removed), sandboxes=len(went), directories=directories)
            return self._last

    async def _list_all(self, cri: RelayedCri) -> Seen:
        """List everything on the node. The caller reads marks and pod workers afterwards.

        A pod gets its worker and its mark before anything that could be in these lists.
        """
        settings = self.settings
        links = await self.blocking(DISK_S, removal.dead_symlinks, settings.container_logs_dir, settings.pod_logs_dir)
        containers = container_views(await cri.list_containers(), settings.pod_logs_dir)
        sandboxes = sandbox_views(await cri.list_pod_sandbox())
        uids = await self.blocking(DISK_S, self._seen_on_disk)
        uids["runtime"] = {one.pod_uid for one in containers} | {one.pod_uid for one in sandboxes}
        return Seen(containers, sandboxes, uids, links)

    def _own_among(self, seen: Seen) -> set[str]:
        """Return the seen pods with a mark of ours. --take-over does not apply to pods that have only logs."""
        logs = seen.uids["logs"].union(map(policy.log_directory_uid, seen.links.values()))
        others = seen.uids["directory"] | seen.uids["cgroup"] | seen.uids["runtime"]
        return OwnPods(self.settings.root_dir).among(logs) | self._own.among(others)

    def _report(self, found: dict[str, tuple[str, ...]]) -> None:
        """Log each foreign pod once, while it is seen."""
        if new := {uid: places for uid, places in found.items() if uid not in self._foreign}:
            log.warning("%s", foreign.foreign_line(new))
        self._foreign = found

    async def _ask_pods(self, own: Collection[str] = frozenset(), only: tuple[str, ...] = ()) -> Pods:
        """`only`: UIDs of the pods to ask for; empty for all."""
        return Pods.of(await self.peer("pod_workers").ask(ListPodWorkers(uids=only), WORKERS_S), own)

    def _compare(self, act: Basis) -> None:
        """Tell how a pass differs from the plan that was shown."""
        if text := self._plan_shown.compare(act, time.monotonic()):
            log.warning("%s", text)
            self._events.node("Normal", CHANGED, text)

    async def _remove_all(self, cri: RelayedCri, items: Sequence[ContainerView | SandboxView], pods: Pods) -> set[str]:
        """Return the IDs of the removed containers or sandboxes."""
        removed = await gather(*[self.spawn(self._remove(cri, item, pods), "remove") for item in items])
        return {item.id for item, done in zip(items, removed, strict=True) if done}

    async def _remove(self, cri: RelayedCri, item: ContainerView | SandboxView, pods: Pods) -> bool:
        why = policy.rule(item, pods)
        try:
            async with self._removals:
                if isinstance(item, SandboxView):
                    reason, text = policy.SANDBOX_REMOVED, await self._remove_sandbox(cri, item, why)
                else:
                    reason, text = policy.REMOVED, await self._remove_container(cri, item, why)
        except CriError as error:
            kind = "sandbox" if isinstance(item, SandboxView) else "dead container"
            log.warning("cannot remove the %s %s of pod %s: %s; trying again", kind, item.id, item.pod_uid, error)
            return False
        log.info("pod %s: %s", item.pod_uid, text)
        pod = ObjectReference(
            kind="Pod", namespace=item.namespace, name=item.pod_name, uid=item.pod_uid, api_version="v1"
        )
        self._events.object(pod, "Normal", reason, text)
        return True

    async def _remove_sandbox(self, cri: RelayedCri, item: SandboxView, why: str) -> str:
        """Stopping releases its network: the pod worker may have been killed before that. Raises CriError."""
        await cri.stop_pod_sandbox(item.id)
        try:
            await cri.remove_pod_sandbox(item.id)
        except CriError as error:
            if error.task_runs:
                await self.blocking(DISK_S, end_shim, item.id)  # the next pass succeeds
            raise
        return policy.sandbox_message(item, why, time.time())

    async def _remove_container(self, cri: RelayedCri, item: ContainerView, why: str) -> str:
        """Returns the event's message. Raises CriError."""
        if item.state == "unknown":  # it may run
            await cri.stop_container(item.id, 0)
        layer_bytes = await self._layer_bytes(cri, item)
        log_bytes = removal.remove_container_log(item.log_path) if item.log_path else 0
        await cri.remove_container(item.id)
        return policy.removal_message(item, why, layer_bytes, log_bytes, time.time())

    async def _layer_bytes(self, cri: RelayedCri, item: ContainerView) -> int | None:
        """Return the size of a dead container's writable layer; None when the runtime does not tell."""
        try:
            found = await cri.list_container_stats(pb.ContainerStatsFilter(id=item.id))
        except CriError:
            return None
        sizes = [one.writable_layer.used_bytes.value for one in found if one.attributes.id == item.id]
        return sizes[0] if sizes else None

    # The disk

    def _seen_on_disk(self) -> dict[str, set[str]]:
        """Return place to UIDs of all pods with files or cgroups. Runs in a thread."""
        settings, pods_dir = self.settings, paths.pods_dir(self.settings.root_dir)
        logs = (policy.log_directory_uid(name) for name in listing.names(settings.pod_logs_dir))
        return {
            "directory": {uid for uid in listing.names(pods_dir) if not uid.startswith(removal.TRASH)},
            "logs": {uid for uid in logs if uid},
            "cgroup": set(cgroup_fs.list_pod_cgroups(settings)),
        }

    async def _remove_disk(self, seen: Seen, own: set[str], held: set[str], stale: list[str]) -> int:
        """Remove files and cgroups of removed pods, and logs of evicted ones; return how many directories went.

        Asks the pod workers again: a static pod that comes back has its old UID and paths. `held`: pods with a
        container or sandbox left, whose directories stay.
        """
        pods = await self._ask_pods(own)
        unused = {uid for uids in seen.uids.values() for uid in uids if pods.has_no_use(uid)}
        gone = {uid for uid in unused if pods.is_gone(uid)}
        holding = await self.blocking(DISK_S, removal.with_volumes, self.settings.root_dir, gone)
        for uid in holding:
            try:  # of a pod that ended while no agent ran: it has no worker that would ask
                await self.peer("volume").ask(UnmountPod(pod_uid=uid), UNMOUNT_S)
            except ActorError as error:
                log.warning(
                    "cannot unmount the volumes of removed pod %s: %s; trying again at the next collection", uid, error
                )
        if holding:
            pods = await self._ask_pods(own)
        remove = removal.in_time(DISK_S, self._remove_left)
        return await self.blocking(DISK_S, remove, unused, pods, held, stale)

    def _remove_left(self, candidates: set[str], pods: Pods, held: set[str], links: list[str]) -> int:
        settings = self.settings
        gone = {uid for uid in candidates if pods.is_gone(uid)}
        self._remove_cgroups(gone)
        names = {name: policy.log_directory_uid(name) for name in listing.names(settings.pod_logs_dir)}
        logs = [name for name, uid in names.items() if uid in candidates and pods.has_no_use(uid)]
        # Trash goes even when its pod has come back: the pod has a new directory.
        trash = [name for name, uid in names.items() if name.startswith(removal.TRASH) and not pods.is_foreign(uid)]
        full = [f"{settings.pod_logs_dir}/{name}" for name in logs]
        links += removal.symlinks_into(settings.container_logs_dir, full)
        removal.remove_symlinks(settings.container_logs_dir, links)
        went = removal.remove_log_directories(settings.pod_logs_dir, [*logs, *trash])
        return went + self._remove_directories({uid for uid in gone - held if pods.has_finished(uid)})

    def _remove_cgroups(self, uids: set[str]) -> None:
        """Remove the cgroups of these pods. A busy one is handled again in the next full pass."""
        busy: set[str] = set()
        try:
            for uid, name in cgroup_fs.find_pod_cgroups(uids, self.settings).items():
                if cgroup_fs.remove_pod_cgroup(name, self.settings):
                    continue
                if uid not in self._busy:  # only at the second pass: it may be a static pod that came back
                    busy.add(uid)
                    continue
                count = kill_processes(name)
                log.warning("killed %d processes in the cgroup of removed pod %s", count, uid)
                cgroup_fs.remove_pod_cgroup(name, self.settings)
        except OSError as error:
            log.warning("cannot remove cgroups of removed pods: %s; trying again at the next collection", error)
        self._busy = self._busy - uids | busy


def _planned(item: ContainerView | SandboxView, pods: Pods, now: float) -> PlannedVictim:
    return PlannedVictim(
        kind="sandbox" if isinstance(item, SandboxView) else "container",
        name=item.pod_uid if isinstance(item, SandboxView) else f"{item.pod_uid}/{item.name}",
        id=item.id,
        rule=policy.rule(item, pods),
        age_s=max(0.0, now - item.created),
    )


ACTOR = ContainerGc

"""How a pod's next actions are done: CRI calls in the kubelet's order, and the worker's own view of the runtime.

Thin: what to do is decided in policy.py, what is asked of the runtime in sandbox_config.py and container_start.py. The
view changes by what is done here and is read again where a hint says so; nothing polls. Errors of the runtime that the
pod's owner must see come out as StartFailedError with the kubelet's reason; others as they are.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from actors._base import Future, gather
from actors._cgroup import fs as cgroup_fs
from actors._cri.client import Cri
from actors._cri.errors import CriError, NotFound, RuntimeDown
from actors.pod_workers import back_off, reasons
from actors.pod_workers.container_start import ContainerStart, StartFailedError
from actors.pod_workers.environment import ConfigError
from actors.pod_workers.labels import POD_UID
from actors.pod_workers.node import Node
from actors.pod_workers.policy import is_sidecar
from actors.pod_workers.sandbox_config import build_sandbox_config, pod_cgroup_parent
from actors.pod_workers.stuck import end_shim, is_stuck
from actors.pod_workers.view import ContainerView, PodView, SandboxView
from proto import pleg
from proto.container_gc import PodTerminated
from proto.cri import api_pb2 as pb
from proto.v1 import Container, Pod
from proto.volume import MountPod, UnmountPod

log = logging.getLogger(__name__)

EXIT_SEEN_LATE_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Waits between readings of a container whose process is gone but which the runtime still calls running: the shim's
exit event reaches containerd some milliseconds after the kernel's."""

Spawn = Callable[[Coroutine[Any, None, Any], str], Future[Any]]


async def list_pod(cri: Cri, uid: str) -> PodView:
    """What the runtime lists of one pod."""
    labels = {POD_UID: uid}
    sandboxes = await cri.list_pod_sandbox(pb.PodSandboxFilter(label_selector=labels))
    containers = await cri.list_containers(pb.ContainerFilter(label_selector=labels))
    return PodView.listed(sandboxes, containers)


class Operations:
    """The runtime side of one pod worker; used in its mailbox thread only."""

    def __init__(self, node: Node, pod: Pod, view: PodView | None, sleep: Callable[[float], Any], spawn: Spawn) -> None:
        self.node = node
        self.pod = pod
        self.view = view if view is not None else PodView()
        self.mounts: dict[str, str] | None = None
        self.sandbox_pb: pb.PodSandboxConfig | None = None
        self._sleep = sleep
        self._spawn = spawn
        self._unlisted = view is None
        self._stale: set[str] = set(self.view.ids())
        self._ended: set[str] = set()
        """Whose process is gone, whatever the runtime still says."""

    # The view

    def mark_stale(self, exited: tuple[str, ...]) -> None:
        """Have these read again, or the whole pod listed when none is named. The view stays as it is until then: a step
        may be under way that adds to it."""
        if not exited:
            self._unlisted = True
        self._ended.update(exited)
        self._stale.update(identity for identity in exited if self.view.is_alive(identity))

    def relist(self) -> None:
        """Have the whole pod listed: something failed in a way that leaves open what the runtime made of it."""
        self._unlisted = True

    async def current_view(self) -> PodView:
        """The view with what is stale in it read again."""
        if self._unlisted:
            return await self.listed_view()
        stale, self._stale = self._stale, set()
        try:
            await gather(*[self._spawn(self._read(identity), "read") for identity in stale])
        except BaseException:
            self._stale |= stale
            raise
        return self.view

    async def listed_view(self) -> PodView:
        """The pod as the runtime lists it now, with the status of every sandbox and container of it."""
        self._unlisted = False  # before the calls: a hint that comes meanwhile asks for another list
        try:
            self.view = await list_pod(self.node.cri, self.pod.metadata.uid)
        except BaseException:
            self._unlisted = True
            raise
        self._stale = set(self.view.ids())
        self._ended &= self._stale
        return await self.current_view()

    async def _read(self, identity: str) -> None:
        """Read a sandbox or container; one whose process is gone until the runtime says so too."""
        is_sandbox = self.view.sandbox(identity) is not None
        for wait_s in (*EXIT_SEEN_LATE_S, None):
            found = await (self._read_sandbox(identity) if is_sandbox else self._read_container(identity))
            if identity not in self._ended:
                return
            if found is None or not self.view.is_alive(identity):
                self._ended.discard(identity)
                return
            if wait_s is not None:
                await self._sleep(wait_s)
        # Very late, or not gone after all: pleg looks again, and tells again if it is.
        self._ended.discard(identity)
        self.node.published.unwatch(self.pod.metadata.uid, identity)
        if found is not None:
            self._watch(identity, found.pid, alive=True, sandbox=is_sandbox)

    async def _read_container(self, identity: str) -> ContainerView | None:
        try:
            answer = await self.node.cri.container_status(identity, verbose=True)
        except NotFound:
            self.view = self.view.without(identity)
            return None
        found = ContainerView.from_status(answer)
        self.view = self.view.with_container(found)
        self._watch(found.id, found.pid, alive=found.state == "running", sandbox=False)
        return found

    async def _read_sandbox(self, identity: str) -> SandboxView | None:
        try:
            answer = await self.node.cri.pod_sandbox_status(identity, verbose=True)
        except NotFound:
            self.view = self.view.without(identity)
            return None
        found = SandboxView.from_status(answer)
        self.view = self.view.with_sandbox(found)
        self._watch(found.id, found.pid, alive=found.state == "ready", sandbox=True)
        return found

    def _watch(self, identity: str, pid: int, *, alive: bool, sandbox: bool) -> None:
        uid = self.pod.metadata.uid
        if alive and pid:
            self.node.published.watch(pleg.Watch(pod_uid=uid, id=identity, pid=pid, sandbox=sandbox))
        elif not alive:
            self.node.published.unwatch(uid, identity)

    # Volumes

    async def mount_volumes(self, deadline_s: float) -> None:
        """Have every volume set up. Refused when one cannot be."""
        if self.mounts is not None:
            return
        if not self.pod.spec.volumes:
            self.mounts = {}
            return
        answer = await self.node.volumes.ask(MountPod(pod=self.pod), deadline_s)
        self.mounts = dict(answer.host_paths)

    # Starting

    async def create_sandbox(self, attempt: int) -> SandboxView:
        """A new sandbox with its network; in the view when this returns."""
        try:
            config = build_sandbox_config(self.pod, attempt, self.node)
        except ConfigError as error:
            raise StartFailedError(error.reason, str(error)) from error
        async with self.node.starting:
            try:
                cgroup_fs.create_pod_cgroup(self.pod, self.node.settings)
                identity = await self.node.cri.run_pod_sandbox(config, self.pod.spec.runtime_class_name or "")
            except RuntimeDown:
                raise
            except (CriError, OSError) as error:
                message = reasons.create_sandbox_failed(self.pod, error)
                raise StartFailedError(reasons.CREATE_POD_SANDBOX_ERROR, message) from error
        self.sandbox_pb = config
        return await self._read_sandbox_new(identity)

    async def _read_sandbox_new(self, identity: str) -> SandboxView:
        found = await self._read_sandbox(identity)
        if found is None:
            raise StartFailedError(
                reasons.CREATE_POD_SANDBOX_ERROR, f"sandbox {identity} vanished right after it was created"
            )
        return found

    async def start_container(self, container: Container, published_restarts: int | None) -> ContainerView:
        """Pull, create, start; in the view when this returns. StartFailedError carries the kubelet's reason.

        `published_restarts`: restartCount of its last published life, to go on from when the runtime has forgotten it.
        """
        view = await self.current_view()
        sandbox = view.sandboxes[0]
        newest = view.container(container.name)
        previous = await self._forget_unstarted(newest)
        known = published_restarts if previous is None else previous.restart_count
        restarts = 0 if known is None else known + 1
        if newest is not None and newest is not previous:
            restarts = newest.restart_count  # published or not: it has not been a life
        start = ContainerStart(self.node, self.pod, container, sandbox, restarts, self.mounts or {}, self.sandbox_pb)
        image = await start.ensure_image()
        if previous is not None and previous.state == "exited":
            self._raise_back_off(container, previous)
        async with self.node.starting:
            try:
                identity = await start.create(image)
                await start.start(identity)
            finally:
                if start.created_id:
                    await self._read_container(start.created_id)
        found = self.view.container_by_id(identity)
        if found is None:
            raise StartFailedError(reasons.RUN_CONTAINER_ERROR, f"container {identity} vanished right after its start")
        return found

    async def _forget_unstarted(self, previous: ContainerView | None) -> ContainerView | None:
        """Take away a container that was created and never started: who made it was killed between the two. The next
        one gets its number, since nothing ran. Returns the life before."""
        if previous is None or previous.state != "created":
            return previous
        try:
            await self.node.cri.remove_container(previous.id)
        except RuntimeDown:
            raise
        except CriError as error:
            if is_stuck(error):
                if any(container.state == "running" for container in self.view.containers):
                    return previous  # not worth a restart of the others: its number is given up
                end_shim(previous.sandbox_id)  # and with it the sandbox, which the next step replaces
            raise StartFailedError(reasons.CREATE_CONTAINER_ERROR, str(error)) from error
        self.view = self.view.without(previous.id)
        return self.view.container(previous.name)

    # Crash-loop back-off

    def _key(self, container: Container) -> tuple[str, str]:
        return (self.pod.metadata.uid, container.name)

    def held_back_s(self, container: Container, now: float) -> float:
        """Seconds until the container may start; not positive when it may at once."""
        previous = self.view.container(container.name)
        if previous is None or previous.state != "exited":
            return 0.0
        entry = self.node.back_offs.get(self._key(container))
        until = back_off.wait_until(entry, previous.finished_at_ns / 1e9, self.node.limits)
        return until - now

    def back_off_reason(self, container: Container) -> tuple[str, str]:
        """(CrashLoopBackOff, the kubelet's message)."""
        entry = self.node.back_offs[self._key(container)]
        return reasons.crash_loop_back_off(self.pod, container.name, entry.delay_s)

    def _raise_back_off(self, container: Container, previous: ContainerView) -> None:
        key = self._key(container)
        finished = previous.finished_at_ns / 1e9
        standing = self.node.back_offs.get(key)
        if standing is not None and standing.updated >= finished:
            return  # raised for this end already, by a start that came to nothing: its maker was killed, say
        self.node.back_offs[key] = back_off.raised(standing, finished, time.time(), self.node.limits)
        self.node.on_back_off()

    # Ending

    async def kill_container(self, container: ContainerView, grace_s: int) -> None:
        """SIGTERM, grace, SIGKILL; its exit is in the view when this returns."""
        await self.node.cri.stop_container(container.id, max(grace_s, MINIMUM_GRACE_S if grace_s else 0))
        await self._read_container(container.id)

    async def kill_pod(self, grace_s: int) -> None:
        """End every running container, sidecars last and in reverse order, then the sandboxes."""
        view = await self.current_view()
        sidecars = [one.name for one in self.pod.spec.init_containers if is_sidecar(one)]
        running = [container for container in view.containers if container.state in ("running", "unknown")]
        main = [container for container in running if container.name not in sidecars]
        await gather(*[self._spawn(self.kill_container(container, grace_s), "kill") for container in main])
        for name in reversed(sidecars):
            for container in running:
                if container.name == name:
                    await self.kill_container(container, grace_s)
        for sandbox in (await self.current_view()).sandboxes:
            if sandbox.state == "ready":
                async with self.node.stopping:
                    await self.node.cri.stop_pod_sandbox(sandbox.id)
                self.view = self.view.with_stopped_sandbox(sandbox.id)
                self.node.published.unwatch(self.pod.metadata.uid, sandbox.id)

    async def _remove_sandbox(self, sandbox: SandboxView) -> None:
        try:
            async with self.node.stopping:
                await self.node.cri.remove_pod_sandbox(sandbox.id)
        except CriError as error:
            if is_stuck(error):
                end_shim(sandbox.id)  # the next try succeeds
            raise

    async def release(self, *, deleted: bool) -> None:
        """Give back what a pod that no longer runs still holds: volumes and cgroup, and the sandboxes when deleted."""
        uid = self.pod.metadata.uid
        if self.pod.spec.volumes and self.mounts != {}:
            await self.node.volumes.ask(UnmountPod(pod_uid=uid), 120.0)
        self.mounts = {}
        if deleted:
            for sandbox in (await self.current_view()).sandboxes:
                await self._remove_sandbox(sandbox)
        cgroup_fs.remove_pod_cgroup(uid, pod_cgroup_parent(self.pod, self.node), self.node.settings)
        if deleted:
            for container in (*self.pod.spec.init_containers, *self.pod.spec.containers):
                self.node.back_offs.pop(self._key(container), None)
            meta = self.pod.metadata
            self.node.container_gc.tell(PodTerminated(pod_uid=uid, pod_namespace=meta.namespace, pod_name=meta.name))


MINIMUM_GRACE_S = 2
"""minimumGracePeriodInSeconds of pkg/kubelet/kuberuntime: a container that gets any grace gets at least this."""

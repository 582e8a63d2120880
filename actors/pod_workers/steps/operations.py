"""How a pod's next actions are done: CRI calls in the kubelet's order.

Thin: what to do is decided in policy.py, what is asked of the runtime in sandbox_config.py and container_start.py; how
containers are ended is in killing.py. Errors of the runtime that the pod's owner must see come out as StartFailedError
with the kubelet's reason; others as they are.
"""

from __future__ import annotations

import logging
import time

from actors._base import gather
from actors._cgroup import fs as cgroup_fs
from actors._cgroup.kill import kill_processes
from actors._cri.errors import CriError, RuntimeDown
from actors._host.files.own_pods import mark_pod
from actors.pod_workers.cri_config.mounts import MountFacts, foreign_volumes
from actors.pod_workers.cri_config.sandbox_config import build_sandbox_config, pod_cgroup_parent
from actors.pod_workers.decide.termination import find_container, grace_of_kill_s
from actors.pod_workers.environment.variables import ConfigError
from actors.pod_workers.model import back_off, metrics, reasons
from actors.pod_workers.model.view import ContainerView, PodView, SandboxView
from actors.pod_workers.resources.resize_steps import note_actuated
from actors.pod_workers.shared.pod_scope import PodScope
from actors.pod_workers.steps.container_start import ContainerStart, StartFailedError
from actors.pod_workers.steps.hooks import HookFailedError, Hooks
from actors.pod_workers.steps.killing import Killing
from actors.pod_workers.steps.runtime_view import RuntimeView
from actors.pod_workers.steps.stuck import end_shim, is_stuck
from actors.pod_workers.steps.supplies import runtime_handler
from proto.cri import api_pb2 as pb
from proto.node.container_gc import PodTerminated
from proto.pods.volume import LookAtVolumes, MountPod, UnmountPod
from proto.v1 import Container, EphemeralContainer
from proto.wire.errors import Refused

log = logging.getLogger(__name__)


class Operations:
    """The runtime side of one pod worker; used in its mailbox thread only."""

    def __init__(self, scope: PodScope, runtime: RuntimeView, hooks: Hooks, killing: Killing) -> None:
        self.scope = scope
        self.context = scope.context
        self.runtime = runtime
        self._killing = killing
        self.mounts: dict[str, str] | None = None
        self.groups: tuple[int, ...] = ()
        self._ask_volumes = True
        self.sandbox_pb: pb.PodSandboxConfig | None = None
        self._hooks = hooks
        self._cgroup_busy = self._cgroup_killed = False
        """The pod has ended, and something was seen in its cgroup; that was killed."""

    # Volumes

    async def mount_volumes(self, deadline_s: float) -> None:
        """Have every volume set up. Refused when one cannot be."""
        if self.mounts is not None and not self._ask_volumes:
            return
        if not self.scope.pod.spec.volumes:
            self.mounts = {}
            return
        self._ask_volumes = False  # before the call: what changes meanwhile asks again
        try:
            with self.scope.wait_reasons.waiting_for("volumes"):
                answer = await self.context.volumes.ask(MountPod(pod=self.scope.pod), deadline_s)
        except BaseException:
            self._ask_volumes = True
            raise
        self.mounts, self.groups = dict(answer.host_paths), answer.groups

    async def look_at_volumes(self, container: Container, deadline_s: float) -> None:
        """See that what others serve of the container's volumes still answers. Refused where it does not."""
        paths = foreign_volumes(self.scope.pod, container, self.mounts or {})
        if paths:
            await self.context.volumes.ask(LookAtVolumes(pod_uid=self.scope.pod.metadata.uid, paths=paths), deadline_s)

    def ask_volumes_again(self) -> None:
        """The pod has changed, or the volume actor started anew: what is mounted stays, and it has to know of it."""
        self._ask_volumes = True

    # Starting

    async def create_sandbox(self, attempt: int) -> SandboxView:
        """A new sandbox with its network; in the view when this returns."""
        try:
            handler = await runtime_handler(self.context, self.scope.pod)
        except Refused as refusal:
            message = reasons.create_sandbox_failed(self.scope.pod, refusal)
            self.context.events.pod(self.scope.pod, "Warning", *reasons.create_sandbox_failed_event(refusal))
            raise StartFailedError(reasons.CREATE_POD_SANDBOX_ERROR, message) from refusal
        try:
            config = build_sandbox_config(self.scope.pod, attempt, self.context, handler)
        except ConfigError as error:
            self.context.events.pod(self.scope.pod, "Warning", *reasons.create_sandbox_failed_event(error))
            raise StartFailedError(error.reason, reasons.sandbox_config_failed(self.scope.pod, error)) from error
        async with self.context.starting:
            try:
                # First: what follows is known to be ours, whenever we are killed.
                mark_pod(self.context.settings.root_dir, self.scope.pod.metadata.uid)
                cgroup_fs.create_pod_cgroup(self.scope.pod, self.context.settings)
                with (
                    self.scope.wait_reasons.waiting_for("RunPodSandbox"),
                    metrics.sandbox_start(self.scope.pod, handler),
                ):
                    identity = await self.context.cri.run_pod_sandbox(config, handler)
            except RuntimeDown:
                raise
            except (CriError, OSError) as error:
                message = reasons.create_sandbox_failed(self.scope.pod, error)
                self.context.events.pod(self.scope.pod, "Warning", *reasons.create_sandbox_failed_event(error))
                raise StartFailedError(reasons.CREATE_POD_SANDBOX_ERROR, message) from error
        self.context.actuated.set_pod(self.scope.pod.metadata.uid, self.scope.pod.spec.resources)
        self.sandbox_pb = config
        return await self._read_sandbox_new(identity)

    async def _read_sandbox_new(self, identity: str) -> SandboxView:
        found = await self.runtime.read_sandbox(identity)
        if found is None:
            raise StartFailedError(
                reasons.CREATE_POD_SANDBOX_ERROR, f"sandbox {identity} vanished right after it was created"
            )
        return found

    async def start_container(self, container: Container, published_restarts: int | None) -> ContainerView:
        """Pull, create, start; in the view when this returns. StartFailedError carries the kubelet's reason.

        `published_restarts`: restartCount of its last published life, to go on from when the runtime has forgotten it.
        """
        view = await self.runtime.current()
        if not view.sandboxes:
            raise StartFailedError(reasons.CREATE_CONTAINER_ERROR, "cannot create a container: its sandbox is gone")
        sandbox = view.sandboxes[0]
        newest = view.container(container.name)
        previous = await self._forget_unstarted(newest)
        lives = [None if previous is None else previous.restart_count]
        if previous is None or previous.state != "unknown":  # one that is lost has been counted once more already
            lives.append(published_restarts)
        restarts = max((known + 1 for known in lives if known is not None), default=0)
        if newest is not None and newest is not previous:
            restarts = newest.restart_count  # published or not: it has not been a life
        volumes = MountFacts(self.mounts or {}, groups=self.groups)
        start = ContainerStart(self.context, self.scope.pod, container, sandbox, restarts, volumes, self.sandbox_pb)
        start.target_id = _target_id(container, view)
        with self.scope.wait_reasons.waiting_for(f"image {container.image} of container {container.name}"):
            await start.ensure_image_volumes()
            image = await start.ensure_image()
        await start.fetch_objects()
        await start.prepare_mounts()
        if previous is not None and previous.state == "exited":
            self.raise_back_off(previous)
        note_actuated(self.context, self.scope.pod, container)
        async with self.context.starting:
            try:
                identity = await start.create(image)
                await start.start(identity)
            finally:
                if start.created_id:
                    await self.runtime.read_container(start.created_id)
        found = self.runtime.view.container_by_id(identity)
        if found is None:
            raise StartFailedError(reasons.RUN_CONTAINER_ERROR, f"container {identity} vanished right after its start")
        await self._post_start(container, found)
        return self.runtime.view.container_by_id(identity) or found

    async def _post_start(self, container: Container, found: ContainerView) -> None:
        """The postStart hook; when it fails the container is ended. Outside of the gate: it may take its time.

        Should we die meanwhile, the container runs on and its hook is not run again, as in the kubelet.
        """
        handler = container.lifecycle.post_start if container.lifecycle is not None else None
        if handler is None:
            return
        try:
            with self.scope.wait_reasons.waiting_for(f"postStart hook of container {container.name}"):
                await self._hooks.run(self.scope.pod, container, found.id, handler, self.runtime.view)
        except HookFailedError as failure:
            # Without the hook's own words: events are read by many, and a server's answer may hold a secret.
            event = reasons.FAILED_POST_START_HOOK, "PostStartHook failed"
            self.context.events.pod(self.scope.pod, "Warning", *event, container=container.name)
            grace_s = grace_of_kill_s(self.scope.pod, container, "FailedPostStartHook")
            await self._killing.end_container(found, time.monotonic() + grace_s, reasons.FAILED_POST_START_HOOK)
            raise StartFailedError(reasons.POST_START_HOOK_ERROR, str(failure)) from failure

    async def _forget_unstarted(self, previous: ContainerView | None) -> ContainerView | None:
        """Take away a container that was created and never started: who made it was killed between the two. The next
        one gets its number, since nothing ran. Returns the life before."""
        if previous is None or previous.state != "created":
            return previous
        try:
            await self.context.cri.remove_container(previous.id)
        except RuntimeDown:
            raise
        except CriError as error:
            if is_stuck(error):
                if any(container.state == "running" for container in self.runtime.view.containers):
                    return previous  # not worth a restart of the others: its number is given up
                end_shim(previous.sandbox_id)  # and with it the sandbox, which the next step replaces
            raise StartFailedError(reasons.CREATE_CONTAINER_ERROR, str(error)) from error
        self.runtime.removed(previous.id)
        return self.runtime.view.container(previous.name)

    # Crash-loop back-off

    def held_back_s(self, container: str, now: float) -> float:
        """Seconds until the container may start; not positive when it may at once."""
        previous = self.runtime.view.container(container)
        if previous is None or previous.state != "exited":
            return 0.0
        until = back_off.wait_until(self._back_off(container), previous.finished_at_ns / 1e9, self.context.limits)
        return until - now

    def _back_off(self, name: str) -> back_off.BackOff | None:
        """The one that stands for the container as its spec has it now."""
        return back_off.standing(
            self.context.back_offs.get((self.scope.pod.metadata.uid, name)), self._definition(name)
        )

    def _definition(self, name: str) -> str:
        container = find_container(self.scope.pod, name)
        return back_off.definition_of(container) if container is not None else ""

    def back_off_reason(self, container: str) -> tuple[str, str]:
        """(CrashLoopBackOff, the kubelet's message)."""
        entry = self.context.back_offs[self.scope.pod.metadata.uid, container]
        return reasons.crash_loop_back_off(self.scope.pod, container, entry.delay_s)

    def raise_back_off(self, previous: ContainerView) -> None:
        """Before a container is started that ended before."""
        key = (self.scope.pod.metadata.uid, previous.name)
        finished = previous.finished_at_ns / 1e9
        standing = self._back_off(previous.name)
        if standing is not None and standing.updated >= finished:
            return  # raised for this end already, by a start that came to nothing: its maker was killed, say
        self.context.back_offs[key] = back_off.raised(
            standing, finished, time.time(), self.context.limits, self._definition(previous.name)
        )
        self.context.on_back_off()

    # Ending

    async def reset(self, lives: tuple[ContainerView, ...]) -> None:
        """End these, without hooks and with the least grace, and remove them in their order (KEP-5532)."""
        running = [found for found in lives if found.state in ("running", "unknown")]
        await gather(*[self.scope.spawn(self._killing.end_container(one, time.monotonic()), "kill") for one in running])
        for found in lives:
            await self.context.cri.remove_container(found.id)
            self.runtime.removed(found.id)

    async def _remove_sandbox(self, sandbox: SandboxView) -> None:
        try:
            async with self.context.stopping:
                await self.context.cri.remove_pod_sandbox(sandbox.id)
        except CriError as error:
            if is_stuck(error):
                end_shim(sandbox.id)  # the next try succeeds
            raise

    async def release(self, *, deleted: bool) -> bool:
        """Give back what a pod that no longer runs still holds: volumes and cgroup, and the sandboxes when deleted.
        False: a process that nobody knows of is left in the cgroup, see again later."""
        uid = self.scope.pod.metadata.uid
        if self.scope.pod.spec.volumes and self.mounts != {}:
            await self.context.volumes.ask(UnmountPod(pod_uid=uid), 120.0)
        self.mounts = {}
        if deleted:
            for sandbox in (await self.runtime.current()).sandboxes:
                await self._remove_sandbox(sandbox)
            self.runtime.view = PodView()
        released = await self._remove_cgroup()
        self.context.userns.release(uid)
        if deleted:
            for container in (*self.scope.pod.spec.init_containers, *self.scope.pod.spec.containers):
                self.context.back_offs.pop((uid, container.name), None)
            meta = self.scope.pod.metadata
            self.context.container_gc.tell(PodTerminated(pod_uid=uid, pod_namespace=meta.namespace, pod_name=meta.name))
        return released

    async def _remove_cgroup(self) -> bool:
        """Remove it; what runs in it though the runtime knows of nothing is ended on the second sight, as what has just
        been ended takes a moment to go. A start that was given up can leave such a process."""
        uid, name, settings = (
            self.scope.pod.metadata.uid,
            pod_cgroup_parent(self.scope.pod, self.context),
            self.context.settings,
        )
        if cgroup_fs.remove_pod_cgroup(uid, name, settings):
            return True
        seen, self._cgroup_busy = self._cgroup_busy, True
        if not seen or (await self.runtime.listed()).has_processes:
            return False
        count = kill_processes(name)
        if not self._cgroup_killed:
            log.warning("pod %s has ended, but %d processes are in its cgroup: killed", uid, count)
        self._cgroup_killed = True
        return cgroup_fs.remove_pod_cgroup(uid, name, settings)


def _target_id(container: Container, view: PodView) -> str:
    """The container whose processes an ephemeral one is to see, by ID; empty without."""
    name = container.target_container_name if isinstance(container, EphemeralContainer) else None
    if not name:
        return ""
    target = view.container(name)
    if target is None:
        raise StartFailedError(reasons.CREATE_CONTAINER_CONFIG_ERROR, f"unable to find target container {name}")
    return target.id

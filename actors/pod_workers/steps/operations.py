"""Carries out a pod's actions as CRI calls in the kubelet's order: volumes, sandbox, containers, removal.

`policy` decides on the actions, `cri_config` builds the requests, `killing` ends containers. Runtime errors that the
pod's owner must see become StartFailedError with the kubelet's reason. Other errors pass unchanged.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterable

from actors._base import gather
from actors._base.messaging import tracing
from actors._cgroup import fs as cgroup_fs
from actors._cgroup.kill import kill_processes
from actors._cgroup.placement import lacks_cgroup
from actors._cri.errors import CriError, RuntimeDown
from actors._host.files import paths
from actors._host.files.listing import names
from actors._host.files.own_pods import mark_pod
from actors._host.shim import end_shim
from actors.pod_workers.cri_config.mounts import MountInputs, foreign_volumes
from actors.pod_workers.cri_config.sandbox_config import build_sandbox_config, pod_cgroup_parent
from actors.pod_workers.decide.termination import find_container, grace_of_kill_s
from actors.pod_workers.environment.variables import ConfigError
from actors.pod_workers.model import back_off, metrics, reasons
from actors.pod_workers.model.orphans import is_rebuilt
from actors.pod_workers.model.view import ContainerView, PodView, SandboxView
from actors.pod_workers.resources.resize_steps import note_actuated
from actors.pod_workers.shared.assigned import pod_cgroup_settings
from actors.pod_workers.shared.pod_scope import PodScope
from actors.pod_workers.steps.container_start import FILES_S, ContainerStart, StartFailedError
from actors.pod_workers.steps.hooks import HookFailedError, Hooks
from actors.pod_workers.steps.killing import Killing
from actors.pod_workers.steps.runtime_view import RuntimeView
from actors.pod_workers.steps.supplies import runtime_handler
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb
from proto.node.image_pull import ExpectImages, ImageEnsured
from proto.pods.volume import CheckVolumes, MountPod, UnmountPod
from proto.v1 import Container
from proto.waits.obstacles import HOOK_FAILED, KILLED, ending
from proto.wire.errors import AskTimeout, Refused

log = logging.getLogger(__name__)

_LOG = re.compile(r"(\d{1,9})\.log(?:\..*)?$")
"""A log's name, and the names that its rotations have. A restart count has no more digits."""
CGROUP_S = 30.0
"""For a change of a cgroup, which waits for systemd with that driver."""


class Operations:
    """The runtime side of one pod worker; used in its mailbox thread only."""

    def __init__(self, scope: PodScope, runtime: RuntimeView, hooks: Hooks, killing: Killing) -> None:
        self.scope = scope
        self.context = scope.context
        self.runtime = runtime
        self._killing = killing
        self.mounts: dict[str, str] | None = None
        self.groups: tuple[int, ...] = ()
        self.relabel: frozenset[str] = frozenset()
        """Volumes that the runtime labels for SELinux."""
        self._ask_volumes = True
        self.sandbox_pb: pb.PodSandboxConfig | None = None
        self._hooks = hooks
        self._first_step = True
        self._waits: dict[str, back_off.Wait] = {}
        """By container name."""
        self._has_cgroup = False
        """The pod's cgroup was made, or seen, since this worker started."""
        self._cgroup_busy = self._cgroup_killed = False
        """After the pod ended: processes were seen in its cgroup; they were killed."""

    # Volumes

    async def mount_volumes(self, deadline_s: float) -> None:
        """Ask for all volumes, unless they are mounted. Raises Refused."""
        if self.mounts is not None and not self._ask_volumes:
            return
        if not self.scope.pod.spec.volumes:
            self.mounts = {}
            return
        self._ask_volumes = False  # before the call: a change meanwhile sets it again
        try:
            with self.scope.wait_reasons.waiting_for("volumes"), self.scope.trace.part("volumes"):
                answer = await self.context.volumes.ask(MountPod(pod=self.scope.pod), deadline_s)
        except BaseException:
            self._ask_volumes = True
            raise
        self.mounts, self.groups, self.relabel = dict(answer.host_paths), answer.groups, frozenset(answer.relabel)

    async def check_volumes(self, container: Container, deadline_s: float) -> None:
        """Check that the servers of the container's volumes answer. Raises Refused."""
        paths = foreign_volumes(self.scope.pod, container, self.mounts or {})
        if paths:
            await self.context.volumes.ask(CheckVolumes(pod_uid=self.scope.pod.metadata.uid, paths=paths), deadline_s)

    def ask_volumes_again(self) -> None:
        """Ask for the volumes in the next step: the pod has changed, or the volume actor has restarted."""
        self._ask_volumes = True

    # Starting

    async def create_sandbox(self, attempt: int, containers: Iterable[Container]) -> SandboxView:
        """Create a sandbox with its network for `containers`. It is in the view when this returns.

        Raises StartFailedError.
        """
        with metrics.sandbox_creation():
            identity, config = await self._make_sandbox(attempt, containers)
        self.context.actuated.set_pod(self.scope.pod.metadata.uid, self.scope.pod.spec.resources)
        self.sandbox_pb = config
        found = await self._read_sandbox_new(identity)
        self.runtime.end_creation()
        return found

    async def _make_sandbox(self, attempt: int, containers: Iterable[Container]) -> tuple[str, pb.PodSandboxConfig]:
        """The new sandbox's CRI ID, and its configuration."""
        try:
            handler = await runtime_handler(self.context, self.scope.pod)
        except Refused as refusal:
            message = reasons.create_sandbox_failed(self.scope.pod, refusal)
            self.context.events.pod(self.scope.pod, "Warning", *reasons.create_sandbox_failed_event(refusal))
            raise StartFailedError(reasons.CREATE_POD_SANDBOX_ERROR, message) from refusal
        settings = await pod_cgroup_settings(self.context, self.scope.pod)
        try:
            config = build_sandbox_config(self.scope.pod, attempt, self.context, handler, quota=settings.cpu_cfs_quota)
        except ConfigError as error:
            self.context.events.pod(self.scope.pod, "Warning", *reasons.create_sandbox_failed_event(error))
            raise StartFailedError(error.reason, reasons.sandbox_config_failed(self.scope.pod, error)) from error
        self.context.sandboxes.add(self.scope.pod.metadata.uid)
        try:
            async with self.context.starting:
                return await self._run_sandbox(config, handler, settings, containers), config
        finally:
            self.context.sandboxes.discard(self.scope.pod.metadata.uid)

    async def _run_sandbox(
        self, config: pb.PodSandboxConfig, handler: str, settings: Settings, containers: Iterable[Container]
    ) -> str:
        self._mark()  # first: after a kill, the cgroup and the sandbox are known to be ours
        try:
            await self.context.blocking(CGROUP_S, cgroup_fs.create_pod_cgroup, self.scope.pod, settings)
            self._has_cgroup = True
            self.expect_images(containers, handler)
            with (
                self.scope.wait_reasons.waiting_for("RunPodSandbox"),
                metrics.sandbox_call(handler),
                self.context.moves.during_call(),
            ):
                self.runtime.begin_creation()
                return await self.context.cri.run_pod_sandbox(config, handler)
        except RuntimeDown:
            raise
        except (CriError, OSError, AskTimeout) as error:
            message = reasons.create_sandbox_failed(self.scope.pod, error)
            self.context.events.pod(self.scope.pod, "Warning", *reasons.create_sandbox_failed_event(error))
            raise StartFailedError(reasons.CREATE_POD_SANDBOX_ERROR, message) from error

    def _mark(self) -> None:
        """Make the pod's directory. Raises StartFailedError."""
        try:
            mark_pod(self.context.settings.root_dir, self.scope.pod.metadata.uid)
        except OSError as error:
            message = reasons.create_sandbox_failed(self.scope.pod, error)
            self.context.events.pod(self.scope.pod, "Warning", *reasons.pod_directory_failed_event(error))
            raise StartFailedError(reasons.CREATE_POD_SANDBOX_ERROR, message) from error

    def expect_images(self, containers: Iterable[Container], handler: str) -> None:
        """Let image_pull look for the containers' images while the sandbox is made.

        Only for the sole sandbox under way: it shortens a lone pod's start, and costs a mass start time.
        """
        if len(self.context.sandboxes) > 1:
            return
        images = dict.fromkeys(one.image for one in containers if one.image and one.image_pull_policy != "Always")
        if images:
            handler = handler if self.context.settings.images_by_handler else ""
            annotations = self.scope.pod.metadata.annotations
            self.context.images.tell(
                ExpectImages(images=tuple(images), runtime_handler=handler, annotations=annotations)
            )

    async def _read_sandbox_new(self, identity: str) -> SandboxView:
        try:
            found = await self.runtime.read_sandbox(identity)
        except CriError as error:
            self._sandbox_unread(error.grpc_text())
            raise
        if found is None:
            problem = f"sandbox {identity} vanished right after it was created"
            self._sandbox_unread(problem)
            raise StartFailedError(reasons.CREATE_POD_SANDBOX_ERROR, problem)
        return found

    def _sandbox_unread(self, problem: str) -> None:
        message = f"Unable to get pod sandbox status: {problem}"
        self.context.events.pod(self.scope.pod, "Warning", "FailedPodSandBoxStatus", message)

    async def start_container(self, container: Container, published_restarts: int | None) -> ContainerView:
        """Pull, create and start a container. It is in the view when this returns. Raises StartFailedError.

        `published_restarts`: restartCount of its last published instance, used if the runtime has lost that.
        """
        view = await self.runtime.current()
        if not view.sandboxes:
            raise StartFailedError(reasons.CREATE_CONTAINER_ERROR, "cannot create a container: its sandbox is gone")
        sandbox = view.sandboxes[0]
        if started := await self._started_meanwhile(view.container(container.name)):
            return started
        newest = self.runtime.view.container(container.name)
        previous = await self._forget_unstarted(newest)
        restarts = await self._restart_count(container.name, newest, previous, published_restarts)
        selinux = self.context.selinux
        volumes = MountInputs(self.mounts or {}, groups=self.groups, relabel=self.relabel, selinux=selinux)
        start = ContainerStart(self.context, self.scope.pod, container, sandbox, restarts, volumes, self.sandbox_pb)
        metrics.container_starting(start.pod, container.name)
        try:
            return await self._carry_out(start, previous)
        except StartFailedError as failure:
            metrics.container_failed(start.pod, container.name, failure.reason)
            raise

    async def _carry_out(self, start: ContainerStart, previous: ContainerView | None) -> ContainerView:
        """Carry a start out, from the pull to the postStart hook. `previous`: the last instance that started."""
        container = start.container
        image_of = f"image {container.image} of container {container.name}"
        with self.scope.wait_reasons.waiting_for(image_of), self.scope.trace.part("image", container.name):
            try:
                await start.ensure_image_volumes()
                image = await start.ensure_image()
            finally:
                self.scope.pulling_s += start.pulling_s
        start.find_target(self.runtime.view)
        with self.scope.trace.part("prepare", container.name):
            await start.fetch_objects()
            await start.fetch_grant()
            await start.prepare_mounts()
        if previous is not None and previous.state == "exited":
            await self.raise_back_off(previous)
        note_actuated(self.context, self.scope.pod, container)
        await self._ensure_cgroup()
        # Ahead of sandboxes: of many pods, the first run soon, and the work of both kinds is done side by side.
        async with self.context.starting.ahead:
            identity = await self._create_and_start(start, image)
        found = self.runtime.view.container_by_id(identity)
        if found is None:
            raise StartFailedError(reasons.RUN_CONTAINER_ERROR, f"container {identity} vanished right after its start")
        start.check_stop_signal(found)
        await self._post_start(container, found)
        return self.runtime.view.container_by_id(identity) or found

    async def _ensure_cgroup(self) -> None:
        """Make the pod's cgroup if it is missing, since its sandbox began under another name of it.

        Else the runtime makes it with the container, and without the pod's limits.
        """
        if self._has_cgroup:
            return
        pod = self.scope.pod
        try:
            if await self.context.blocking(CGROUP_S, lacks_cgroup, pod, self.context.settings):
                settings = await pod_cgroup_settings(self.context, pod)
                await self.context.blocking(CGROUP_S, cgroup_fs.create_pod_cgroup, pod, settings)
        except (OSError, AskTimeout) as error:
            message = f"unable to ensure pod container exists: {error}"
            self.context.events.pod(pod, "Warning", "FailedCreatePodContainer", message)
            raise StartFailedError(reasons.CREATE_CONTAINER_ERROR, message) from error
        self._has_cgroup = True

    async def _create_and_start(self, start: ContainerStart, image: ImageEnsured) -> str:
        """Returns the CRI ID. The container is in the view, also after a failed start."""
        name = start.container.name
        self.runtime.begin_creation()
        try:
            with self.context.moves.during_call():
                with self.scope.trace.part("create", name):
                    identity = await start.create(image)
                with self.scope.trace.part("start", name):
                    await start.start(identity)
        except GeneratorExit:
            raise  # the coroutine ends with its process, and can await nothing more
        except BaseException:
            await self._read_created(start)
            raise
        await self._read_created(start)
        self.runtime.end_creation()
        return identity

    async def _read_created(self, start: ContainerStart) -> None:
        """Read a container whose creation returned an ID, also when a later step failed."""
        if start.created_id:
            await self.runtime.read_container(start.created_id)

    async def _post_start(self, container: Container, found: ContainerView) -> None:
        """Run the postStart hook, and end the container if it fails. It does not count as a concurrent start.

        After a kill meanwhile the container runs on and its hook is not run again, as in the kubelet.
        """
        handler = container.lifecycle.post_start if container.lifecycle is not None else None
        if handler is None:
            return
        try:
            hook = f"postStart hook of container {container.name}"
            with self.scope.wait_reasons.waiting_for(hook, "hook"), tracing.span("postStartHook"):
                await self._hooks.run(self.scope.pod, container, found.id, handler, self.runtime.view)
        except HookFailedError as failure:
            # Without the hook's output, which may hold a secret: many can read events.
            event = reasons.FAILED_POST_START_HOOK, "PostStartHook failed"
            self.context.events.pod(self.scope.pod, "Warning", *event, container=container.name)
            grace_s = grace_of_kill_s(self.scope.pod, container, "FailedPostStartHook")
            self.context.ends.killed(self.scope.pod.metadata.uid, container.name, found.id, HOOK_FAILED)
            await self._killing.end_container(found, time.monotonic() + grace_s, reasons.FAILED_POST_START_HOOK)
            raise StartFailedError(reasons.POST_START_HOOK_ERROR, str(failure)) from failure

    async def _restart_count(
        self, container: str, newest: ContainerView | None, previous: ContainerView | None, published: int | None
    ) -> int:
        """Of the next instance. `newest`: the last instance. `previous`: the last instance that started."""
        if newest is not None and newest is not previous:
            return newest.restart_count  # reused, since that container never started
        instances = [None if previous is None else previous.restart_count]
        if previous is None or previous.state != "unknown":  # a lost container was counted as a restart already
            instances.append(published)
        if any(one is not None for one in instances):
            return max(known + 1 for known in instances if known is not None)
        by_logs: int = await self.context.blocking(FILES_S, self._next_by_logs, container)
        return by_logs

    def _next_by_logs(self, container: str) -> int:
        """The restart count above those of the logs that are left. Else a new container appends to an old log.

        A static pod that was put back has such logs, and a pod whose instances the runtime has lost. Empty logs do not
        count: a start that was under way when this process was killed leaves one, and nothing ran. Runs in a thread.

        Source: calcRestartCountByLogDir of pkg/kubelet/kuberuntime.
        """
        meta = self.scope.pod.metadata
        pod_logs = paths.pod_log_dir(self.context.settings.pod_logs_dir, meta.namespace, meta.name, meta.uid)
        directory = os.path.dirname(f"{pod_logs}/{paths.container_log_path(container, 0)}")
        try:
            found = [match for match in map(_LOG.match, names(directory)) if match is not None]
            return max((int(one[1]) + 1 for one in found if os.lstat(f"{directory}/{one[0]}").st_size), default=0)
        except OSError:
            return 0  # the start makes this directory next, and tells what is wrong with it

    async def _started_meanwhile(self, newest: ContainerView | None) -> ContainerView | None:
        """A container that was listed as created and has started since.

        A start was under way when the former process was killed. None: there is no such container.
        """
        if newest is None or newest.state != "created":
            return None
        found = await self.runtime.read_container(newest.id)
        return found if found is not None and found.state != "created" else None

    async def _forget_unstarted(self, previous: ContainerView | None) -> ContainerView | None:
        """Remove a container that was created and not started, because this process was killed in between.

        The next one gets its restart count, since nothing ran. Returns the instance before.
        """
        if previous is None or previous.state != "created":
            return previous
        try:
            await self.context.cri.remove_container(previous.id)
        except RuntimeDown:
            raise
        except CriError as error:
            if error.task_runs:
                if any(container.state == "running" for container in self.runtime.view.containers):
                    return previous  # keep the others running; its restart count is skipped
                end_shim(previous.sandbox_id)  # ends the sandbox too; the next step replaces it
            raise StartFailedError(reasons.CREATE_CONTAINER_ERROR, str(error)) from error
        self.runtime.removed(previous.id)
        return self.runtime.view.container(previous.name)

    # Crash-loop back-off

    def note_kills(self, view: PodView, killed: Iterable[ContainerView]) -> None:
        """Note what this step kills, before it does; `view` is of the step's start.

        The note counts for this step's starts, and after a kill of this process for the next one's first step.
        """
        noted = {
            one.name: back_off.Replaced(one.id, 0.0 if last is None else last.finished_at_ns / 1e9)
            for one, last in ((one, view.last_exited(one.name)) for one in killed if one.state != "exited")
        }
        former = self.context.replaced.get(self.scope.pod.metadata.uid, {}) if self._first_step else {}
        self._first_step = False
        self._set_replaced(former | noted)

    def forget_kill(self, container: str) -> None:
        """The start is held back: the step that makes it counts from the killed instance's end."""
        noted = self.context.replaced.get(self.scope.pod.metadata.uid, {})
        self._set_replaced({name: one for name, one in noted.items() if name != container})

    def _set_replaced(self, noted: dict[str, back_off.Replaced]) -> None:
        uid = self.scope.pod.metadata.uid
        if noted == self.context.replaced.get(uid, {}):
            return
        if noted:
            self.context.replaced[uid] = noted
        else:
            del self.context.replaced[uid]
        self.context.on_back_off()

    def _replaced(self, previous: ContainerView) -> back_off.Replaced | None:
        noted = self.context.replaced.get(self.scope.pod.metadata.uid, {}).get(previous.name)
        return noted if noted is not None and noted.id == previous.id else None

    def held_back_s(self, container: str, now: float) -> float:
        """Seconds until the container may start; zero or negative: at once."""
        previous = self.runtime.view.container(container)
        if previous is None or previous.state != "exited":
            return 0.0
        finished, standing = previous.finished_at_ns / 1e9, self._back_off(container)
        until = back_off.wait_until(standing, finished, self.context.crash_loop, self._replaced(previous))
        if standing is None or until <= now:
            return 0.0
        monotonic, former = time.monotonic(), self._waits.get(container)
        wait = back_off.waiting(former, previous.id, until, now, monotonic, standing.delay_s)
        self._waits[container] = wait
        return wait.left_s(now, monotonic)

    def _back_off(self, name: str) -> back_off.RestartDelay | None:
        """The back-off, if the container's definition has not changed."""
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

    def last_end(self, container: str) -> str:
        """The container's last end in words, to stand before its back-off in a wait record; empty without one."""
        last = self.runtime.view.container(container)
        if last is None or last.state != "exited":
            return ""
        killed = self.context.ends.kill_cause(self.scope.pod.metadata.uid, container, last.id)
        if killed:
            return f"{KILLED}{killed} (exit code {last.exit_code}); "
        return f"it ended with {ending(last.exit_code, last.reason, last.message)}; "

    def loop_s(self, container: str) -> float:
        """Seconds since the first end of its crash loop; 0 when that is not known."""
        standing = self._back_off(container)
        return max(0.0, time.time() - standing.since) if standing is not None and standing.since else 0.0

    async def raise_back_off(self, previous: ContainerView) -> None:
        """Raise the back-off before the start of a container that has exited. A kill after it does not undo it."""
        key = (self.scope.pod.metadata.uid, previous.name)
        finished = previous.finished_at_ns / 1e9
        standing, now = self._back_off(previous.name), time.time()
        replaced = self._replaced(previous)
        if not back_off.raises(standing, finished, now, replaced):
            return
        self.context.back_offs[key] = back_off.raised(
            standing, finished, now, self.context.crash_loop, self._definition(previous.name), replaced
        )
        self.context.on_back_off()
        await self.context.outlive_kill()

    # Ending

    async def reset(self, instances: tuple[ContainerView, ...]) -> None:
        """End these containers without grace period, then remove them in their order (KEP-5532)."""
        running = [found for found in instances if found.state in ("running", "unknown")]
        await gather(*[self.scope.spawn(self._killing.end_container(one, time.monotonic()), "kill") for one in running])
        for found in instances:
            await self.context.cri.remove_container(found.id)
            self.runtime.removed(found.id)

    async def _remove_sandbox(self, sandbox: SandboxView) -> None:
        try:
            async with self.context.stopping:
                await self.context.cri.remove_pod_sandbox(sandbox.id)
        except CriError as error:
            if error.task_runs:
                end_shim(sandbox.id)  # the next try succeeds
            raise

    async def release(self, *, deleted: bool) -> bool:
        """Unmount volumes and remove the cgroup of an ended pod; if `deleted` also its sandboxes.

        False: an unknown process is left in the cgroup; call again later.
        """
        uid = self.scope.pod.metadata.uid
        # An orphan's object is made of the runtime's labels, which name no volumes.
        if self.mounts != {} and (self.scope.pod.spec.volumes or is_rebuilt(self.scope.pod)):
            await self.context.volumes.ask(UnmountPod(pod_uid=uid), 120.0)
        self.mounts = {}
        if deleted:
            for sandbox in (await self.runtime.current()).sandboxes:
                await self._remove_sandbox(sandbox)
            self.runtime.view = PodView()
        released = await self._remove_cgroup()
        if released:  # a process that is left still has the IDs
            self.context.userns.release(uid)
        if deleted:
            for container in (*self.scope.pod.spec.init_containers, *self.scope.pod.spec.containers):
                self.context.back_offs.pop((uid, container.name), None)
            self.context.replaced.pop(uid, None)
        return released

    async def _remove_cgroup(self) -> bool:
        """Remove the cgroup. False: it has processes.

        An abandoned start can leave a process that the runtime does not know. It is killed when it is seen a second
        time, since a process that has just ended takes a moment to go.
        """
        uid, name = self.scope.pod.metadata.uid, pod_cgroup_parent(self.scope.pod, self.context)
        remove = (cgroup_fs.remove_pod_cgroup, name, self.context.settings)
        try:
            if await self.context.blocking(CGROUP_S, *remove):
                return True
            seen, self._cgroup_busy = self._cgroup_busy, True
            if not seen or (await self.runtime.listed()).has_processes:
                return False
            count = kill_processes(name)
            if not self._cgroup_killed:
                log.warning("pod %s has ended, but %d processes are in its cgroup: killed", uid, count)
            self._cgroup_killed = True
            return bool(await self.context.blocking(CGROUP_S, *remove))
        except OSError as error:
            log.warning("cannot remove the cgroup of pod %s: %s; trying again", uid, error)
            return False

"""Ends a pod's containers: runs preStop hooks and calls StopContainer in order, within the grace period.

Source: killContainer and killContainersWithSyncResult of pkg/kubelet/kuberuntime. `decide.termination` decides times
and order. A cancelled call may be repeated: a hook that has begun goes on meanwhile and is not started again.
`model.end_record` has what a restart of this actor keeps of the end of a pod.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from actors._base import Future, first_of, gather
from actors._cri.errors import CriError, RuntimeDown
from actors.pod_workers.decide.termination import find_container, stop_timeout_s, waits_for
from actors.pod_workers.model import reasons
from actors.pod_workers.model.end_record import remaining_hook
from actors.pod_workers.model.orphans import restored_container
from actors.pod_workers.model.view import ContainerView
from actors.pod_workers.shared.pod_scope import PodScope
from actors.pod_workers.steps.hooks import HookFailedError, Hooks
from actors.pod_workers.steps.runtime_view import RuntimeView
from proto.v1 import Container, LifecycleHandler

log = logging.getLogger(__name__)


class Killing:
    """Ends containers of one pod; used in its worker's mailbox thread only. Errors of the runtime come out as they are.

    Deadlines are monotonic seconds: when the grace period is over.
    """

    def __init__(self, scope: PodScope, runtime: RuntimeView, hooks: Hooks) -> None:
        self.scope = scope
        self.context = scope.context
        self.runtime = runtime
        self._hooks = hooks
        self._pre_stops: dict[str, Future[Any]] = {}
        """By container ID, hooks that have begun. An abandoned hook counts as completed."""
        self._told: set[str] = set()
        """IDs of containers whose Killing event has been recorded."""

    async def end_pod(self, deadline: float) -> None:
        """End every running container, sidecars last and in reverse order, then the sandboxes.

        As in the kubelet, the sandboxes are also stopped after a refusal of the runtime, which then ends their
        containers. The first refusal is raised afterwards.
        """
        view = await self.runtime.current()
        running = [container for container in view.containers if container.state in ("running", "unknown")]
        ended: dict[str, Future[None]] = {container.name: Future() for container in running}
        order = waits_for(self.scope.pod, ended.keys())
        predecessors_by_name = {name: [ended[other] for other in others] for name, others in order.items()}
        ends = [self._end_after(one, deadline, predecessors_by_name.get(one.name, ()), ended) for one in running]
        refusal: CriError | None = None
        try:
            await gather(*[self.scope.spawn(end, "kill") for end in ends])
        except RuntimeDown:
            raise
        except CriError as error:
            refusal = error
        for sandbox in (await self.runtime.current()).sandboxes:
            if sandbox.state == "ready":
                try:
                    await self._stop_sandbox(sandbox.id)
                except RuntimeDown:
                    raise
                except CriError as error:
                    refusal = refusal or error
        if refusal is not None:
            raise refusal

    async def _stop_sandbox(self, identity: str) -> None:
        async with self.context.stopping:
            await self.context.cri.stop_pod_sandbox(identity)
        self.runtime.stopped_sandbox(identity)

    async def _end_after(
        self,
        found: ContainerView,
        deadline: float,
        predecessors: Sequence[Future[None]],
        ended: dict[str, Future[None]],
    ) -> None:
        try:
            await self.end_container(found, deadline, predecessors=predecessors)
        except Exception as error:
            if not isinstance(error, CriError) or isinstance(error, RuntimeDown):
                # The containers that wait for this one must be retried, too. After a refusal they wait until their
                # deadline, as in the kubelet.
                ended[found.name].set_error(error)
            raise
        ended[found.name].set(None)

    async def end_container(
        self, found: ContainerView, deadline: float, message: str = "", predecessors: Sequence[Future[None]] = ()
    ) -> None:
        """Run the preStop hook, wait for `predecessors`, send SIGTERM and, after the grace period, SIGKILL.

        The exit is in the view when this returns. `deadline`: monotonic seconds. `message`: of the Killing event.
        A repeated end keeps its first deadline, also after a restart of this actor.
        """
        deadline = self.context.ends.container_end_by(self.scope.pod.metadata.uid, found.id, deadline)
        container = find_container(self.scope.pod, found.name) or restored_container(found)
        if found.id not in self._told:
            self._told.add(found.id)
            text = message or reasons.stopping_container(found.name)
            self.context.events.pod(self.scope.pod, "Normal", reasons.KILLING, text, container=found.name)
        if deadline > time.monotonic():
            hook = container.lifecycle.pre_stop if container.lifecycle is not None else None
            if hook is not None and found.id not in self._pre_stops:
                known = self.context.ends.hook(self.scope.pod.metadata.uid, found.id)
                hook = remaining_hook(hook, known, time.monotonic())
            if hook is not None:
                await self._pre_stop(found, container, hook, deadline)
            for other in predecessors:
                await self._until(other, deadline)
                if other.done():
                    await other  # raises its error
        timeout_s = stop_timeout_s(deadline - time.monotonic())
        end = f"container {found.name} to end within {timeout_s} s"
        why = self.context.ends.kill_cause(self.scope.pod.metadata.uid, found.name, found.id)
        with self.scope.wait_reasons.waiting_for(end, "hook", timeout_s=timeout_s, error=why):
            await self.context.cri.stop_container(found.id, timeout_s)
        await self.runtime.read_stopped(found.id)
        self._forget(found.id)

    async def _pre_stop(
        self, found: ContainerView, container: Container, handler: LifecycleHandler, deadline: float
    ) -> None:
        hook = self._pre_stops.get(found.id)
        if hook is None:
            hook = self.scope.spawn(self._run_pre_stop(found, container, handler), "preStop")
            self._pre_stops[found.id] = hook
            self.context.ends.hook_began(self.scope.pod.metadata.uid, found.id, time.monotonic())
        known = self.context.ends.hook(self.scope.pod.metadata.uid, found.id)
        now = time.monotonic()
        # Here and not around the hook itself: a shorter grace period has a new deadline, and the hook goes on.
        with self.scope.wait_reasons.waiting_for(
            f"preStop hook of container {container.name}",
            "hook",
            timeout_s=max(0.0, deadline - now),
            since=known.began if known is not None else now,
            error=self.context.ends.kill_cause(self.scope.pod.metadata.uid, found.name, found.id),
        ):
            await self._until(hook, deadline)
        if hook.done():
            await hook
            return
        log.warning("%s: preStop hook not completed in grace period", self._who(container))
        self._failed(container)
        given_up: Future[None] = Future()
        given_up.set(None)
        self._pre_stops[found.id] = given_up
        self.context.ends.hook_done(self.scope.pod.metadata.uid, found.id)
        hook.cancel()

    async def _run_pre_stop(self, found: ContainerView, container: Container, handler: LifecycleHandler) -> None:
        try:
            await self._hooks.run(self.scope.pod, container, found.id, handler, self.runtime.view)
        except RuntimeDown:
            # It may not have begun. Once the runtime answers it runs in the rest of the grace period.
            self._pre_stops.pop(found.id, None)
            raise
        except (HookFailedError, CriError) as error:
            log.warning("%s: PreStop hook failed: %s", self._who(container), error)
            self._failed(container)
        self.context.ends.hook_done(self.scope.pod.metadata.uid, found.id)

    def _failed(self, container: Container) -> None:
        # Without the hook's output, which may hold a secret: many can read events.
        event = reasons.FAILED_PRE_STOP_HOOK, "PreStopHook failed"
        self.context.events.pod(self.scope.pod, "Warning", *event, container=container.name)

    async def _until(self, other: Future[Any], deadline: float) -> None:
        pause = self.scope.sleep(max(0.0, deadline - time.monotonic()))
        try:
            await first_of(other, pause)
        finally:
            pause.cancel()

    def _forget(self, identity: str) -> None:
        self._told.discard(identity)
        hook = self._pre_stops.pop(identity, None)
        if hook is not None:
            hook.cancel()

    def _who(self, container: Container) -> str:
        meta = self.scope.pod.metadata
        return f"pod {meta.namespace}/{meta.name} container {container.name}"

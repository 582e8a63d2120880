"""The pod worker: the actor of one pod, which drives it to the desired state one step at a time.

A pod is in one of the kubelet's three stages (pkg/kubelet/pod_workers.go). It is in *sync* until it must end, in
*terminating* until none of its processes run, and in *terminated* until nothing of it is left. A step is a coroutine
that brings the pod as far as it goes now. An exit, a probe result, a termination request or a timer marks the worker
dirty, and another step runs. At most one step runs; a termination request cancels it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal

from actors._base import Future, PooledActor
from actors._base.messaging import waits
from actors._base.messaging.mailbox import TimerHandle
from actors._base.messaging.tasks import Cancelled, Task
from actors._cri.errors import CriError, RuntimeDown
from actors.pod_workers.decide.termination import end_grace_s, kill_wait_s
from actors.pod_workers.model import metrics, reasons
from actors.pod_workers.model.allocation import equal, resources_of
from actors.pod_workers.model.termination_request import TerminationRequest, requested_termination
from actors.pod_workers.model.view import PodView
from actors.pod_workers.model.wait_reasons import subject_of
from actors.pod_workers.resources.resize_conditions import Pending
from actors.pod_workers.resources.resize_steps import Resizer
from actors.pod_workers.shared.assigned import unprepare_claims
from actors.pod_workers.shared.pod_scope import PodScope
from actors.pod_workers.shared.pod_tracer import PodTracer
from actors.pod_workers.shared.worker_context import WorkerContext
from actors.pod_workers.status.reporting import StatusReporter
from actors.pod_workers.steps.hooks import Hooks
from actors.pod_workers.steps.killing import Killing
from actors.pod_workers.steps.operations import Operations
from actors.pod_workers.steps.runtime_view import RuntimeView
from actors.pod_workers.steps.sync import (
    RETRY,
    RETRY_NETWORK_S,
    ClaimsNotPreparedError,
    NetworkNotReadyError,
    Sync,
    log_keys,
    log_name,
    resync_s,
)
from actors.pod_workers.timeline import StartTimeline
from proto.node.container_gc import PodTerminated
from proto.node.image_pull import DropPulls
from proto.pods.pod_workers import PodTrace, ProbeResult
from proto.pods.volume import PodEnding
from proto.v1 import Pod, PodStatus
from proto.wire.errors import ActorDead, ActorError, AskTimeout

log = logging.getLogger(__name__)

Stage = Literal["sync", "terminating", "terminated"]

RETRY_PEER_S = 0.1
"""After a peer died or did not answer: the supervisor restarts it at once."""
SHOW_EXITS_S = 0.1
"""Before the exits of a pod that ends are published: most pods have ended by then, and exits together are published
once."""
PUBLISH_ENDED_S = 3.0
"""Before a change of the object of a deleted pod that has ended is published: most are gone before. Each status write
comes back as such a change, and so does the deletion itself."""
RETRY_RUNTIME_S = 1.0
"""While the runtime's endpoint does not answer."""


@dataclass(frozen=True, slots=True)
class InitialState:
    """The facts about a pod that its worker starts with."""

    view: PodView | None
    """Sandboxes and containers that the runtime listed; empty for a new pod, None when they are not known."""
    is_new: bool = False
    """No process before this one has begun the pod: the runtime has only what this worker makes."""
    status: PodStatus | None = None
    """The last published status."""
    results: tuple[ProbeResult, ...] = ()
    termination: TerminationRequest | None = None
    """Ends the pod from the start: none of its containers may start."""
    desired: Pod | None = None
    """The pod with the resources its source wants; None when those are allocated."""
    pending: Pending | None = None
    """Why they are not allocated."""
    trace: PodTrace | None = None
    """The trace of its start."""
    timeline: StartTimeline | None = None
    """The timeline of its start, for a pod that the runtime does not have yet."""


class PodWorker(PooledActor):
    """One pod. Every public method may be called from any thread; it posts to the mailbox."""

    def __init__(
        self,
        context: WorkerContext,
        pod: Pod,
        initial: InitialState,
        *,
        on_created: Callable[[PodWorker], None],
        on_finished: Callable[[str, bool], None],
    ) -> None:
        """`on_finished(uid, failed)`: nothing of the pod is left, or this worker failed and must be replaced."""
        super().__init__(context.timers)
        self.context = context
        self.scope = scope = PodScope(
            context,
            pod,
            initial.desired or pod,
            self.sleep,
            self.spawn,
            PodTracer(pod, initial.trace, initial.timeline),
        )
        self.stage: Stage = "sync"
        self.termination: TerminationRequest | None = None
        self.runtime = RuntimeView(scope, initial.view, is_new=initial.is_new)
        self.resizer = Resizer(context, self.runtime.read_container, initial.pending)
        self.report = StatusReporter(
            scope,
            initial.view,
            initial.status,
            initial.results,
            self.resizer.conditions,
            inherits=not scope.context.settings.reset_readiness_at_start,
        )
        hooks = Hooks(scope)
        self.killing = Killing(scope, self.runtime, hooks)
        self.operations = Operations(scope, self.runtime, hooks, self.killing)
        self.sync = Sync(scope, self.runtime, self.killing, self.operations, self.report, self.resizer)
        self._on_finished = on_finished
        self._step: Task[float] | None = None
        self._dirty = False
        self._failures = 0
        self._kind = "create"
        """The kubelet's name for the next step: create, sync or update."""
        self._timer: TimerHandle | None = None
        self._late: TimerHandle | None = None
        """Of a step that nothing waits for."""
        self._deadline: TimerHandle | None = None
        """Of activeDeadlineSeconds: it also ends a pod whose step hangs in a pull or a hook."""
        self._end_by = math.inf
        """Monotonic seconds: the end of the pod's grace period."""
        self._is_stopping = self._shows_exits = False
        """The terminating step stops the containers; a task publishes the exits meanwhile."""
        self._finished = False
        self._is_wanted_again = False
        metrics.worker_started(pod, initial.view, initial.termination)
        if initial.termination is not None:
            self._accept_termination(initial.termination)
        context.published.uses(pod)
        on_created(self)

    # From any thread

    @property
    def pod(self) -> Pod:
        """The pod with the resources allocated to it."""
        return self.scope.pod

    def wake(self) -> None:
        """Run a step soon."""
        self.post(self._wake, name="wake")

    def update(self, pod: Pod, desired: Pod, pending: Pending | None = None) -> None:
        """Take a new object of the same UID.

        `pod` has the allocated resources, `desired` those its source wants, and `pending` says why they differ.
        """
        self.post(self._update, pod, desired, pending, name="update")

    def end(self, termination: TerminationRequest) -> None:
        """End the pod. A later request may add the deletion, or shorten the grace period."""
        self.post(self._end, termination, name="end")

    def volumes_changed(self) -> None:
        """Ask the volume actor for the pod's volumes again."""
        self.post(self._volumes_changed, name="volumes_changed")

    def wanted_again(self) -> None:
        """A source that removed the pod wants it again, under the same UID."""
        self.post(self._wanted_again, name="wanted_again")

    def runtime_changed(self, exited: tuple[str, ...]) -> None:
        """`exited`: CRI IDs whose process has exited; empty when it is not known which sandbox or container changed."""
        self.post(self._runtime_changed, exited, name="runtime_changed")

    def probed(self, results: tuple[ProbeResult, ...]) -> None:
        """Take new probe results of this pod's containers."""
        self.post(self._probed, results, name="probed")

    # In the mailbox

    def on_start(self) -> None:
        """Pykka's hook: the first step."""
        self._end_as_requested()
        self._watch_deadline()
        self._wake()

    def _update(self, pod: Pod, desired: Pod, pending: Pending | None) -> None:
        self.resizer.pending = pending
        was_deleted = self.pod.metadata.deletion_timestamp is not None
        if not equal(resources_of(pod), resources_of(self.pod)):
            self.resizer.granted(pod)
        metrics.resizes_requested(self.scope.desired, desired)
        self.scope.pod, self.scope.desired = pod, desired
        self._kind = "update"
        self.operations.ask_volumes_again()
        self.report.pod_changed()
        self.context.published.uses(pod)
        self._end_as_requested()
        self._watch_deadline()
        if was_deleted and self.stage == "terminated":
            self._wake_late()
        else:
            self._wake()

    def _watch_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        due_s = self.report.deadline_in_s(time.time())
        self._deadline = None if due_s is None else self.after(due_s, self._deadline_over)

    def _deadline_over(self) -> None:
        if self.stage != "sync":
            return
        termination = self.report.own_termination(time.time())
        if termination is None:
            self._watch_deadline()  # the timer's monotonic clock may run ahead of Unix time
        else:
            self._end(termination)

    def _volumes_changed(self) -> None:
        self.operations.ask_volumes_again()
        self._wake()

    def _end_as_requested(self) -> None:
        """End a pod whose object has a deletionTimestamp, within the grace period that the object has now."""
        termination = requested_termination(self.pod)
        if termination is not None:
            self._end(termination)

    def _end(self, termination: TerminationRequest) -> None:
        before = self.termination
        self._is_wanted_again = self._is_wanted_again and not termination.deleted
        if self._accept_termination(termination) and not self._changes_grace_only(before):
            wait_s = kill_wait_s(self.pod, termination)
            if wait_s is not None:
                self.after(wait_s, self._kill_overdue)
            shortened = before is None or before.merged(termination).grace_period_s != before.grace_period_s
            if self._step is not None and shortened:
                self._step.cancel()  # its end starts the next step
            self._wake()

    def _changes_grace_only(self, before: TerminationRequest | None) -> bool:
        """True when the pod has ended and its request differs from `before` in the grace period: no step reads it."""
        if self.stage != "terminated" or before is None or self.termination is None:
            return False
        return replace(before, grace_period_s=self.termination.grace_period_s) == self.termination

    def _kill_overdue(self) -> None:
        if self.stage == "terminating":
            self.context.events.pod(self.pod, "Warning", "ExceededGracePeriod", reasons.EXCEEDED_GRACE_MESSAGE)

    def _accept_termination(self, termination: TerminationRequest) -> bool:
        """Merge the request with earlier ones. False: it adds nothing."""
        before = self.termination
        self.termination = termination if before is None else before.merged(termination)
        if termination.reason and not termination.deleted:
            self.scope.wait_reasons.rejected(termination.reason, termination.message)
        if self.stage == "sync":
            self.stage = "terminating"
            self.report.terminating = True
            # Its pulls would delay those of other pods. An ask that failed here may still be on its way.
            self.context.images.tell(DropPulls(pod_uid=self.pod.metadata.uid))
            self.context.volumes.tell(PodEnding(pod_uid=self.pod.metadata.uid))
            if termination.reason == reasons.DEADLINE_EXCEEDED:
                self.context.events.pod(self.pod, "Normal", termination.reason, termination.message)
        return self.termination != before

    def _wanted_again(self) -> None:
        self._is_wanted_again = True
        metrics.pod_wanted_again(self.pod)

    def _runtime_changed(self, exited: tuple[str, ...]) -> None:
        self.runtime.mark_stale(exited)
        if exited and self._is_stopping and not self._shows_exits:
            self._shows_exits = True
            self.spawn(self._show_exits(), "show_exits")
        self._wake()

    async def _show_exits(self) -> None:
        """Publish exited containers while others still end: a hook may take the whole grace period.

        The step publishes the last exit itself: not before the sandboxes are stopped and the claims are unprepared.
        """
        wait_s = SHOW_EXITS_S
        try:
            while self._is_stopping and self.runtime.has_exits:
                await self.sleep(wait_s)
                if self._is_stopping:
                    wait_s = await self._publish_exits()
        finally:
            self._shows_exits = False

    async def _publish_exits(self) -> float:
        """Read and publish exits once. Seconds until the next look, if an exit is left."""
        try:
            view = await self.runtime.exits()
        except CriError as error:
            log.debug("%s: cannot read its exits, trying again: %s", log_name(self.pod), error)
            return RETRY_RUNTIME_S
        if view is not None and self._is_stopping:
            self.report.publish(view, self.termination)
        return SHOW_EXITS_S if view is not None else RETRY_RUNTIME_S

    def _probed(self, results: tuple[ProbeResult, ...]) -> None:
        if self.report.take_results(results):
            if self.stage == "terminating":
                # The current step lasts until the containers end; their readiness is published before that.
                self.report.publish(self.runtime.view, self.termination)
            elif self._step is not None and not self._finished:
                self.report.publish_again(self.termination)  # the step may wait for minutes, such as for a pull
            self._wake()

    # Steps

    def _wake(self) -> None:
        self._dirty = True
        if self._step is None and not self._finished:
            self._begin()

    def _wake_late(self) -> None:
        """Run a step in PUBLISH_ENDED_S at the latest."""
        if self._late is None:
            self._late = self.after(PUBLISH_ENDED_S, self._wake)

    def _begin(self) -> None:
        self._dirty = False
        for timer in (self._timer, self._late):
            if timer is not None:
                timer.cancel()
        self._timer = self._late = None
        self._step = self.spawn(self._run_step(), f"{self.stage} {self.pod.metadata.name}")
        self._step.add_done_callback(lambda step: self.post(self._step_done, step, name="step_done"))

    def _step_done(self, step: Future[float]) -> None:
        self._step = None
        name, keys = log_name(self.pod), log_keys(self.pod)
        try:
            wait_s = step.result(0)
        except Cancelled:
            self.runtime.relist()  # the cancelled call may have taken effect
            wait_s = 0.0
        except (ActorDead, AskTimeout) as error:
            log.info("%s: %s, trying again", name, error, extra=keys)
            self.scope.wait_reasons.failed(str(error), wait_s := RETRY_PEER_S)
        except NetworkNotReadyError as error:
            log.debug("%s: %s", name, error, extra=keys)
            self.scope.wait_reasons.failed(str(error), wait_s := RETRY_NETWORK_S)
        except ClaimsNotPreparedError as error:
            log.warning("%s: %s", name, error, extra=keys)
            wait_s = self._failed(f"its claims are not prepared: {error}")
        except RuntimeDown as error:
            log.debug("%s: the runtime does not answer: %s", name, error, extra=keys)
            wait_s = self._failed(f"the container runtime does not answer: {error}", RETRY_RUNTIME_S)
        except (CriError, ActorError) as error:
            log.warning("%s: cannot finish %s: %s", name, self.stage, error, extra=keys)
            wait_s = self._failed(f"cannot finish {self.stage}: {error}")
        except Exception as error:
            # A bug met by one pod must not stop the others: its view is rebuilt and it is tried again, as the kubelet
            # does.
            log.exception("%s: its worker failed in stage %s", name, self.stage, extra=keys)
            wait_s = self._failed(f"a bug of nodevisor in {self.stage}, see the log: {error!r}")
        else:
            self._failures = 0
            self.scope.wait_reasons.step_done()
        if self._finished:
            return
        if self._dirty or wait_s <= 0:
            self._begin()
        else:
            self._timer = self.after(wait_s, self._wake)

    def _failed(self, problem: str, wait_s: float | None = None) -> float:
        """Note why a step failed. Returns the seconds until the next: `wait_s`, else a growing back-off."""
        self.runtime.relist()
        if wait_s is None:
            self._failures += 1
            wait_s = RETRY.delay_s(self._failures)
        self.scope.wait_reasons.failed(problem, wait_s)
        return wait_s

    async def _run_step(self) -> float:
        """One step; seconds until the next one if nothing happens."""
        began, kind = time.monotonic(), self._kind if self.stage == "sync" else "kill"
        self._kind = "sync"
        waits.SUBJECT.set(subject_of(self.pod))
        self.scope.wait_reasons.begin_step()
        try:
            with self.scope.trace.step(self.stage):
                return await self._next_step()
        finally:
            self.scope.trace.idle()
            metrics.step_done(kind, began)

    async def _next_step(self) -> float:
        match self.stage:
            case "sync":
                outcome = await self.sync.step()
                if isinstance(outcome, TerminationRequest):
                    self._accept_termination(outcome)
                    return 0.0
                return outcome
            case "terminating":
                return await self._terminating()
            case "terminated":
                return await self._terminated()

    async def _terminating(self) -> float:
        assert self.termination is not None
        view = await self.runtime.determined()
        self.report.publish(view, self.termination)
        # A repeated step has only the rest of the grace period; a later request may shorten that.
        grace_s = end_grace_s(self.pod, self.termination.grace_period_s)
        end_by = self.context.ends.end_by(self.pod.metadata.uid, time.monotonic() + grace_s)
        self._end_by = min(self._end_by, end_by)
        self._is_stopping = True
        try:
            await self.killing.end_pod(self._end_by)
        except CriError as error:
            if not isinstance(error, RuntimeDown):
                message = f"error killing pod: {error.grpc_text()}"
                self.context.events.pod(self.pod, "Warning", "FailedKillPod", message)
            raise
        finally:
            self._is_stopping = False
        view = await self.runtime.stopped()
        if view.has_processes:
            return RETRY_RUNTIME_S  # an abandoned call may have taken effect after all
        # Before the API server knows the end: then the cluster gives the devices to other pods.
        with self.scope.wait_reasons.waiting_for("DRA drivers to unprepare the claims"):
            await unprepare_claims(self.context, self.pod)
        self.context.ends.forget(self.pod.metadata.uid)
        self.report.over = True
        self.report.publish(view, self.termination)
        # Not before its last status is on its way: a shutdown of the machine may wait for this stage only.
        self.stage = "terminated"
        self.context.on_terminated(self.pod.metadata.uid)
        return 0.0

    async def _terminated(self) -> float:
        assert self.termination is not None
        if (await self.runtime.determined()).has_processes:
            self.stage = "terminating"  # an abandoned call has taken effect long after
            return 0.0
        deleted = self.termination.deleted  # as of now: a deletion that comes meanwhile is handled by the next step
        # A pod that restarts everything keeps its sandboxes, so that restart counts go on, as with the kubelet.
        counts_on = self._is_wanted_again and self.pod.spec.restart_policy == "Always"
        self.report.released = released = await self.operations.release(deleted=deleted and not counts_on)
        if not deleted:
            self.report.publish(await self.runtime.current(), self.termination)
            return resync_s(self.context) if released else RETRY_RUNTIME_S
        if not released and self.context.userns.has(self.pod.metadata.uid):
            return RETRY_RUNTIME_S  # no other step frees its IDs
        self._finished = True
        self.scope.wait_reasons.over()
        if self._deadline is not None:
            self._deadline.cancel()
        meta = self.pod.metadata
        self.context.published.forget(meta.uid)
        self._on_finished(meta.uid, False)
        if not counts_on:  # told last: container_gc removes nothing of a pod that still has a worker
            found = PodTerminated(pod_uid=meta.uid, pod_namespace=meta.namespace, pod_name=meta.name)
            self.context.container_gc.tell(found)
        self.stop()
        return 0.0

    def on_failure(
        self,
        exception_type: type[BaseException] | None,  # noqa: ARG002 - Pykka's signature
        exception_value: BaseException | None,
        traceback: TracebackType | None,  # noqa: ARG002
    ) -> None:
        """Pykka's hook: an exception outside a step. The pod runs on, and the actor starts another worker for it."""
        log.error("%s: its worker failed", log_name(self.pod), exc_info=exception_value, extra=log_keys(self.pod))
        self._finished = True
        self.scope.wait_reasons.over()
        self._on_finished(self.pod.metadata.uid, True)

    def describe(self) -> dict[str, Any]:
        """For a console. Called in the actor's thread."""
        return {
            "stage": self.stage,
            "step": self._step.name if self._step else "",
            "tasks": len(self.tasks),
            "waits_for": self.scope.wait_reasons.lines(),
            "last_error": self.scope.wait_reasons.last_error,
        }

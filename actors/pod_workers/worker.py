"""The actor of one pod: drives it to what is wanted, one step at a time.

A pod is in one of the kubelet's three stages (pkg/kubelet/pod_workers.go): *sync* until it must end, *terminating*
until nothing of it runs, *terminated* until nothing of it is left. A step is a coroutine that brings the pod as far as
it goes now; whatever may change its outcome (an exit, a probe result, a wish to end it, time) marks the worker dirty,
and another step runs. At most one step runs; a wish to end the pod cancels it.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from actors._base import Future, PooledActor
from actors._base.mailbox import TimerHandle
from actors._base.tasks import Cancelled, Task
from actors._cri.errors import CriError, RuntimeDown
from actors.pod_workers import policy, reasons
from actors.pod_workers.container_start import StartFailedError
from actors.pod_workers.ending import Ending, requested_ending
from actors.pod_workers.node import Node
from actors.pod_workers.operations import Operations
from actors.pod_workers.reporting import Report
from actors.pod_workers.view import PodView
from proto.errors import ActorDead, ActorError, AskTimeout, Refused
from proto.pod_workers import ProbeResult
from proto.v1 import Container, Pod, PodStatus

log = logging.getLogger(__name__)

Stage = Literal["sync", "terminating", "terminated"]

RETRY_S = 10.0
"""After a failure of the pod's own making (the kubelet's backOffPeriod), plus up to half of it again."""
FIRST_RETRY_S = 0.5
"""After a first failure of the runtime or of a new sandbox; doubles up to RETRY_S. Often it is only a busy runtime, or
the name of a sandbox that a given-up call has not let go of yet."""
RETRY_PEER_S = 0.1
"""After a peer died or the runtime was busy: it will be back at once."""
RETRY_RUNTIME_S = 1.0
"""While nobody answers at the runtime's endpoint."""
VOLUME_DEADLINE_S = 120.0
"""How long one wait for volumes lasts (the kubelet's podAttachAndMountTimeout is 2 min 3 s)."""


@dataclass(frozen=True, slots=True)
class Seed:
    """What a worker starts with when its pod may run already."""

    view: PodView | None
    """What the runtime listed; empty for a pod that has nothing there, None when that is not known."""
    status: PodStatus | None = None
    """The last published one."""
    results: tuple[ProbeResult, ...] = ()


class PodWorker(PooledActor):
    """One pod. Every public method may be called from any thread; it posts to the mailbox."""

    def __init__(
        self,
        node: Node,
        pod: Pod,
        seed: Seed,
        on_created: Callable[[PodWorker], None],
        on_finished: Callable[[str, bool], None],
    ) -> None:
        """`on_finished(uid, failed)`: nothing of the pod is left, or this worker failed and another one is needed."""
        super().__init__(node.timers)
        self.node = node
        self.pod = pod
        self.stage: Stage = "sync"
        self.ending: Ending | None = None
        self.report = Report(node, pod, seed.view, seed.status, seed.results)
        self.operations = Operations(node, pod, seed.view, self.sleep, self.spawn)
        self._on_finished = on_finished
        self._step: Task[float] | None = None
        self._dirty = False
        self._failures = 0
        self._create_retry_s: dict[str, float] = {}
        """What could not be created, by container name (the sandbox by an empty one): how long until the next try."""
        self._timer: TimerHandle | None = None
        self._finished = False
        on_created(self)

    # From any thread

    def wake(self) -> None:
        """Look at the pod again."""
        self.post(self._wake, name="wake")

    def update(self, pod: Pod) -> None:
        """The pod's object changed under the same UID."""
        self.post(self._update, pod, name="update")

    def end(self, ending: Ending) -> None:
        """The pod must end. A later wish may delete what an earlier one only ended, and shorten its grace period."""
        self.post(self._end, ending, name="end")

    def runtime_changed(self, exited: tuple[str, ...]) -> None:
        """Something happened to these containers or sandboxes; empty: to something."""
        self.post(self._runtime_changed, exited, name="runtime_changed")

    def probed(self, results: tuple[ProbeResult, ...]) -> None:
        """Results of probes of this pod's containers."""
        self.post(self._probed, results, name="probed")

    # In the mailbox

    def on_start(self) -> None:
        """Pykka's hook: the first step."""
        self._end_as_requested()
        self._wake()

    def _update(self, pod: Pod) -> None:
        self.pod = pod
        self.operations.pod = pod
        self.report.new_pod(pod)
        self._end_as_requested()
        self._wake()

    def _end_as_requested(self) -> None:
        """A pod whose object has a deletionTimestamp ends, in the grace period that stands there now."""
        ending = requested_ending(self.pod)
        if ending is not None:
            self._end(ending)

    def _end(self, ending: Ending) -> None:
        before = self.ending
        if self._take_ending(ending):
            shortened = before is None or before.merged(ending).grace_period_s != before.grace_period_s
            if self._step is not None and shortened:
                self._step.cancel()  # its end starts the next step
            self._wake()

    def _take_ending(self, ending: Ending) -> bool:
        """Keep a wish to end the pod; whether it is news."""
        before = self.ending
        self.ending = ending if before is None else before.merged(ending)
        if self.stage == "sync":
            self.stage = "terminating"
            self.report.terminating = True
        return self.ending != before

    def _runtime_changed(self, exited: tuple[str, ...]) -> None:
        self.operations.mark_stale(exited)
        self._wake()

    def _probed(self, results: tuple[ProbeResult, ...]) -> None:
        if self.report.take_results(results):
            self._wake()

    # Steps

    def _wake(self) -> None:
        self._dirty = True
        if self._step is None and not self._finished:
            self._begin()

    def _begin(self) -> None:
        self._dirty = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._step = self.spawn(self._run_step(), f"{self.stage} {self.pod.metadata.name}")
        self._step.add_done_callback(lambda step: self.post(self._step_done, step, name="step_done"))

    def _step_done(self, step: Future[float]) -> None:
        self._step = None
        try:
            wait_s = step.result(0)
        except Cancelled:
            self.operations.relist()  # what was under way may have been done all the same
            wait_s = 0.0
        except (ActorDead, AskTimeout) as error:
            log.info("%s: %s, trying again", self._who(), error)
            wait_s = RETRY_PEER_S
        except RuntimeDown as error:
            log.debug("%s: the runtime does not answer: %s", self._who(), error)
            self.operations.relist()
            wait_s = RETRY_RUNTIME_S
        except (CriError, ActorError) as error:
            log.warning("%s: cannot finish %s: %s", self._who(), self.stage, error)
            self.operations.relist()
            wait_s = self._failed()
        except Exception:
            # One pod's trouble is not the others': its view is rebuilt and it is tried again, as the kubelet does.
            log.exception("%s: its worker failed in stage %s", self._who(), self.stage)
            self.operations.relist()
            wait_s = self._failed()
        else:
            self._failures = 0
        if self._finished:
            return
        if self._dirty or wait_s <= 0:
            self._begin()
        else:
            self._timer = self.after(wait_s, self._wake)

    async def _run_step(self) -> float:
        """One step; seconds until the next one if nothing happens."""
        match self.stage:
            case "sync":
                return await self._sync()
            case "terminating":
                return await self._terminating()
            case "terminated":
                return await self._terminated()

    async def _sync(self) -> float:
        if self._create_retry_s:
            self.operations.relist()  # now, not right after the failure: what was in the way may be done by now
        view = await self.operations.current_view()
        now = time.time()
        self.report.publish(view)
        ending = self.report.own_ending(now)
        if ending is not None:
            self._take_ending(ending)
            return 0.0
        if not await self._mount_volumes():
            self.report.publish(view)
            return RETRY_S
        actions = policy.compute_actions(self.pod, view, self.report.probe_result)
        if actions.kill_pod:
            await self.operations.kill_pod(policy.grace_period_s(self.pod))
            if not actions.create_sandbox:
                self.report.publish(await self.operations.current_view())
                return RETRY_S
        for kill in actions.kill:
            log.info("%s: %s", self._who(), kill.message)
            await self.operations.kill_container(kill.container, self.report.grace_for(kill))
        if actions.create_sandbox and not await self._create_sandbox(actions.attempt):
            return self._create_retry_s[""]
        wait_s = await self._start_all(actions.init, actions.start)
        self.report.publish(await self.operations.current_view())
        deadline_s = self.report.deadline_in_s(time.time())
        return wait_s if deadline_s is None else min(wait_s, deadline_s)

    async def _mount_volumes(self) -> bool:
        try:
            await self.operations.mount_volumes(VOLUME_DEADLINE_S)
        except Refused as refusal:
            log.warning("%s: %s: %s", self._who(), refusal.reason, refusal.message)
            return False
        return True

    async def _create_sandbox(self, attempt: int) -> bool:
        try:
            await self.operations.create_sandbox(attempt)
        except StartFailedError as failure:
            log.warning("%s: %s: %s", self._who(), failure.reason, failure.message)
            self._not_created("")
            return False
        self._create_retry_s.pop("", None)
        # The address is worth knowing at once: probes and peers go by it.
        self.report.publish(await self.operations.current_view())
        return True

    async def _start_all(self, init: tuple[Container, ...], main: tuple[Container, ...]) -> float:
        """Start what is due; seconds until something is due again."""
        wait_s = self._resync_s()
        for container in (*init, *main):
            wait_s = min(wait_s, await self._start(container))
        return wait_s

    async def _start(self, container: Container) -> float:
        now = time.time()
        held_s = self.operations.held_back_s(container, now)
        if held_s > 0:
            self.report.waiting(container.name, *self.operations.back_off_reason(container))
            return held_s
        try:
            found = await self.operations.start_container(container, self.report.published_restarts(container.name))
        except StartFailedError as failure:
            log.warning("%s: container %s: %s: %s", self._who(), container.name, failure.reason, failure.message)
            self.report.waiting(container.name, failure.reason, failure.message)
            return self._not_created(container.name) if failure.reason == reasons.CREATE_CONTAINER_ERROR else _retry_s()
        self._create_retry_s.pop(container.name, None)
        self.report.started(container.name)
        # One that was over before it was read has never been watched: nobody will tell of its end.
        return 0.0 if found.state == "exited" else self._resync_s()

    def _not_created(self, what: str) -> float:
        last_s = self._create_retry_s.get(what, 0.0)
        self._create_retry_s[what] = min(RETRY_S, last_s * 2 or FIRST_RETRY_S)
        return self._create_retry_s[what]

    def _resync_s(self) -> float:
        period_s = self.node.settings.sync_frequency_s
        return period_s * (1 + random.random() / 2)

    async def _terminating(self) -> float:
        assert self.ending is not None
        view = await self.operations.current_view()
        self.report.publish(view, self.ending)
        grace_s = policy.grace_period_s(self.pod, self.ending.grace_period_s)
        await self.operations.kill_pod(grace_s)
        view = await self.operations.listed_view()
        if view.has_processes:
            return RETRY_RUNTIME_S  # perhaps begun by a call that was given up, and finished by the runtime after all
        self.stage = "terminated"
        self.node.on_terminated(self.pod.metadata.uid)
        self.report.publish(view, self.ending)
        return 0.0

    async def _terminated(self) -> float:
        assert self.ending is not None
        deleted = self.ending.deleted  # as of now: a deletion that comes meanwhile is the next step's
        await self.operations.release(deleted=deleted)
        if not deleted:
            self.report.publish(await self.operations.current_view(), self.ending)
            return self._resync_s()
        self._finished = True
        self.node.published.forget(self.pod.metadata.uid)
        self._on_finished(self.pod.metadata.uid, False)
        self.stop()
        return 0.0

    def on_failure(
        self,
        exception_type: type[BaseException] | None,  # noqa: ARG002 - Pykka's signature
        exception_value: BaseException | None,
        traceback: TracebackType | None,  # noqa: ARG002
    ) -> None:
        """Pykka's hook: an exception outside a step. The pod goes on without us until its next worker looks at it."""
        log.error("%s: its worker failed", self._who(), exc_info=exception_value)
        self._finished = True
        self._on_finished(self.pod.metadata.uid, True)

    def _failed(self) -> float:
        """Seconds until the step that failed is tried again."""
        self._failures += 1
        return float(min(RETRY_S, FIRST_RETRY_S * 2.0 ** (self._failures - 1)))

    def _who(self) -> str:
        meta = self.pod.metadata
        return f"pod {meta.namespace}/{meta.name}"

    def describe(self) -> dict[str, Any]:
        """For a console, read by the parent's thread."""
        return {"stage": self.stage, "step": self._step.name if self._step else "", "tasks": len(self.tasks)}


def _retry_s() -> float:
    return RETRY_S * (1 + random.random() / 2)

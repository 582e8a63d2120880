"""Repeats one probe of one container: the policy decides, a timer queue schedules, the runner carries out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from actors._metrics.agent import PROBE_LATENESS
from actors._metrics.kubelet import PROBE_RESULTS, PROBE_SECONDS
from actors._net.probing.outcome import Outcome
from actors.probe import policy
from actors.probe.policy import Kind, Standing
from actors.probe.runner import Cancel, Runner
from actors.probe.timer_queue import TimerEntry, TimerQueue
from proto.pods.probe import ProbedContainer, ProbedPod
from proto.v1 import Probe

log = logging.getLogger(__name__)

_RESULTS = {"success": "successful", "warning": "successful", "failure": "failed"}
"""The kubelet's label values of its metrics by outcome. It does not count probes that could not be carried out."""
_TRIES = 3
"""Tries in a row of a probe that could not be carried out; the kubelet's maxProbeRetries."""
SYNC_S = 1.0
"""Shortest time from a probe to another for a sync of the pod. pod_workers may sync a pod several times a second. The
kubelet's pleg looks once a second."""


class Worker:
    """State: the container, its standing result, and the next or current probe. For the actor's thread.

    `on_change(worker, old_result)` is called after each change of `standing`, `on_outcome` after each probe.
    """

    def __init__(
        self,
        kind: Kind,
        timers: TimerQueue,
        runner: Runner,
        on_change: Callable[[Worker, policy.Result], None],
        on_outcome: Callable[[Worker, Outcome], None],
    ) -> None:
        self.kind = kind
        self.initial = policy.initial(kind)
        """The standing that this incarnation began with for the present container."""
        self.standing = self.initial
        self.container_id = ""
        self.pod: ProbedPod
        self.container: ProbedContainer
        self.probes = 0
        self._timers, self._runner = timers, runner
        self._on_change, self._on_outcome = on_change, on_outcome
        self._probe = Probe()
        self._numbers = policy.timing(self._probe)
        self._timer: TimerEntry | None = None
        self._due = self._began = 0.0
        """Monotonic seconds: when the present probe was due, and when its first try began."""
        self._run = 0
        """Number of the probe under way. Outcomes with another number are ignored."""
        self._cancel: Cancel | None = None
        self._under_way = False
        self._synced = False
        """The pod was sent again during the probe under way."""
        self._error = ""

    def update(
        self,
        pod: ProbedPod,
        container: ProbedContainer,
        *,
        started: bool,
        remembered: Standing | None = None,
        at_once: bool = False,
    ) -> None:
        """Take the container's present state.

        `started`: it has no startup probe, or its startup succeeded. `remembered`: the standing in the checkpoint, for
        a container that is new to this worker. `at_once`: run the first probe now instead of at the next period.

        A repeat is a sync of the pod. As in the kubelet (UpdatePodStatus of pkg/kubelet/prober), it probes a container
        that is not ready before its period is over.
        """
        probe: Probe = getattr(container, self.kind)
        numbers = policy.timing(probe)
        if container.container_id != self.container_id or numbers != self._numbers:
            self.stop()
        if container.container_id != self.container_id:
            self.container_id = container.container_id
            self.initial = policy.initial(self.kind, container.inherited)
            self.standing = remembered or self.initial
        self.pod, self.container, self._probe, self._numbers = pod, container, probe, numbers
        if not container.running:
            self._set_standing(policy.not_running(self.kind, self.standing))
        if self.kind == "startup":  # `started` may be that of the container before this one
            started = self.standing.result == "success"
        if not policy.is_active(
            self.kind, self.standing, running=container.running, terminating=pod.terminating, started=started
        ):
            self.stop()
        elif self._timer is None and not self._under_way:
            age_s = time.time() - container.started_at
            due_s = policy.first_due(numbers, min(age_s, numbers.initial_delay_s) if at_once else age_s)
            self._schedule(time.monotonic() + due_s)
        elif self.kind == "readiness" and self.standing.result != "success":
            self._sync()

    def _sync(self) -> None:
        """Probe soon, and begin the period anew."""
        if self._under_way:
            self._synced = True
            return
        delay_s = min(
            self._numbers.initial_delay_s, self.container.started_at + self._numbers.initial_delay_s - time.time()
        )
        due = max(self._began + SYNC_S, time.monotonic() + max(0.0, delay_s))
        if self._timer is not None and due < self._due:
            self._timer.cancel()
            self._schedule(due)

    def stop(self) -> None:
        """Stop probing and cancel the probe under way. The standing result stays."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._run += 1
        self._under_way = False
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()

    def _schedule(self, due: float) -> None:
        self._due = due
        self._timer = self._timers.at(due, partial(self._try, _TRIES))

    def _try(self, tries_left: int) -> None:
        self._timer = None
        self._run += 1
        if tries_left == _TRIES:
            self._began = time.monotonic()
            self._synced = False
            PROBE_LATENESS.observe(max(0.0, self._began - self._due), self.kind.capitalize())
        run = self._run
        self.probes += 1
        self._under_way, self._cancel = True, None
        cancel = self._runner.start(
            self.pod, self.container, self._probe, self._numbers.timeout_s, partial(self._ended, run, tries_left - 1)
        )
        if self._under_way and self._run == run:
            self._cancel = cancel

    def _ended(self, run: int, tries_left: int, outcome: Outcome) -> None:
        if run != self._run:
            return
        self._under_way, self._cancel = False, None
        if outcome.kind == "errored" and tries_left:
            self._try(tries_left)
            return
        self._count(outcome)
        self._log_error(outcome)
        self._on_outcome(self, outcome)
        standing = policy.settle(self.kind, self.standing, self._numbers, outcome)
        if not standing.on_hold and not (self.kind == "startup" and standing.result == "success"):
            self._schedule(self._next_due(standing))
        self._set_standing(standing)

    def _next_due(self, standing: Standing) -> float:
        """The time of the next probe after one with this standing."""
        now = time.monotonic()
        if self.kind == "readiness" and standing.result == "failure":
            if self.standing.result == "success" and not self.pod.terminating:
                return now  # one failure of a moment must not keep the container unready for a period
            if self._synced:
                return max(now, self._began + SYNC_S)
        return policy.next_due(self._numbers, self._due, now)

    def _set_standing(self, standing: Standing) -> None:
        old, self.standing = self.standing, standing
        if standing != old:
            self._on_change(self, old.result)

    def _count(self, outcome: Outcome) -> None:
        """Count a result. As in the kubelet, only a success has a duration, which includes tries that failed before."""
        result = _RESULTS.get(outcome.kind)
        if result is None:
            return
        kind, pod, container = self.kind.capitalize(), self.pod, self.container.name
        PROBE_RESULTS.inc(kind, result, container, pod.name, pod.namespace, pod.uid)
        if result == "successful":
            PROBE_SECONDS.observe(time.monotonic() - self._began, kind, container, pod.name, pod.namespace)

    def forget(self) -> None:
        """Drop the samples of a container that is gone, as the kubelet's workers do."""
        kind, pod, container = self.kind.capitalize(), self.pod, self.container.name
        PROBE_SECONDS.drop(kind, container, pod.name, pod.namespace)
        for result in set(_RESULTS.values()):
            PROBE_RESULTS.drop(kind, result, container, pod.name, pod.namespace, pod.uid)

    def _log_error(self, outcome: Outcome) -> None:
        """Log a probe that cannot be carried out, once until it can again."""
        error = outcome.output if outcome.kind == "errored" else ""
        if error and not self._error:
            text = "%s: %s probe errored and resulted in %s state: %s"
            log.warning(text, self, self.kind.capitalize(), outcome.state, error)
        self._error = error

    def __str__(self) -> str:
        return f"{self.pod.namespace}/{self.pod.name} container {self.container.name}"

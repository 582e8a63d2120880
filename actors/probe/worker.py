"""One probe of one container over time: the policy's decisions put on the agenda and carried out by the runner."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from actors._metrics.agent import PROBE_LATENESS
from actors._metrics.kubelet import PROBE_RESULTS, PROBE_SECONDS
from actors._net.probing.outcome import Outcome
from actors.probe import policy
from actors.probe.agenda import Agenda, Moment
from actors.probe.policy import Kind, Standing
from actors.probe.runner import Cancel, Runner
from proto.pods.probe import ProbedContainer, ProbedPod
from proto.v1 import Probe

log = logging.getLogger(__name__)

_RESULTS = {"success": "successful", "warning": "successful", "failure": "failed", "errored": "unknown"}
"""An outcome as the kubelet's metrics have it."""
_TRIES = 3
"""At once, when a probe could not be carried out; the kubelet's maxProbeRetries."""


class Worker:
    """For the actor's thread. `on_change(worker, old_result)` is called after each change of `standing`, `on_outcome`
    with what each probe came to."""

    def __init__(
        self,
        kind: Kind,
        agenda: Agenda,
        runner: Runner,
        on_change: Callable[[Worker, policy.Result], None],
        on_outcome: Callable[[Worker, Outcome], None],
    ) -> None:
        self.kind = kind
        self.initial = policy.initial(kind)
        """The standing that the present container began with here."""
        self.standing = self.initial
        self.container_id = ""
        self.pod: ProbedPod
        self.container: ProbedContainer
        self.probes = 0
        self._agenda, self._runner = agenda, runner
        self._on_change, self._on_outcome = on_change, on_outcome
        self._probe = Probe()
        self._numbers = policy.timing(self._probe)
        self._moment: Moment | None = None
        self._due = self._began = 0.0
        self._run = 0
        """Number of the probe under way; an outcome with another number comes too late."""
        self._cancel: Cancel | None = None
        self._under_way = False
        self._trouble = ""

    def update(
        self,
        pod: ProbedPod,
        container: ProbedContainer,
        *,
        started: bool,
        remembered: Standing | None = None,
        at_once: bool = False,
    ) -> None:
        """Take the container as it is now. `remembered` is the standing of a container that this worker has not seen;
        `started`: its startup probe has succeeded, or there is none; `at_once` asks for the first probe without keeping
        to the periods."""
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
            self._stand(policy.not_running(self.kind, self.standing))
        if self.kind == "startup":  # by what stands now: `started` may be of the container before this one
            started = self.standing.result == "success"
        if not policy.is_active(
            self.kind, self.standing, running=container.running, terminating=pod.terminating, started=started
        ):
            self.stop()
        elif self._moment is None and not self._under_way:
            age_s = time.time() - container.started_at
            due_s = policy.first_due(numbers, min(age_s, numbers.initial_delay_s) if at_once else age_s)
            self._schedule(time.monotonic() + due_s)

    def stop(self) -> None:
        """No more probes; one under way is given up. What stands, stands."""
        if self._moment is not None:
            self._moment.cancel()
            self._moment = None
        self._run += 1
        self._under_way = False
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()

    def _schedule(self, due: float) -> None:
        self._due = due
        self._moment = self._agenda.at(due, partial(self._try, _TRIES))

    def _try(self, tries_left: int) -> None:
        self._moment = None
        self._run += 1
        self._began = time.monotonic()
        if tries_left == _TRIES:
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
        self._say(outcome)
        self._on_outcome(self, outcome)
        standing = policy.settle(self.kind, self.standing, self._numbers, outcome)
        if not standing.on_hold and not (self.kind == "startup" and standing.result == "success"):
            self._schedule(policy.next_due(self._numbers, self._due, time.monotonic()))
        self._stand(standing)

    def _stand(self, standing: Standing) -> None:
        old, self.standing = self.standing, standing
        if standing != old:
            self._on_change(self, old.result)

    def _count(self, outcome: Outcome) -> None:
        kind, pod, container = self.kind.capitalize(), self.pod, self.container.name
        PROBE_SECONDS.observe(time.monotonic() - self._began, kind, container, pod.name, pod.namespace)
        PROBE_RESULTS.inc(kind, _RESULTS[outcome.kind], container, pod.name, pod.namespace, pod.uid)

    def forget(self) -> None:
        """The container is no more: its samples go, as they go with the kubelet's workers."""
        kind, pod, container = self.kind.capitalize(), self.pod, self.container.name
        PROBE_SECONDS.drop(kind, container, pod.name, pod.namespace)
        for result in set(_RESULTS.values()):
            PROBE_RESULTS.drop(kind, result, container, pod.name, pod.namespace, pod.uid)

    def _say(self, outcome: Outcome) -> None:
        """Log a probe that cannot be carried out once, until it can."""
        trouble = outcome.output if outcome.kind == "errored" else ""
        if trouble and not self._trouble:
            log.warning("%s: %s probe errored and resulted in unknown state: %s", self, self.kind.capitalize(), trouble)
        self._trouble = trouble

    def __str__(self) -> str:
        return f"{self.pod.namespace}/{self.pod.name} container {self.container.name}"

"""The probe actor: probes containers, and tells pod_workers when a container's standing result changes.

The standing result of a probe is success or failure, by its latest outcomes and the probe's thresholds. It is in the
checkpoint before it is sent, so that no restart takes back a result that pod_workers has. The pod worker decides what a
result does to its container.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from actors._base import Actor, handles
from actors._cri.client import Cri
from actors._events.recorder import Recorder
from actors._host.files import paths
from actors._host.files.checkpoint import CheckpointFile
from actors._host.system import agent_id
from actors._net.probing.outcome import Outcome
from actors.probe import policy
from actors.probe.policy import KINDS, Kind, Result
from actors.probe.results import VERSION, Entry, Key, ResultsByKey, by_key, load_results
from actors.probe.runner import Runner
from actors.probe.timer_queue import TimerQueue
from actors.probe.worker import Worker
from proto.pods.pod_workers import ProbeResult, ProbeResults
from proto.pods.probe import GetResults, ProbedContainer, ProbedPod, RemovePod, Results, SetPods
from proto.v1 import ObjectReference

log = logging.getLogger(__name__)

DISK_S = 10.0
SAVE_DEADLINE_S = 0.5
"""Results are sent after this time even when the disk hangs."""
COUNTERS_SAVED_AFTER_S = 1.0
"""Delay of the checkpoint after a change of counters only, which is not sent: several are written together."""

WorkerKey = tuple[str, Kind]
"""Container name and kind of probe, within a pod."""


class Probes(Actor):
    """State: a worker for each probe of each container, and the results that have been saved and sent."""

    name = "probe"

    async def rebuild(self) -> None:
        """Load the standing results; pod_workers sends the pods when it sees this start."""
        # Recorded, so that a replay knows whether the agent had started anew.
        self._agent = await self.blocking(DISK_S, agent_id, self.bus.supervisor_pidfd)
        endpoint = self.settings.container_runtime_endpoint
        path = os.path.join(paths.checkpoints_dir(self.settings.root_dir), "probe.json")
        loss = "results may change once when this actor restarts"
        self._file = CheckpointFile(self, path, VERSION, loss, deadline_s=SAVE_DEADLINE_S)
        self._timers = TimerQueue(self)
        self._cri = Cri(endpoint, after=self.after) if endpoint else None
        self._runner = Runner(self, self._timers, self._cri)
        self._workers: dict[str, dict[WorkerKey, Worker]] = {}
        self._results: ResultsByKey = load_results(self._file.load(), self._agent)
        self._knows_all_pods = False
        self._changed: set[Key] = set()
        self._counters_changed = False
        self._saving = False
        self._probes = 0
        self._events = Recorder(self.peer("events"))

    def on_peer_started(self, name: str, incarnation: int) -> None:  # noqa: ARG002 - the base's signature
        """Send all results to a new pod_workers."""
        if name == "pod_workers":
            self.peer("pod_workers").tell(ProbeResults(results=self._standing(), full=True))

    def on_shutdown(self) -> None:
        """Let the runtime start the commands that it was asked for."""
        if self._cri is not None:
            self._cri.wait_for_starts()

    def describe(self) -> dict[str, Any]:
        """State for the console: counts, failing probes, and the longest delay of a probe."""
        workers = list(self._all_workers())
        return {
            "pods": len(self._workers),
            "workers": len(workers),
            "failing": sorted(f"{w} {w.kind}" for w in workers if w.standing.message)[:20],
            "probes": self._probes + sum(worker.probes for worker in workers),
            "sockets": len(self._runner.poller),
            "most_late_ms": round(self._timers.max_lateness_s * 1000, 3),
            "checkpoint_failed": self._file.failed,
        }

    # Pods

    @handles(SetPods)
    def set_pods(self, message: SetPods) -> None:
        """Create, change and stop workers to match the pods."""
        for pod in message.pods:
            self._set_pod(pod)
        if message.full:
            listed = {pod.uid for pod in message.pods}
            for pod_uid in [uid for uid in self._workers if uid not in listed]:
                self._remove(pod_uid)
            self._knows_all_pods = True
        self._drop_stale_results()

    @handles(RemovePod)
    def remove_pod(self, message: RemovePod) -> None:
        """Stop the pod's workers and drop its results."""
        self._remove(message.pod_uid)

    @handles(GetResults)
    def get_results(self, _: GetResults) -> Results:
        """Answer with the results that were sent, and initial results of containers that were not probed yet."""
        return Results(results=self._standing())

    def _set_pod(self, pod: ProbedPod) -> None:
        workers = self._workers.setdefault(pod.uid, {})
        wanted: set[WorkerKey] = set()
        for container in pod.containers:
            for kind in KINDS:  # startup first: the other probes wait for its success
                if getattr(container, kind) is not None:
                    wanted.add((container.name, kind))
                    self._set_worker(workers, pod, container, kind)
        for key in workers.keys() - wanted:
            self._drop(workers.pop(key))

    def _set_worker(
        self, workers: dict[WorkerKey, Worker], pod: ProbedPod, container: ProbedContainer, kind: Kind
    ) -> None:
        worker = workers.get((container.name, kind))
        if worker is None:
            worker = workers[container.name, kind] = Worker(
                kind, self._timers, self._runner, self._on_change, self._record
            )
        known = self._results.get((container.container_id, kind))
        worker.update(
            pod,
            container,
            started=_started(workers, container),
            remembered=known.standing if known is not None else None,
        )

    def _remove(self, pod_uid: str) -> None:
        for worker in self._workers.pop(pod_uid, {}).values():
            self._drop(worker)
        self._results = {key: entry for key, entry in self._results.items() if entry.pod_uid != pod_uid}

    def _drop_stale_results(self) -> None:
        """Drop the results of containers that are gone."""
        self._results = {key: entry for key, entry in self._results.items() if self._is_current(entry)}

    def _is_current(self, entry: Entry) -> bool:
        workers = self._workers.get(entry.pod_uid)
        if workers is None:
            return not self._knows_all_pods  # a pod that is not known yet may still come
        worker = workers.get((entry.container, entry.kind))
        return worker is not None and worker.container_id == entry.container_id

    def _drop(self, worker: Worker) -> None:
        worker.stop()
        worker.forget()
        self._probes += worker.probes

    def _all_workers(self) -> list[Worker]:
        return [worker for workers in self._workers.values() for worker in workers.values()]

    # Results

    def _on_change(self, worker: Worker, old: Result) -> None:
        if worker.standing.result == old:
            if not self._counters_changed:
                self._counters_changed = True
                self.after(COUNTERS_SAVED_AFTER_S, self._save)
            return
        log.info("%s: %s is %s %s", worker, worker.kind, worker.standing.result, worker.standing.message)
        self._changed.add((worker.container_id, worker.kind))
        self._save()
        if worker.kind == "startup" and worker.standing.result == "success":
            self._start_other_probes(worker)

    def _start_other_probes(self, startup: Worker) -> None:
        for (name, kind), worker in self._workers.get(startup.pod.uid, {}).items():
            if name == startup.container.name and worker is not startup:
                worker.update(startup.pod, startup.container, started=True, at_once=kind == "readiness")

    def _record(self, worker: Worker, outcome: Outcome) -> None:
        """Record an event of the container for each probe that does not succeed."""
        event = policy.event(worker.kind, outcome)
        if event is None:
            return
        pod, path = worker.pod, worker.container.field_path or None
        container = ObjectReference(
            kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid, api_version="v1", field_path=path
        )
        self._events.object(container, "Warning", *event, most=policy.MAX_EVENT)

    def _save(self) -> None:
        if not self._saving:
            self._saving = True
            self.spawn(self._save_and_tell(), "save")

    async def _save_and_tell(self) -> None:
        """Write the checkpoint, then send changed results. Changes during a write go into the next one."""
        while self._changed or self._counters_changed:
            changed, self._changed, self._counters_changed = self._changed, set(), False
            current = self._current(changed)
            await self._file.save(list(current.values()))
            self._results = current
            self._drop_stale_results()
            results = tuple(current[key].result() for key in changed if key in current)
            if results:
                self.peer("pod_workers").tell(ProbeResults(results=results))
        self._saving = False

    def _current(self, changed: set[Key]) -> ResultsByKey:
        """The results to save: of probed containers and, until all pods are known, those of the last incarnation."""
        entries = [self._entry(worker) for worker in self._all_workers() if worker.container_id]
        current = by_key(
            entry
            for entry in entries
            if entry.standing != policy.initial(entry.kind) or entry.key in changed or entry.key in self._results
        )
        return current if self._knows_all_pods else self._results | current

    def _standing(self) -> tuple[ProbeResult, ...]:
        unprobed = by_key(self._entry(worker, worker.initial) for worker in self._all_workers() if worker.container_id)
        return tuple(entry.result() for entry in (unprobed | self._results).values())

    def _entry(self, worker: Worker, standing: policy.Standing | None = None) -> Entry:
        return Entry(
            pod_uid=worker.pod.uid,
            container=worker.container.name,
            container_id=worker.container_id,
            kind=worker.kind,
            standing=standing or worker.standing,
            agent=self._agent,
        )


def _started(workers: dict[WorkerKey, Worker], container: ProbedContainer) -> bool:
    startup = workers.get((container.name, "startup"))
    return container.startup is None or (startup is not None and startup.standing.result == "success")


ACTOR = Probes

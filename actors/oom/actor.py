"""The oom actor: reads the kernel's log, and reports OOM kills as events and metrics.

A checkpoint has the number of the last record with a kill. It is written before the events are sent: no kill is
reported twice, and an actor that is killed in between reports none. Kills of the time between two incarnations are
reported by the next one, with their own time.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Any

from actors._base import Actor
from actors._cri.errors import CriError
from actors._cri.relay import RelayedCri
from actors._events.recorder import MAX_MESSAGE, pod_reference
from actors._host.files import paths
from actors._host.files.checkpoint import CheckpointFile
from actors._host.system import boot_id
from actors._metrics import agent as metrics
from actors.oom import kernel_log, policy
from actors.oom.kills import Kill, KillFinder
from proto.cri.labels import CONTAINER_NAME
from proto.pods.events import RecordEvent
from proto.pods.pod_workers import ListPodWorkers
from proto.v1 import ObjectReference, Pod
from proto.wire.errors import ActorError

log = logging.getLogger(__name__)

CHECKPOINT_VERSION = 1
DISK_S = 5.0
WORKERS_S = 10.0
RECORDS_AT_ONCE = 256
"""Records of one turn. A turn takes a millisecond, and the actor answers between two."""
PAUSE_S = 0.5
"""Time between two reads. A busy log costs little then: the network of each pod that starts writes some lines."""
MOST_WAITING = 100
"""Kills that wait for their pods. Of more in a burst, the oldest are only counted."""
RETRIES = 10
RETRY_S = 1.0


class Oom(Actor):
    """State: kills whose pods are asked for, and the position in the log."""

    name = "oom"
    asks = frozenset({"pleg", "pod_workers"})

    async def rebuild(self) -> None:
        """Load the position, and open the log."""
        settings = self.settings
        self._cri = RelayedCri(self.peer("pleg")) if settings.container_runtime_endpoint else None
        path = f"{paths.checkpoints_dir(settings.root_dir)}/{self.name}.json"
        loss = "a restart may report an OOM kill twice or not at all"
        # Not synced: record numbers end with the node's boot.
        self._file = CheckpointFile(self, path, CHECKPOINT_VERSION, loss, deadline_s=DISK_S)
        self._boot = boot_id()
        self._start = policy.position(self._file.load(), self._boot)
        self._finder = KillFinder()
        self._caught_up = False
        self._sequence = self._start.sequence if self._start else 0
        self._waiting: deque[Kill] = deque(maxlen=MOST_WAITING)
        self._reporting = False
        self._kills = self._lost = 0
        self._problem = ""
        self._log: kernel_log.KernelLog | None = None
        try:
            self._log = kernel_log.KernelLog(kernel_log.open_log())
        except OSError as error:
            self._problem = f"cannot read {kernel_log.PATH}: {error.strerror}"
            log.warning("%s; OOM kills are not reported; run the agent where the kernel's log is", self._problem)

    def on_ready(self) -> None:
        """Read the log from its oldest record."""
        if self._log is not None:
            self._log.watch(self.bus, PAUSE_S, lambda: self.post(self._read, name="kernel log"))

    def describe(self) -> dict[str, Any]:
        """Return the numbers of kills and of lost records, and why the log cannot be read."""
        return {"kills": self._kills, "lost_records": self._lost, "record": self._sequence, "problem": self._problem}

    # Reading

    def _read(self) -> None:
        assert self._log is not None
        found: list[Kill] = []
        drained = False
        try:
            for _ in range(RECORDS_AT_ONCE):
                record = self._log.next_record()
                if record is None:
                    drained = True
                    break
                self._note_lost()
                kill = self._finder.feed(record)
                if kill is not None and policy.is_due(kill, self._start, caught_up=self._caught_up):
                    found.append(kill)
                self._sequence = max(self._sequence, record.sequence)
        except OSError as error:
            self._problem = f"cannot read {kernel_log.PATH}: {error}"
            log.error("%s; OOM kills are not reported any more; restart the actor", self._problem)
            self._log.stop()
            if found:
                self.spawn(self._take(found), "OOM kills")
            return
        first, self._caught_up = drained and not self._caught_up, self._caught_up or drained
        if found or (first and self._start is None):
            self.spawn(self._take(found), "OOM kills")
        if drained:
            self._log.resume()
        else:  # not resumed yet, so that no second read is queued
            self.post(self._read, name="kernel log")

    def _note_lost(self) -> None:
        assert self._log is not None
        if lost := self._log.lost:
            self._log.lost = 0
            self._lost += lost
            metrics.OOM_LOST_RECORDS.inc(by=lost)
            self._finder.lost()
            log.warning("%d records of the kernel's log were overwritten before they were read", lost)

    # Reporting

    async def _take(self, kills: list[Kill]) -> None:
        await self._file.save({"boot": self._boot, "sequence": self._sequence})
        now_us, now_ns = time.monotonic_ns() // 1000, time.time_ns()
        for kill in kills:
            self._kills += 1
            where = policy.place(kill.cgroup, self.settings.cgroup_driver, self.settings.cgroup_root)
            metrics.OOM_KILLS.inc("node" if kill.of_node else "cgroup", "pod" if where else "other")
            log.warning("the kernel killed process %r, pid %d, in cgroup %r", kill.process, kill.pid, kill.cgroup)
            age_s = policy.age_s(kill, now_us)
            if age_s > policy.MOST_AGE_S:
                continue
            if kill.of_node:
                happened_ns = now_ns - int(age_s * 1e9)
                self._record(ObjectReference(kind="Node"), policy.NODE_REASON, policy.node_message(kill), happened_ns)
            if where is not None:
                self._waiting.append(kill)
        if self._waiting and not self._reporting:
            self._reporting = True
            try:
                await self._report_pods()
            finally:
                self._reporting = False

    async def _report_pods(self) -> None:
        """Send the events of all waiting kills. Asks for all their pods at once."""
        for last in (*[False] * (RETRIES - 1), True):
            kills, self._waiting = list(self._waiting), deque(maxlen=MOST_WAITING)
            if not kills:
                return
            try:
                pods, unknown = await self._pods(kills)
            except ActorError as error:
                log.info("cannot ask for the pods of OOM kills: %s; retrying", error)
                self._waiting = deque([*kills, *self._waiting], maxlen=MOST_WAITING)
                await self.sleep(RETRY_S)
                continue
            names = await self._container_names(kills)
            for kill in kills:
                if self._uid(kill) in unknown:
                    self._waiting.append(kill)
                else:
                    self._report(kill, pods, names)
            if self._waiting and not last:
                await self.sleep(RETRY_S)
        if self._waiting:
            log.warning("cannot report %d OOM kills as events: pod_workers does not know the pods", len(self._waiting))
            self._waiting.clear()

    def _places(self, kills: list[Kill]) -> list[policy.Place]:
        found = (policy.place(one.cgroup, self.settings.cgroup_driver, self.settings.cgroup_root) for one in kills)
        return [where for where in found if where is not None]

    def _uid(self, kill: Kill) -> str:
        where = policy.place(kill.cgroup, self.settings.cgroup_driver, self.settings.cgroup_root)
        return where.uid if where is not None else ""

    async def _pods(self, kills: list[Kill]) -> tuple[dict[str, Pod], set[str]]:
        """Return the pods of kills by UID, and the UIDs of pods that pod_workers may know later."""
        uids = tuple({where.uid for where in self._places(kills)})
        answer = await self.peer("pod_workers").ask(ListPodWorkers(with_pods=True, uids=uids), WORKERS_S)
        absent = set(uids) - {worker.uid for worker in answer.pods}
        unknown = absent.intersection(answer.waiting) if answer.sources_ready else absent
        return {worker.uid: worker.pod for worker in answer.pods if worker.pod is not None}, unknown

    async def _container_names(self, kills: list[Kill]) -> dict[str, str]:
        """Return container ID to name; without the runtime's answer an event names no container."""
        if self._cri is None or not any(where.container_id for where in self._places(kills)):
            return {}
        try:
            return {one.id: one.labels.get(CONTAINER_NAME, "") for one in await self._cri.list_containers()}
        except (CriError, ActorError) as error:
            log.info("cannot list containers: %s; the events of OOM kills name none", error)
            return {}

    def _report(self, kill: Kill, pods: dict[str, Pod], names: dict[str, str]) -> None:
        where = policy.place(kill.cgroup, self.settings.cgroup_driver, self.settings.cgroup_root)
        if where is None or (pod := pods.get(where.uid)) is None:
            return  # a foreign or removed pod
        name = names.get(where.container_id, "")
        happened_ns = time.time_ns() - int(policy.age_s(kill, time.monotonic_ns() // 1000) * 1e9)
        message = policy.pod_message(kill, where, name)
        self._record(pod_reference(pod, name), policy.POD_REASON, message, happened_ns)

    def _record(self, involved: ObjectReference, reason: str, message: str, time_ns: int) -> None:
        text = message[:MAX_MESSAGE]
        event = RecordEvent(involved=involved, type="Warning", reason=reason, message=text, time_ns=time_ns)
        self.peer("events").tell(event)


ACTOR = Oom

"""Collects the metrics of all processes at each scrape and merges them.

All actors are asked at once, with a deadline of ANSWER_S. A silent one is shown with its last samples, and their age is
a metric. Concurrent scrapes share one collection. The counts of dead incarnations are in RUN_DIR/metrics.json, so that
no counter decreases when the server restarts. Runs in the server's loop.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from actors._base.messaging.futures import Future
from actors._base.shared import Shared
from actors._cgroup.hierarchy import hierarchy
from actors._host.files.checkpoint import CheckpointFile
from actors._host.machine import architecture
from actors._host.system import reported_version
from actors._metrics import agent, kubelet, process
from actors._metrics.merge import Merged, Samples, SourceSamples
from actors._metrics.registry import Family, Labels
from actors.server.base.peers import Peers
from actors.server.figures import processes
from actors.server.figures.processes import ProcessUse
from proto.agent.actor import GetMetrics, Metrics
from proto.agent.supervisor import ActorRow, ListActors
from proto.common import untrusted
from proto.node.stats import GetSummary
from proto.node.summary import Summary
from proto.wire.errors import ActorError

log = logging.getLogger(__name__)

ANSWER_S = 1.0
"""An actor that does not hang answers within a millisecond."""
SILENT_ANSWER_S = 0.1
"""Deadline for an actor that did not answer the last time."""
PROCESSES_S = 5.0
YOUNG_S = 0.5
"""Scrapes within this time of one another share a collection."""
DISKS_S = 60.0
"""Greatest age of the disk usage of logs and volumes, which needs directory walks."""
VERSION = 1

FAMILIES: tuple[Family, ...] = (*kubelet.REGISTRY, *agent.REGISTRY, *process.REGISTRY, *process.STARTED)
EVERYTHING = (*FAMILIES, *kubelet.PROBES)


class _Configuration(msgspec.Struct):
    """The part of RUN_DIR/configuration.json that is a metric."""

    features: tuple[tuple[str, str, bool], ...] = ()


class Collector:
    """State: the last samples of each process, the process tree, and the disk usage of logs and volumes."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._merged = Merged(EVERYTHING)
        self._shared: Shared[Samples] = Shared(peers.loop, self._collect, "metrics")
        path = os.path.join(peers.settings.run_dir, "metrics.json")
        loss = "counters will go back when the server restarts"
        self._file = CheckpointFile(peers, path, VERSION, loss, deadline_s=PROCESSES_S)
        self._tree: tuple[int, int] = (0, 0)
        self._silent: set[str] = set()
        self._summary: Future[Any] | None = None
        self._summary_asked = -DISKS_S
        self.rows: tuple[ActorRow, ...] = ()
        self.use: dict[int, ProcessUse] = {}

    async def samples(self) -> Samples:
        """The samples of every family that has some."""
        return await self._shared.get(YOUNG_S)

    async def processes(self) -> tuple[tuple[ActorRow, ...], dict[int, ProcessUse]]:
        """The process tree at most YOUNG_S old, and each process's usage by pid."""
        await self._shared.get(YOUNG_S)
        return self.rows, self.use

    async def _collect(self) -> Samples:
        await self._look_at_tree()
        asked = {
            row.name: self._peers.ask(row.name, GetMetrics(), SILENT_ANSWER_S if row.name in self._silent else ANSWER_S)
            for row in self._actors()
            if row.state == "ready"
        }
        self.use = await self._processes()
        # Before the answers are awaited: the counts of a dead incarnation are stored even if this process dies next.
        reborn = [self._merged.replaced(row.name, row.incarnation) for row in self._actors()]
        reborn += [self._take_process(row) for row in self.rows if row.pid in self.use]
        now = time.monotonic()
        for row in self._actors():
            if row.name in asked:
                reborn.append(await self._take_answer(row, asked[row.name], now))
        if any(reborn):
            await self._file.save({"agent": self._tree, "retired": self._merged.saved()})
        self._set_tree_metrics(now)
        self._set_node_metrics()
        await self._set_features()
        self._set_disk_metrics()
        serving = {row.name for row in self._actors() if row.state == "ready"}
        found = self._merged.samples({*serving, *(_of_process(row) for row in self.rows if row.pid)})
        # This process's own answer came before the calls above, so it has the previous values of these families.
        return found | {family.name: family.take() for family in _SET_HERE}

    # The processes

    def _actors(self) -> Iterable[ActorRow]:
        return (row for row in self.rows if row.name not in ("supervisor", "forkserver"))

    async def _look_at_tree(self) -> None:
        try:
            rows = (await self._peers.ask("supervisor", ListActors(with_memory=False), ANSWER_S)).rows
        except ActorError as error:
            log.warning("cannot list the processes: %s; using the list of the collection before", error)
            return
        self.rows = rows
        tree = (rows[0].pid, rows[0].incarnation)
        if tree != self._tree:
            self._tree = tree
            self._merged.restore(await self._kept(tree))

    async def _kept(self, tree: tuple[int, int]) -> list[Any]:
        """The counts of this agent's dead incarnations; none when the file is of another agent."""
        data = await self._peers.blocking(PROCESSES_S, self._file.load)
        return data["retired"] if isinstance(data, dict) and tuple(data.get("agent", ())) == tree else []

    async def _processes(self) -> dict[int, ProcessUse]:
        pids = [row.pid for row in self.rows if row.pid]
        try:
            return await self._peers.blocking(PROCESSES_S, processes.use_of, pids)
        except ActorError as error:
            log.warning("cannot read the usage of the agent's processes: %s; this answer lacks it", error)
            return {}

    # Answers

    async def _take_answer(self, row: ActorRow, answer: Future[Metrics], now: float) -> bool:
        try:
            found = await answer
        except ActorError as error:
            if row.name not in self._silent:
                log.info("%s does not answer with its metrics: %s; showing its last ones", row.name, error)
            self._silent.add(row.name)
            return False
        self._silent.discard(row.name)
        return self._merged.take(row.name, found.incarnation, found.samples, now)

    def _take_process(self, row: ActorRow) -> bool:
        use, name = self.use[row.pid], (row.name,)
        samples: SourceSamples = {
            agent.ACTOR_CPU.name: ((name, (use.cpu_s,)),),
            agent.ACTOR_MEMORY.name: ((name, (float(use.pss_bytes),)),),
            process.CPU_SECONDS.name: (((), (use.cpu_s,)),),
            process.MEMORY.name: (((), (float(use.pss_bytes),)),),
            process.VIRTUAL_MEMORY.name: (((), (float(use.virtual_bytes),)),),
            process.OPEN_FDS.name: (((), (float(use.open_fds),)),),
        }
        return self._merged.take(_of_process(row), row.incarnation, samples, time.monotonic())

    def _set_tree_metrics(self, now: float) -> None:
        rows = self.rows
        agent.ACTOR_UP.replace(((row.name, row.state), float(row.state == "ready")) for row in rows)
        agent.ACTOR_RESTARTS.replace(((row.name,), row.restarts) for row in rows)
        agent.ACTOR_DEATHS.replace(
            ((row.name, cause, call), count) for row in rows for cause, call, count in row.deaths
        )
        agent.ACTOR_INCARNATION.replace(((row.name,), row.incarnation) for row in rows)
        agent.ACTOR_UPTIME.replace(((row.name,), row.uptime_s) for row in rows)
        ages = ((row.name, self._merged.age(row.name, now)) for row in self._actors())
        agent.ACTOR_SILENT.replace(((name,), age) for name, age in ages if age is not None)

    def _set_node_metrics(self) -> None:
        settings = self._peers.settings
        kubelet.NODE_NAME.set(1, settings.node_name)
        kubelet.CGROUP_VERSION.set(2 if hierarchy().unified else 1)
        kubelet.BUILD_INFO.set(1, *build_info(settings.kubelet_version))
        fds, address_space = processes.limits()
        process.MAX_FDS.set(fds)
        process.VIRTUAL_MEMORY_MAX.set(address_space)
        received, sent = processes.host_traffic()
        process.RECEIVED.replace([((), received)])
        process.SENT.replace([((), sent)])
        supervisor = self.use.get(self.rows[0].pid) if self.rows else None
        if supervisor is not None:
            process.START_TIME.set(processes.start_time(supervisor.started_ticks))

    async def _set_features(self) -> None:
        path = Path(self._peers.settings.run_dir, "configuration.json")
        try:
            found = untrusted.decode_json(await self._peers.blocking(PROCESSES_S, path.read_bytes), _Configuration)
        except (OSError, ActorError, msgspec.DecodeError) as error:
            log.debug("cannot read the feature gates: %s", error)
            return
        kubelet.FEATURE_ENABLED.replace(((name, stage), float(on)) for name, stage, on in found.features)

    def _set_disk_metrics(self) -> None:
        """Disk usage of logs and volumes. One scrape asks stats for it, a later one shows it: walks take too long."""
        now = time.monotonic()
        if self._summary is not None and self._summary.done():
            try:
                summary = untrusted.decode_json(self._summary.result(0).data, Summary)
                kubelet.CONTAINER_LOG_BYTES.replace(_logs(summary))
                for family, field in kubelet.VOLUME_STATS:
                    family.replace(_claims(summary, field))
            except (ActorError, msgspec.DecodeError) as error:
                log.debug("cannot read the disk usage of logs and volumes: %s", error)
            self._summary = None
        if self._summary is None and now - self._summary_asked >= DISKS_S:
            self._summary_asked = now
            self._summary = self._peers.ask("stats", GetSummary(max_age_s=DISKS_S), DISKS_S)


_SET_HERE: tuple[Family, ...] = (
    agent.ACTOR_UP,
    agent.ACTOR_RESTARTS,
    agent.ACTOR_DEATHS,
    agent.ACTOR_INCARNATION,
    agent.ACTOR_UPTIME,
    agent.ACTOR_SILENT,
    kubelet.NODE_NAME,
    kubelet.CGROUP_VERSION,
    kubelet.BUILD_INFO,
    kubelet.FEATURE_ENABLED,
    kubelet.CONTAINER_LOG_BYTES,
    *(family for family, _ in kubelet.VOLUME_STATS),
    process.MAX_FDS,
    process.VIRTUAL_MEMORY_MAX,
    process.RECEIVED,
    process.SENT,
    process.START_TIME,
)
"""Metrics that this process sets for others. Its own counts come with its own answer."""


def build_info(chosen_version: str) -> tuple[str, ...]:
    """The labels of kubernetes_build_info. `chosen_version` is kubelet_version of Settings."""
    version = reported_version(chosen_version)
    major, minor = version.removeprefix("v").split(".")[:2]
    return (major, minor, version, "", "", "", "", f"CPython {sys.version.split()[0]}", f"linux/{architecture()}")


def _claims(summary: Summary, field: str) -> Iterator[tuple[Labels, float]]:
    for pod in summary.pods:
        for volume in pod.volume:
            value = getattr(volume, field)
            if volume.pvc_ref is not None and value is not None:
                yield (volume.pvc_ref.namespace, volume.pvc_ref.name), value


def _logs(summary: Summary) -> Iterator[tuple[Labels, float]]:
    for pod in summary.pods:
        ref = pod.pod_ref
        for one in pod.containers:
            if one.logs is not None and one.logs.used_bytes is not None:
                yield (ref.uid, ref.namespace, ref.name, one.name), one.logs.used_bytes


def _of_process(row: ActorRow) -> str:
    return f"process {row.name}"

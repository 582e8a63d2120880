"""The agent on the same pods: manifests in, until all are ready; manifests out, until nothing is left of them."""

import contextlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from actors._cri.client import Cri
from actors._cri.errors import CriError
from proto.pods.pod_columns import is_ready
from proto.pods.status import ListPods
from proto.v1 import Pod
from proto.wire.errors import ActorError, ProtocolError
from supervisor.sockets.client import Client
from tests.bench.harness import pods, usage
from tests.cgroups import remove_cgroups

DEADLINE_S = 180.0
LONGEST_WAIT_S = 0.5
"""Without a change, such as before the first."""
STARTED, REMOVED = "PodStarted", "RemovePod"
"""Messages to status: the last of a pod's start but one, and the last of its end. Others are not followed: reporting
them would count as the agent's own work."""
LOOK_S = 0.005
"""Between the last such message and what it says to come."""
PLAIN = pods.manifest
_COMPLAINT = re.compile(r"[WE]\d{4} (?!.*killed by SIGKILL)")  # as proto.common.logs writes it


@dataclass
class AgentRun:
    """Seconds from the change of the manifests, and what the agent used meanwhile."""

    pods: int
    start_s: float
    """Until status shows every pod Running and ready."""
    stop_s: float
    """Until status shows none and the runtime has no sandbox."""
    cpu_start_s: float
    cpu_stop_s: float
    cpu_by_process_s: dict[str, float] = field(default_factory=dict)
    pss_mb: float = 0.0
    """With all pods running, over all processes."""
    pss_by_process_mb: dict[str, float] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    """Warnings and errors in the agent's log, save of the processes that the benchmark killed."""


class Agent:
    """One `supervisor start` with directories of its own. A context manager."""

    def __init__(self, endpoint: str, directory: Path, *, settle_s: float = 1.0) -> None:
        """`settle_s`: the wait after its start. What it does then is not a pod's cost."""
        self.directory = Path(tempfile.mkdtemp(prefix="agent-", dir=directory))
        self.manifests = self.directory / "manifests"
        self.manifests.mkdir()
        self.log = self.directory / "agent.log"
        self.client = Client(self.directory / "run")
        self.started = self.in_service = 0.0
        """Monotonic seconds of the last start, and of every actor being ready after it."""
        self._endpoint, self._settle_s = endpoint, settle_s
        self._changed = threading.Event()
        """Such a message has come since the last look."""
        self._taken: Counter[str] = Counter()
        """Messages of status so far, by type."""

    def __enter__(self) -> "Agent":
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        time.sleep(self._settle_s)
        return self

    def start(self) -> None:
        """Start the supervisor, and wait until every actor is ready."""
        self.started = time.monotonic()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.until(self._in_service, "in service", poll_s=0.05)
        self.in_service = time.monotonic()
        threading.Thread(target=self._follow_statuses, daemon=True).start()

    def kill(self) -> None:
        """SIGKILL to the supervisor. Its actors end by themselves, and its pods run on."""
        self.process.kill()
        self.process.wait()
        self.client.close()

    def _command(self) -> list[str]:
        flags = {
            "run-dir": self.client.run_dir,
            "root-dir": self.directory / "root",
            "pod-manifest-path": self.manifests,
            "pod-logs-dir": self.directory / "pods",
            "container-logs-dir": self.directory / "containers",
            "container-runtime-endpoint": self._endpoint,
            "cgroup-root": f"/{self.directory.name}",
            "hostname-override": "bench",
            "max-pods": 1000,
            "tune-kernel": "false",
            "healthz-port": 0,
        }
        return [sys.executable, "-P", "-m", "supervisor", "start", *(f"--{k}={v}" for k, v in flags.items())]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        if kind is not None:
            _remove_pods(self._endpoint)
        remove_cgroups(self.directory.name)

    def _end(self) -> None:
        self.client.close()
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _follow_statuses(self) -> None:
        """Note each end of a pod's start and of its removal. It ends with the agent."""
        with Client(Path(self.client.run_dir)) as client, contextlib.suppress(ActorError, ProtocolError):
            for tapped in client.tap("status", (STARTED, REMOVED)):
                self._taken[tapped.type] += 1
                self._changed.set()

    def _in_service(self) -> bool:
        rows = self.client.actors()[2:]
        return bool(rows) and all(row.state == "ready" for row in rows) and self.pods() is not None

    def pods(self) -> tuple[Pod, ...]:
        """Return the output of `supervisor pods`."""
        return self.client.ask("status", ListPods()).pods

    def until(self, condition: Callable[[], bool], what: str, *, poll_s: float, deadline_s: float = DEADLINE_S) -> None:
        """Wait for a condition. Raises RuntimeError with the end of the agent's log."""
        self._until(condition, what, lambda: time.sleep(poll_s), deadline_s)

    def total_after(self, kind: str, count: int) -> int:
        """All messages of a type, once so many more have come. To be asked for before what causes them."""
        return self._taken[kind] + count

    def until_pods(self, condition: Callable[[], bool], what: str, kind: str, total: int) -> None:
        """Wait for a condition of the pods' statuses, before which there are so many messages of a type in all.

        A look asks the agent, which is a load, so it looks after these messages: each half second before.
        """

        def wait() -> None:
            if self._taken[kind] >= total:
                time.sleep(LOOK_S)
            end = time.monotonic() + LONGEST_WAIT_S
            while self._taken[kind] < total and time.monotonic() < end:
                self._changed.wait(max(0.0, end - time.monotonic()))
                self._changed.clear()

        self._until(condition, what, wait, DEADLINE_S)

    def _until(self, condition: Callable[[], bool], what: str, wait: Callable[[], None], deadline_s: float) -> None:
        deadline = time.monotonic() + deadline_s
        while True:
            with contextlib.suppress(ActorError, ProtocolError):
                if condition():
                    return
            if self.process.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join(self.log.read_text().splitlines()[-20:])
                raise RuntimeError(f"the agent is not {what} after {deadline_s:g} s; the end of {self.log}:\n{tail}")
            wait()

    def add(self, count: int, manifest: Callable[[str], str] = PLAIN) -> None:
        """Put `count` manifests, by their pods' names, in place and wait until all are ready."""
        total = self.total_after(STARTED, count)
        staged = self.directory / "staged"
        staged.mkdir(exist_ok=True)
        for path in pods.write(staged, count, manifest):
            path.rename(self.manifests / path.name)
        self.until_pods(lambda: self._ready() >= count, f"running all of {count} pods", STARTED, total)

    def _ready(self) -> int:
        return sum(map(is_ready, self.pods()))

    def remove_all(self, cri: Cri) -> None:
        """Take the manifests away and wait until the pods are gone, from the agent and from the runtime."""
        total = self.total_after(REMOVED, len(list(self.manifests.iterdir())))
        for path in self.manifests.iterdir():
            path.unlink()
        self.until_pods(lambda: not self.pods(), "rid of its pods", REMOVED, total)
        self.until(lambda: not cri.list_pod_sandbox().result(), "done with its sandboxes", poll_s=0.05)


def _remove_pods(endpoint: str) -> None:
    """Remove the pods of a failed measurement from its private runtime, and so from the agent's cgroups."""
    with contextlib.closing(Cri(endpoint)) as cri, contextlib.suppress(CriError):
        for sandbox in cri.list_pod_sandbox().result():
            cri.stop_pod_sandbox(sandbox.id).result()
            cri.remove_pod_sandbox(sandbox.id).result()


def measure(
    cri: Cri, directory: Path, count: int, with_all_running: Callable[[Agent], None] = lambda _: None, times: int = 1
) -> AgentRun:
    """One agent, `count` pods up and down, so many times; the medians of these.

    `with_all_running` is called in between the last time, and not counted. The figures by process are of that time.
    """
    with Agent(cri.endpoint, directory) as agent:
        runs = [_up_and_down(agent, cri, count, lambda _: None) for _ in range(times - 1)]
        runs.append(_up_and_down(agent, cri, count, with_all_running))
    complaints = [line for line in agent.log.read_text().splitlines() if _COMPLAINT.match(line)]
    return replace(runs[-1], **medians(runs, "start_s", "stop_s", "cpu_start_s", "cpu_stop_s"), complaints=complaints)


def medians(runs: Sequence[Any], *names: str) -> dict[str, float]:
    """By name of a field, the median of its values in these runs."""
    return {name: statistics.median(getattr(run, name) for run in runs) for name in names}


def _up_and_down(agent: Agent, cri: Cri, count: int, with_all_running: Callable[[Agent], None]) -> AgentRun:
    pid = agent.process.pid
    cpu_0, began = usage.cpu_s(pid), time.monotonic()
    agent.add(count)
    start_s, cpu_1 = time.monotonic() - began, usage.cpu_s(pid)
    pss = usage.pss_mb(pid)
    with_all_running(agent)
    cpu_2, began = usage.cpu_s(pid), time.monotonic()
    agent.remove_all(cri)
    stop_s, cpu_3 = time.monotonic() - began, usage.cpu_s(pid)
    up, down = usage.difference(cpu_1, cpu_0), usage.difference(cpu_3, cpu_2)
    return AgentRun(
        pods=count,
        start_s=start_s,
        stop_s=stop_s,
        cpu_start_s=sum(up.values()),
        cpu_stop_s=sum(down.values()),
        cpu_by_process_s={name: round(up.get(name, 0) + down.get(name, 0), 3) for name in up | down},
        pss_mb=sum(pss.values()),
        pss_by_process_mb={name: round(value, 1) for name, value in pss.items()},
    )

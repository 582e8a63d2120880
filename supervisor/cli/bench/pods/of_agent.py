"""The same pods through the agent: manifests in, until all are ready; manifests out, until nothing is left of them."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import zmq

from proto.pods.config import Relist
from proto.pods.pod_columns import is_ready, status
from proto.v1 import Pod
from proto.wire.errors import ActorError, ProtocolError
from supervisor.cli.bench.pods import plan as plans
from supervisor.cli.bench.pods.bare import sandboxes
from supervisor.cli.bench.pods.ending import POLL_S, Ending
from supervisor.cli.bench.pods.manifests import Manifests
from supervisor.cli.bench.pods.plan import Plan
from supervisor.cli.common import list_pods
from supervisor.cli.errors import CommandError
from supervisor.sockets.client import Client

if TYPE_CHECKING:
    from actors._cri.client import Cri

UP_S = GONE_S = 180.0
CLEAR_S = 60.0
RELIST_S = 10.0
LONGEST_WAIT_S = 0.5
"""Between two looks at the pods' statuses without a message, such as when status restarts."""
STARTED, REMOVED, CHANGED = "PodStarted", "RemovePod", "SetPodStatus"
"""Messages to status: the last of a pod's start but one, the last of its end, and any change."""


class Taken:
    """Counts what status handles, from its tap. A look at all statuses is a load, so `wait` says when to look."""

    def __init__(self, run_dir: Path) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        for kind in (STARTED, REMOVED, CHANGED):
            self._socket.subscribe(kind)
        self._socket.connect(f"ipc://{run_dir}/status.tap")
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Taken:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context.destroy(linger=0)

    def wait(self, kind: str, count: int) -> None:
        """Return after any message once there were `count` of `kind`, and after half a second."""
        end = time.monotonic() + LONGEST_WAIT_S
        while (left_s := end - time.monotonic()) > 0 and self._socket.poll(int(1000 * left_s) + 1):
            while self._socket.poll(0):
                self.counts[self._socket.recv_multipart()[0].decode(errors="replace")] += 1
            if self.counts[kind] >= count:
                return


class AgentPods:
    """The static pods of one plan. `clear` removes manifests and waits for the pods' end, also after an error."""

    def __init__(self, client: Client, cri: Cri, manifests: Manifests, plan: Plan, ending: Ending) -> None:
        self._client = client
        self._cri = cri
        self._manifests = manifests
        self._plan = plan
        self._ending = ending

    def measure(self) -> tuple[float, float]:
        """Start and end all pods; seconds of each. Raises CommandError."""
        with Taken(self._client.run_dir) as taken:
            self._look()  # an answer of status, so that the tap's subscription has most likely arrived
            up_s = self._start(taken)
            self._ending.pause(plans.SETTLE_S)
            return up_s, self._stop(taken)

    def _start(self, taken: Taken) -> float:
        wanted, began = taken.counts[STARTED] + self._plan.pods, time.monotonic()
        for name in self._plan.names():
            self._manifests.add(name, plans.manifest(self._plan, name))
        self._ending.until(self._ready, UP_S, self._not_ready, lambda: taken.wait(STARTED, wanted))
        return time.monotonic() - began

    def _stop(self, taken: Taken) -> float:
        wanted, began = taken.counts[REMOVED] + self._plan.pods, time.monotonic()
        failed: list[str] = []
        self._manifests.remove_all(failed.append)
        if failed:
            raise CommandError(failed[0])
        self._ending.until(lambda: self._look() == [], GONE_S, self._not_gone, lambda: taken.wait(REMOVED, wanted))
        self._ending.until(lambda: not self._sandboxes(), GONE_S, self._not_gone)
        return time.monotonic() - began

    def clear(self) -> list[str]:
        """Remove the manifests and wait until their pods are gone; a line for each thing that stays."""
        left: list[str] = []
        self._manifests.remove_all(left.append)
        with suppress(ActorError, ProtocolError):  # a manifest that config is reading becomes a pod after its removal
            self._client.ask("config", Relist(), RELIST_S)
        deadline = time.monotonic() + CLEAR_S
        while not left and (problem := self._what_is_left()):
            if not self._client.alive():
                left.append(f"{problem}; the agent has ended, and its next start removes them")
            elif time.monotonic() > deadline:
                left.append(f"{problem}; the agent removes them, see `supervisor pods` and `supervisor why pod/NAME`")
            time.sleep(POLL_S)
        return left

    def _what_is_left(self) -> str:
        """Empty when nothing is left. Without an agent the runtime's list decides."""
        try:
            pods = self._look()
        except CommandError:
            pods = []
        if pods or pods is None:
            return f"{len(pods or ()) or 'some'} pods of the benchmark may be left"
        try:
            found = self._sandboxes()
        except CommandError as error:
            return f"sandboxes of the benchmark may be left: {error.message}"
        return f"sandboxes of the benchmark are left: {', '.join(found)}" if found else ""

    # Looks

    def _look(self) -> list[Pod] | None:
        """The plan's pods; None while status restarts. Raises CommandError when the agent has ended."""
        try:
            return [pod for pod in list_pods(self._client) if pod.metadata.labels.get(plans.LABEL) == self._plan.id]
        except (ActorError, ProtocolError) as error:
            if self._client.alive():
                return None
            raise CommandError(f"the agent has ended: {error}") from error

    def _sandboxes(self) -> list[str]:
        return sandboxes(self._cri, plans.LABEL, self._plan.id)

    def _ready(self) -> bool:
        """Raises CommandError for a pod that the node has rejected."""
        pods = self._look() or []
        for pod in pods:
            if pod.status.phase == "Failed":
                why = pod.status.message or pod.status.reason
                raise CommandError(f"cannot measure pods: {pod.metadata.name} failed: {why}")
        return sum(map(is_ready, pods)) >= self._plan.pods

    def _not_ready(self) -> str:
        pods = self._look() or []
        waiting = [pod for pod in pods if not is_ready(pod)]
        first = f"; {waiting[0].metadata.name} is {status(waiting[0])}" if waiting else ""
        return f"cannot measure pods: {len(pods) - len(waiting)} of {self._plan.pods} are ready{first}"

    def _not_gone(self) -> str:
        return f"cannot measure pods: {self._what_is_left() or 'they were not gone'}"

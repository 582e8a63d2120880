"""Graceful node shutdown: ends the pods by priority and writes their last status before the machine goes down.

It starts when systemd-logind announces a shutdown. `policy` decides the order and the grace periods. Within its period
a group also waits until its volumes are unmounted, since the CSI driver may be a pod of the next group. Source:
pkg/kubelet/nodeshutdown/nodeshutdown_manager.go of Kubernetes 1.36 (WaitForAllPodsUnmount).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from actors._base import Actor, Task
from actors._events.recorder import Recorder
from actors._host.node import shutdown as words
from actors.node.shutdown import policy
from actors.node.shutdown.logind import Logind
from actors.node.shutdown.policy import Group, PodEnd, Stage
from actors.node.shutdown.times import ShutdownTimes
from proto.pods.pod_workers import EvictPod, ListPodWorkers, PodWorkerState, PodWorkerStates, SetNodeShutdown
from proto.pods.status import Flush
from proto.wire.errors import ActorError, Refused

log = logging.getLogger(__name__)

ASK_S = 5.0
LOOK_S = 0.2
"""Poll interval of the pods' progress, during a shutdown only."""
SETTLE_S = 10.0
"""Longest wait until a pod_workers that has just started has read all sources."""
SOON_S = 3.0
"""Longest wait, after that, for the workers of its pods."""
FLUSH_S = 5.0
KILLED_S = 3.0
"""Longest wait after the last grace period. Pods that are killed at its end get their last status in this time."""


class Shutdown:
    """State: whether a shutdown is under way, and whether the lock that delays it is held."""

    def __init__(self, actor: Actor, events: Recorder, changed: Callable[[], None]) -> None:
        """`changed` is called when the Node's condition Ready changes."""
        self._actor, self._events, self._changed = actor, events, changed
        self._graces = actor.settings.shutdown_grace
        self._task: Task[None] | None = None
        self._problem = "not connected to systemd-logind yet"
        self.under_way = False
        self._until = 0.0
        """Monotonic end of the whole period, while pods end."""
        self._times = ShutdownTimes(actor)
        self._logind = Logind(
            policy.total_s(self._graces),
            lambda begins, lock: actor.post(self._begins, begins, lock, name="shutdown"),
            lambda problem: actor.post(self._set_problem, problem, name="shutdown lock"),
        )

    def start(self) -> None:
        """Start to hold the inhibitor lock, and show the times of the last shutdown."""
        self._logind.start()
        self._actor.spawn(self._times.load(), "times of the last shutdown")

    def describe(self) -> dict[str, Any]:
        """State for the console: a shutdown under way, and why the lock is not held."""
        return {"under_way": self.under_way, "lock_problem": self._problem}

    def tell_pod_workers(self) -> None:
        """Tell pod_workers whether to admit pods."""
        self._actor.peer("pod_workers").tell(SetNodeShutdown(shutting_down=self.under_way))

    def _set_problem(self, problem: str) -> None:
        if problem != self._problem:
            level, text = (logging.WARNING, problem) if problem else (logging.INFO, "a shutdown will wait for the pods")
            log.log(level, "%s", text)
        self._problem = problem

    def _begins(self, begins: bool, lock: int) -> None:
        if begins == self.under_way:
            return
        self.under_way = begins
        what = "event" if begins else "cancellation"
        log.warning("shutdown of the machine: %s", what)
        self._events.node("Normal", "Shutdown", f"Shutdown manager detected shutdown {what}")
        self.tell_pod_workers()
        self._changed()
        if self._task is not None:
            self._task.cancel()
        self._task = self._actor.spawn(self._end_pods(lock), "end pods") if begins else None

    async def _end_pods(self, lock: int) -> None:
        """End the pods, then release the lock.

        `lock` is the number of the lock to release: a cancellation that this actor does not know of yet has taken
        another one, which stays.
        """
        until = time.monotonic() + policy.total_s(self._graces)
        await self._times.begin()
        await self._end_groups(until)
        await self._flush()
        await self._times.end()
        log.warning("pods have ended: the machine may go down")
        self._logind.release(lock)

    async def _end_groups(self, until: float) -> None:
        """End the pods group by group, until this monotonic time.

        Pods are listed again after each group: pod_workers may have been restarted, and know of more.
        """
        self._until = until
        rows = await self._first_rows(until)
        ended: set[str] = set()
        left: set[str] = set()
        while groups := policy.groups(self._graces, [row for uid, row in rows.items() if uid not in ended]):
            left |= await self._end(groups[0], until - sum(later.grace_s for later in groups[1:]))
            ended |= {pod.uid for pod in groups[0].pods}
            workers = await self._workers(with_pods=True)
            if workers is not None:
                rows |= {row.uid: row for row in workers.pods}
        await self._wait(left, time.monotonic() + KILLED_S, policy.running)

    async def _first_rows(self, until: float) -> dict[str, PodWorkerState]:
        """List the pods, by UID, once pod_workers has read its sources. The wait is part of the period until `until`.

        At most SETTLE_S and SOON_S, and parts of the grace of the lowest priority, which pods that are known need.
        While none is known, up to half of the period. Empty when there is no answer until the period's end.
        """
        grace_s, now = policy.lowest_grace_s(self._graces), time.monotonic()
        settled_by, none_by = now + min(SETTLE_S, grace_s / 2), now + min(SETTLE_S, (until - now) / 2)
        while True:
            workers = await self._workers(with_pods=True)
            now = time.monotonic()
            if workers is not None:
                if workers.sources_ready:
                    settled_by = min(settled_by, now + min(SOON_S, grace_s / 4))
                if policy.is_settled(workers) or now >= (settled_by if workers.pods else none_by):
                    return {row.uid: row for row in workers.pods}
            elif now >= until:
                log.error("cannot end the pods before the machine goes down: pod_workers does not answer")
                return {}
            await self._actor.sleep(LOOK_S)

    def _ask_s(self) -> float:
        """Seconds to wait for an answer, so that a hung pod_workers does not prolong the whole period."""
        return min(ASK_S, max(LOOK_S, self._until - time.monotonic()))

    async def _workers(self, *, with_pods: bool = False) -> PodWorkerStates | None:
        """List the pods of pod_workers. None without an answer: it may be restarting."""
        try:
            return await self._actor.peer("pod_workers").ask(ListPodWorkers(with_pods=with_pods), self._ask_s())
        except ActorError as error:
            log.info("cannot list the pods: %s", error)
            return None

    async def _end(self, group: Group, latest: float) -> set[str]:
        """End a group, and wait until its pods are released, at most until `latest`.

        Return the UIDs of pods that still run.
        """
        log.warning("ending %d pods of priority %d and up within %d s", len(group.pods), group.priority, group.grace_s)
        began = time.monotonic()
        deadline = max(began, min(began + group.grace_s, latest))
        by_uid = {pod.uid: pod for pod in group.pods}

        async def end(uid: str) -> bool:
            grace_s = policy.rest_s(min(by_uid[uid].grace_s, deadline - began), began, time.monotonic())
            return await self._ask_to_end(by_uid[uid], grace_s)

        for uid in by_uid:
            if not await end(uid):
                break
        stages = await self._wait(set(by_uid), deadline, set, end)
        left = policy.running(stages)
        for uids, problem in ((left, "pods did not end"), (stages.keys() - left, "volumes were not unmounted")):
            if uids:
                names = ", ".join(pod.name for pod in group.pods if pod.uid in uids)
                log.warning("%s in time: %s", problem, names)
        return left

    async def _ask_to_end(self, pod: PodEnd, grace_s: int) -> bool:
        """Ask pod_workers to end a pod. False without an answer."""
        request = EvictPod(
            pod_uid=pod.uid, reason=words.TERMINATED, message=words.TERMINATED_MESSAGE, grace_period_s=grace_s,
            with_machine=pod.static,
        )  # fmt: skip
        try:
            await self._actor.peer("pod_workers").ask(request, self._ask_s())
        except ActorError as error:
            log.warning("cannot end pod %s: %s", pod.name, error)
            return isinstance(error, Refused)
        return True

    async def _wait(
        self,
        uids: set[str],
        deadline: float,
        awaited: Callable[[dict[str, Stage]], set[str]],
        end: Callable[[str], Coroutine[Any, None, bool]] | None = None,
    ) -> dict[str, Stage]:
        """Wait until `awaited` selects none of these pods. Return UID to stage of pods that are not released.

        `end` asks again for a pod that is to run: a restarted pod_workers does not know that a static pod ends. It
        returns False without an answer; the next look follows then.
        """
        stages: dict[str, Stage] = dict.fromkeys(uids, "sync")
        while awaited(stages) and time.monotonic() < deadline:
            await self._actor.sleep(LOOK_S)
            workers = await self._workers()
            if workers is None:
                continue
            stages = policy.unreleased(stages, workers)
            for uid in [row.uid for row in workers.pods if stages.get(row.uid) == "sync"]:
                if end is not None and not await end(uid):
                    break
        return stages

    async def _flush(self) -> None:
        """Wait until the API server has every pod's status, at most FLUSH_S."""
        try:
            left = (await self._actor.peer("status").ask(Flush(timeout_s=FLUSH_S), FLUSH_S + ASK_S)).unsaid
        except ActorError as error:
            log.warning("cannot wait for the last statuses of pods: %s", error)
        else:
            if left:
                log.warning("cannot write the last status of %d pods to the API server in time", left)

"""Graceful node shutdown: pods are ended by priority before the machine goes down, and their last status is told first.

Covers what is done when systemd-logind says that a shutdown begins. Who ends when is `shutdown_policy`'s.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from actors._base import Actor, Task
from actors._base.messaging.tasks import Cancelled
from actors._events.recorder import Recorder
from actors._host.node import shutdown as words
from actors._metrics import kubelet as metrics
from actors.node import shutdown_policy as policy
from actors.node.logind import Logind
from actors.node.shutdown_policy import Group
from proto.pods.pod_workers import EvictPod, ListPodWorkers, SetNodeShutdown
from proto.pods.status import Flush
from proto.wire.errors import ActorError

log = logging.getLogger(__name__)

ASK_S = 5.0
LOOK_S = 0.2
"""Between two looks at how far the pods are; only while the machine is going down."""
FLUSH_S = 5.0


class Shutdown:
    """State: whether a shutdown is under way, and whether the lock that delays it is held."""

    def __init__(self, actor: Actor, events: Recorder, changed: Callable[[], None]) -> None:
        """`changed`: the Node's condition Ready is another."""
        self._actor, self._events, self._changed = actor, events, changed
        self._graces = actor.settings.shutdown_grace
        self._task: Task[None] | None = None
        self._problem = "not asked yet"
        self.under_way = False
        self._logind = Logind(
            policy.total_s(self._graces),
            lambda begins, lock: actor.post(self._begins, begins, lock, name="shutdown"),
            lambda problem: actor.post(self._say, problem, name="shutdown lock"),
        )

    def start(self) -> None:
        """Take the lock."""
        self._logind.start()

    def describe(self) -> dict[str, Any]:
        """For a console."""
        return {"under_way": self.under_way, "lock_problem": self._problem}

    def tell_pod_workers(self) -> None:
        """True when pods may begin."""
        self._actor.peer("pod_workers").tell(SetNodeShutdown(shutting_down=self.under_way))

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            log.log(logging.WARNING if problem else logging.INFO, "%s", problem or "a shutdown waits for the pods")
        self._problem = problem

    def _begins(self, begins: bool, lock: int) -> None:
        if begins == self.under_way:
            return
        self.under_way = begins
        if begins:
            metrics.SHUTDOWN_BEGAN.set(time.time())
        what = "event" if begins else "cancellation"
        log.warning("shutdown of the machine: %s", what)
        self._events.node("Normal", "NodeShutdown", f"Shutdown manager detected shutdown {what}")
        self.tell_pod_workers()
        self._changed()
        if self._task is not None:
            self._task.cancel()
        self._task = self._actor.spawn(self._end_pods(lock), "end pods") if begins else None

    async def _end_pods(self, lock: int) -> None:
        """All of them, one group after the other; then the machine may go, whatever came of it. Where the shutdown is
        called off just then, and we have yet to hear of it, another lock is there already and stays."""
        try:
            for group in policy.groups(self._graces, await self._pods()):
                await self._end(group)
            await self._flush()
        except Cancelled:
            raise  # called off: the lock has been taken anew
        except ActorError as error:
            log.error("cannot end the pods before the machine goes down: %s", error)
        metrics.SHUTDOWN_ENDED.set(time.time())
        log.warning("the pods are ended: the machine may go down")
        self._logind.release(lock)

    async def _pods(self, *, with_pods: bool = True) -> Any:
        """From pod_workers; patiently, as it may be restarting just now."""
        deadline = time.monotonic() + ASK_S
        while True:
            try:
                ask = ListPodWorkers(with_pods=with_pods)
                return (await self._actor.peer("pod_workers").ask(ask, ASK_S)).pods
            except ActorError:
                if time.monotonic() > deadline:
                    raise
                await self._actor.sleep(LOOK_S)

    async def _end(self, group: Group) -> None:
        log.warning("ending %d pods of priority %d and up within %d s", len(group.pods), group.priority, group.grace_s)
        deadline = time.monotonic() + group.grace_s
        for pod in group.pods:
            request = EvictPod(
                pod_uid=pod.uid, reason=words.TERMINATED, message=words.TERMINATED_MESSAGE,
                grace_period_s=pod.grace_s, with_machine=pod.static,
            )  # fmt: skip
            try:
                await self._actor.peer("pod_workers").ask(request, ASK_S)
            except ActorError as error:
                log.warning("cannot end pod %s: %s", pod.name, error)
        waited_for = {pod.uid for pod in group.pods}
        while waited_for and time.monotonic() < deadline:
            await self._actor.sleep(LOOK_S)
            waited_for &= {row.uid for row in await self._pods(with_pods=False) if row.stage != "terminated"}
        if waited_for:
            names = ", ".join(pod.name for pod in group.pods if pod.uid in waited_for)
            log.warning("out of time for pods %s", names)

    async def _flush(self) -> None:
        """The API server has every last word, or its time is over."""
        try:
            left = (await self._actor.peer("status").ask(Flush(timeout_s=FLUSH_S), FLUSH_S + ASK_S)).unsaid
        except ActorError as error:
            log.warning("cannot tell whether every status is written: %s", error)
        else:
            if left:
                log.warning("the API server does not have the last word of %d pods", left)

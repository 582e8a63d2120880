"""Lists all pods of the container runtime at the start, and later single pods that have no worker."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from actors._base import Actor
from actors._cri.errors import CriError
from actors.pod_workers.admission import RuntimeFeatures
from actors.pod_workers.admission.admission_queue import AdmissionQueue
from actors.pod_workers.assembly import compare_driver
from actors.pod_workers.model.view import PodView
from actors.pod_workers.pods.unclaimed import Unclaimed
from actors.pod_workers.shared.worker_context import WorkerContext
from actors.pod_workers.steps.runtime_view import list_pod
from proto.agent.supervisor import CgroupDriver

log = logging.getLogger(__name__)

RETRY_S = 1.0


class RuntimeListing:
    """No pod starts before the runtime has been listed, and its features and cgroup driver are known."""

    def __init__(
        self,
        actor: Actor,
        context: WorkerContext,
        admission_queue: AdmissionQueue,
        unclaimed: Unclaimed,
        *,
        on_seen: Callable[[], None],
        on_found: Callable[[str, PodView], None],
    ) -> None:
        """`on_seen`: the runtime answers after it had not. `on_found`: the answer to `look_for`, with the pod's UID."""
        self._actor = actor
        self._context = context
        self._admission_queue = admission_queue
        self._unclaimed = unclaimed
        self._on_seen, self._on_found = on_seen, on_found
        self.seen = False
        self.waits = "it has not answered yet"
        """Why pods wait for the runtime; empty once it has been listed."""

    async def see(self) -> None:
        """List the runtime's pods. Tried again every RETRY_S until the runtime has answered."""
        cri = self._context.cri
        try:
            sandboxes, containers = cri.list_pod_sandbox(), cri.list_containers()
            status, driver = cri.status(), cri.cgroup_driver()
            self._unclaimed.views = PodView.by_pod(await sandboxes, await containers)
            answer = await status
            self._context.network.seen(answer)
            features = RuntimeFeatures.from_status(answer)
            self._admission_queue.node = replace(self._admission_queue.node, features=features)
            self._context.userns.handlers = features.user_namespaces
            waits = await compare_driver(driver, self._context.settings.cgroup_driver, self._driver_told)
        except CriError as error:
            waits = f"it does not answer: {error}"
        self.waits = waits
        if waits:
            log.warning("pods wait for the container runtime: %s", waits)
            self._actor.after(RETRY_S, lambda: self._actor.spawn(self._see_again(), "see_runtime"))
            return
        self.seen = True

    async def _see_again(self) -> None:
        await self.see()
        if self.seen:
            log.info("the container runtime answers")
            self._on_seen()

    def _driver_told(self, name: str) -> None:
        self._actor.peer("supervisor").tell(CgroupDriver(name=name))

    def look_for(self, uid: str) -> None:
        """List one pod; `on_found` follows."""
        self._actor.spawn(self._look_for(uid), "look_for")

    async def _look_for(self, uid: str) -> None:
        try:
            view = await list_pod(self._context.cri, uid)
        except CriError as error:
            log.debug("cannot look for pod %s: %s, trying again", uid, error)
            self._actor.after(RETRY_S, self.look_for, uid)
        else:
            self._on_found(uid, view)

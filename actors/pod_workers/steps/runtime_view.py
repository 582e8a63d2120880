"""RuntimeView: a worker's copy of its pod's state in the runtime, kept current with as few calls as possible.

The worker's own actions update it, and hints from pleg mark parts of it stale. Nothing polls. Each reading tells pleg
the processes to watch.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Iterator
from typing import Any

from actors._base import gather
from actors._cri.client import Cri
from actors._cri.errors import CriError, NotFound, RuntimeDown
from actors._metrics import kubelet
from actors.pod_workers.model import metrics
from actors.pod_workers.model.view import ContainerView, PodView, SandboxView
from actors.pod_workers.shared.pod_scope import PodScope
from proto.cri import api_pb2 as pb
from proto.cri.labels import POD_UID
from proto.pods import pleg

SHORTEST_WAIT_S, WAIT_BY_ELAPSED, LATEST_EXIT_S = 0.003, 0.35, 2.0
"""Bounds of the readings of a container that the runtime reports as running though its process has exited.

In containerd, an exit shows some 20 ms late: after the clean-up of its shim. A replacement waits for that, so each
reading comes at most a third later than the exit may show. Many containers that end together make it late, and many
readings would make it later.
"""


def late_exit_waits() -> Iterator[float]:
    """Yield the seconds to wait before each further reading."""
    elapsed_s = 0.0
    while elapsed_s < LATEST_EXIT_S:
        wait_s = max(SHORTEST_WAIT_S, elapsed_s * WAIT_BY_ELAPSED)
        yield wait_s
        elapsed_s += wait_s


async def list_pod(cri: Cri, uid: str) -> PodView:
    """List the sandboxes and containers of one pod."""
    labels = {POD_UID: uid}
    sandboxes, containers = await gather(
        cri.list_pod_sandbox(pb.PodSandboxFilter(label_selector=labels)),
        cri.list_containers(pb.ContainerFilter(label_selector=labels)),
    )
    return PodView.listed(sandboxes, containers)


def _exited(view: PodView) -> set[str]:
    return {one.id for one in view.containers if one.state == "exited"}


class RuntimeView:
    """The view of one pod; used in its worker's mailbox thread only. Runtime errors pass unchanged."""

    def __init__(self, scope: PodScope, view: PodView | None, *, is_new: bool = False) -> None:
        """`view`: the sandboxes and containers that the runtime listed last; None when they are not known. `is_new`: no
        process before this one has begun the pod."""
        self.scope = scope
        self.context = scope.context
        self.uid = scope.pod.metadata.uid
        self.view = view if view is not None else PodView()
        """As of the last reading; `current` brings it up to date."""
        self._unlisted = view is None
        self._counted: set[str] | None = None if view is None else _exited(view)
        """Exited containers that no metric counts any more; those of before this worker, too. None: not yet known."""
        self._is_new = is_new
        self._unseen = 0
        """Calls that are making a sandbox or container, or have failed: it may be there without being in the view."""
        self._stale: set[str] = set(self.view.ids())
        self._ended: set[str] = set()
        """IDs whose process has exited, even if the runtime reports them as running."""

    def mark_stale(self, exited: tuple[str, ...]) -> None:
        """Read these IDs again, or list the whole pod if there are none, at the next `current`.

        The view stays until then, since a step may be adding to it.
        """
        if not exited:
            self._unlisted = True
        self._ended.update(exited)
        self._stale.update(identity for identity in exited if self.view.is_alive(identity))

    def relist(self) -> None:
        """List the whole pod at the next `current`: a failed call may have taken effect."""
        self._unlisted = True

    def begin_creation(self) -> None:
        """Note that a sandbox or container is being made. After an error, it may come into being at any time."""
        self._unseen += 1

    def end_creation(self) -> None:
        """Note that it is in the view."""
        self._unseen -= 1

    async def current(self) -> PodView:
        """The view after reading its stale parts again, at once: the kubelet's relist of one pod on demand."""
        if self._unlisted:
            return await self.listed()
        return await self._timed(self._read_all(self._stale)) if self._stale else self.view

    async def _timed(self, reading: Coroutine[Any, None, PodView]) -> PodView:
        began = time.monotonic()
        try:
            return await reading
        finally:
            kubelet.POD_RELIST_SECONDS.observe(time.monotonic() - began)

    @property
    def has_exits(self) -> bool:
        """True while the view lacks an exit that pleg has reported."""
        return bool(self._stale & self._ended)

    async def exits(self) -> PodView | None:
        """The view after reading what has exited; None when no other container runs.

        For a look beside a step that stops the containers: it lists nothing. A view that the step has just listed lacks
        times and exit codes, so it counts as None, too.
        """
        if not any(one.state == "running" and one.id not in self._ended for one in self.view.containers):
            return None
        found = (await self._read_all(self._stale & self._ended)).containers
        shows = any(one.state == "running" for one in found) and all(one.complete for one in found)
        return self.view if shows else None

    async def _read_all(self, stale: set[str]) -> PodView:
        self._stale = self._stale - stale
        try:
            await gather(*[self.scope.spawn(self._read(identity), "read") for identity in stale])
        except BaseException:
            self._stale |= stale
            raise
        return self.view

    async def determined(self) -> PodView:
        """`current`, at the start of a step: a runtime that answers with an error gets the event FailedSync."""
        try:
            return await self.current()
        except RuntimeDown:
            raise  # as in the kubelet, whose cache is not filled then
        except CriError as error:
            message = f"error determining status: {error.grpc_text()}"
            self.context.events.pod(self.scope.pod, "Warning", "FailedSync", message)
            raise

    async def listed(self) -> PodView:
        """The view after listing the pod, and reading every sandbox and container whose final state is not known."""
        return await self._timed(self._list())

    async def _list(self) -> PodView:
        self._unlisted = False  # before the calls: a hint meanwhile sets it again
        try:
            self.view = (await list_pod(self.context.cri, self.uid)).with_final_of(self.view)
        except BaseException:
            self._unlisted = True
            raise
        if self._counted is None:
            self._counted = _exited(self.view)
        self._counted &= set(self.view.ids())
        self._stale = self.view.changeable_ids
        self._ended &= self._stale
        return await (self._list() if self._unlisted else self._read_all(self._stale))

    async def stopped(self) -> PodView:
        """The view after all sandboxes were stopped: its containers' final states.

        Lists the pod when something of it may not be in the view.
        """
        if self._unseen or not self._is_new:
            return await self.listed()
        self._stale |= self.view.changeable_ids
        return await self.current()

    async def _read(self, identity: str) -> None:
        """Read a sandbox or container; if its process has exited, until the runtime reports that."""
        is_sandbox = self.view.sandbox(identity) is not None
        for wait_s in (*late_exit_waits(), None):
            found = await (self.read_sandbox(identity) if is_sandbox else self.read_container(identity))
            if identity not in self._ended:
                return
            if found is None or not self.view.is_alive(identity):
                self._is_over(identity)
                return
            if wait_s is not None:
                await self.scope.sleep(wait_s)
        # Very late, or still running: pleg watches again, and reports an exit again.
        self._ended.discard(identity)
        self.context.published.unwatch(self.uid, identity)
        if found is not None:
            self._watch(identity, found.pid, alive=True, sandbox=is_sandbox)

    def _is_over(self, identity: str) -> None:
        """Its end is in the view. If nothing of its record can change any more, an earlier hint says nothing new."""
        self._ended.discard(identity)
        if identity not in self.view.changeable_ids:
            self._stale.discard(identity)

    async def read_container(self, identity: str) -> ContainerView | None:
        """Read one container; None if the runtime has lost it.

        A verbose answer has the pid, in kilobytes of the container's specification that the runtime makes for it.
        """
        known = self.view.container_by_id(identity)
        try:
            answer = await self.context.cri.container_status(identity, verbose=known is None or not known.pid)
        except NotFound:
            self.view = self.view.without(identity)
            return None
        self.view = self.view.with_container(ContainerView.from_status(answer))
        found = self.view.container_by_id(answer.status.id)
        assert found is not None
        self._count(found)
        self._watch(found.id, found.pid, alive=found.state == "running", sandbox=False)
        return found

    async def read_stopped(self, identity: str) -> None:
        """Read a container after StopContainer, until the runtime reports its exit.

        If containerd has deleted the task but not recorded the exit, it answers StopContainer at once.
        """
        self._ended.add(identity)
        await self._read(identity)

    def _count(self, found: ContainerView) -> None:
        """Count the end of a container once. It may have come before the first reading."""
        if found.state == "exited" and self._counted is not None and found.id not in self._counted:
            self._counted.add(found.id)
            metrics.container_ended(self.scope.pod, found)

    async def read_sandbox(self, identity: str) -> SandboxView | None:
        """Read one sandbox; None if the runtime has lost it."""
        try:
            answer = await self.context.cri.pod_sandbox_status(identity, verbose=True)
        except NotFound:
            self.view = self.view.without(identity)
            return None
        found = SandboxView.from_status(answer)
        self.view = self.view.with_sandbox(found)
        self._watch(found.id, found.pid, alive=found.state == "ready", sandbox=True)
        return found

    def _watch(self, identity: str, pid: int, *, alive: bool, sandbox: bool) -> None:
        uid = self.uid
        if alive and pid:
            self.context.published.watch(pleg.Watch(pod_uid=uid, id=identity, pid=pid, sandbox=sandbox))
        elif not alive:
            self.context.published.unwatch(uid, identity)

    def stopped_sandbox(self, identity: str) -> None:
        """StopPodSandbox has succeeded."""
        self.view = self.view.with_stopped_sandbox(identity)
        self._is_over(identity)
        self.context.published.unwatch(self.uid, identity)

    def removed(self, identity: str) -> None:
        """A sandbox or container was removed."""
        self.view = self.view.without(identity)
        if self._counted is not None:
            self._counted.discard(identity)
        self._is_over(identity)
        self.context.published.unwatch(self.uid, identity)

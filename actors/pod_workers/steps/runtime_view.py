"""A worker's own view of what the runtime has of its pod, kept true with as few calls as possible.

The view changes by what the worker does itself and is read again where a hint says so; nothing polls. What is read
anew decides which processes pleg watches.
"""

from __future__ import annotations

from actors._base import gather
from actors._cri.client import Cri
from actors._cri.errors import NotFound
from actors.pod_workers.model import metrics
from actors.pod_workers.model.labels import POD_UID
from actors.pod_workers.model.view import ContainerView, PodView, SandboxView
from actors.pod_workers.shared.pod_scope import PodScope
from proto.cri import api_pb2 as pb
from proto.pods import pleg

EXIT_SEEN_LATE_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Waits between readings of a container whose process is gone but which the runtime still calls running: the shim's
exit event reaches containerd some milliseconds after the kernel's."""


async def list_pod(cri: Cri, uid: str) -> PodView:
    """What the runtime lists of one pod."""
    labels = {POD_UID: uid}
    sandboxes = await cri.list_pod_sandbox(pb.PodSandboxFilter(label_selector=labels))
    containers = await cri.list_containers(pb.ContainerFilter(label_selector=labels))
    return PodView.listed(sandboxes, containers)


class RuntimeView:
    """The view of one pod; used in its worker's mailbox thread only. Errors of the runtime come out as they are."""

    def __init__(self, scope: PodScope, view: PodView | None) -> None:
        """`view`: the sandboxes and containers that the runtime listed last; None when they are not known."""
        self.scope = scope
        self.context = scope.context
        self.uid = scope.pod.metadata.uid
        self.view = view if view is not None else PodView()
        """As of the last reading; `current` brings it up to date."""
        self._unlisted = view is None
        self._stale: set[str] = set(self.view.ids())
        self._ended: set[str] = set()
        """Whose process is gone, whatever the runtime still says."""
        self._seen_running: set[str] = set()

    def mark_stale(self, exited: tuple[str, ...]) -> None:
        """Have these read again, or the whole pod listed when none is named. The view stays as it is until then: a step
        may be under way that adds to it."""
        if not exited:
            self._unlisted = True
        self._ended.update(exited)
        self._stale.update(identity for identity in exited if self.view.is_alive(identity))

    def relist(self) -> None:
        """Have the whole pod listed: something failed in a way that leaves open what the runtime made of it."""
        self._unlisted = True

    async def current(self) -> PodView:
        """The view with what is stale in it read again."""
        if self._unlisted:
            return await self.listed()
        stale, self._stale = self._stale, set()
        try:
            await gather(*[self.scope.spawn(self._read(identity), "read") for identity in stale])
        except BaseException:
            self._stale |= stale
            raise
        return self.view

    async def listed(self) -> PodView:
        """The pod as the runtime lists it now, with the status of every sandbox and container of it."""
        self._unlisted = False  # before the calls: a hint that comes meanwhile asks for another list
        try:
            self.view = await list_pod(self.context.cri, self.uid)
        except BaseException:
            self._unlisted = True
            raise
        self._stale = set(self.view.ids())
        self._ended &= self._stale
        return await self.current()

    async def _read(self, identity: str) -> None:
        """Read a sandbox or container; one whose process is gone until the runtime says so too."""
        is_sandbox = self.view.sandbox(identity) is not None
        for wait_s in (*EXIT_SEEN_LATE_S, None):
            found = await (self.read_sandbox(identity) if is_sandbox else self.read_container(identity))
            if identity not in self._ended:
                return
            if found is None or not self.view.is_alive(identity):
                self._ended.discard(identity)
                return
            if wait_s is not None:
                await self.scope.sleep(wait_s)
        # Very late, or not gone after all: pleg looks again, and tells again if it is.
        self._ended.discard(identity)
        self.context.published.unwatch(self.uid, identity)
        if found is not None:
            self._watch(identity, found.pid, alive=True, sandbox=is_sandbox)

    async def read_container(self, identity: str) -> ContainerView | None:
        """Read one container; None when the runtime has it no more."""
        try:
            answer = await self.context.cri.container_status(identity, verbose=True)
        except NotFound:
            self.view = self.view.without(identity)
            return None
        found = ContainerView.from_status(answer)
        self.view = self.view.with_container(found)
        self._count(found)
        self._watch(found.id, found.pid, alive=found.state == "running", sandbox=False)
        return found

    def _count(self, found: ContainerView) -> None:
        if found.state == "running":
            self._seen_running.add(found.id)
        elif found.id in self._seen_running:
            self._seen_running.discard(found.id)
            metrics.container_ended(self.context.published.pods.get(self.uid), found)

    async def read_sandbox(self, identity: str) -> SandboxView | None:
        """Read one sandbox; None when the runtime has it no more."""
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
        """Take in that StopPodSandbox was done."""
        self.view = self.view.with_stopped_sandbox(identity)
        self.context.published.unwatch(self.uid, identity)

    def removed(self, identity: str) -> None:
        """Take in that a sandbox or container was removed."""
        self.view = self.view.without(identity)
        self.context.published.unwatch(self.uid, identity)

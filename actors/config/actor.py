"""The config actor: gathers the pods of every source and tells pod_workers what should run.

Covers the sources' common life: start, re-sending to a peer that started, and what consoles ask. A source merges its
own changes: `files.py` for manifests, `api.py` for the API server, which runs only with a kubeconfig.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from actors._base import Actor, handles
from actors._base.actor import ActorContext
from actors.config.sources import files
from actors.config.sources.files import ManifestPods
from proto.pods.config import ListSources, Relist, Sources
from proto.pods.pod_workers import PodUpdate
from proto.v1 import Pod
from proto.wire.message import Done

if TYPE_CHECKING:
    from actors.config.sources.api import ApiPods


class Config(Actor):
    """Pod sources and their merge, the kubelet's PodConfig."""

    name: ClassVar[str] = "config"
    asks: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, context: ActorContext) -> None:
        super().__init__(context)
        self._manifests = ManifestPods(self, lambda op, pods: self._tell(files.SOURCE, op, pods))
        self._api: ApiPods | None = None
        if self.settings.kubeconfig:
            # Nodes of no cluster do not pay for its client.
            from actors.config.sources.api import ApiPods  # noqa: PLC0415

            self._api = ApiPods(self, lambda op, pods: self._tell("api", op, pods))

    async def rebuild(self) -> None:
        """What each source keeps on disk."""
        self._manifests.recover()
        if self._api is not None:
            self._api.recover()

    def on_ready(self) -> None:
        """Not before being ready: a hundred manifests take longer than an actor may be away, and pod_workers waits for
        the SET, not for the process."""
        self._manifests.start()
        if self._api is not None:
            self._api.start()

    def on_peer_started(self, name: str, incarnation: int) -> None:  # noqa: ARG002 - the base's signature
        """A new pod_workers knows nothing, nor does a new status of what the API server has."""
        if name == "pod_workers":
            self._manifests.resend()
        if self._api is not None:
            self._api.resend(name)

    def describe(self) -> dict[str, Any]:
        """What a console shows."""
        shown = self._manifests.describe()
        return shown if self._api is None else {**shown, "api": self._api.describe()}

    @handles(ListSources)
    def on_list_sources(self, _: ListSources) -> Sources:
        """Answer from what is known."""
        pods, problems = {files.SOURCE: self._manifests.names()}, self._manifests.problems()
        if self._api is not None:
            pods["api"] = self._api.names()
            problems += self._api.problems()
        return Sources(pods=pods, problems=tuple(problems))

    @handles(Relist)
    async def on_relist(self, _: Relist) -> Done:
        """Answer when the files have been read. The API server's pods are watched: there is nothing to read again."""
        await self._manifests.relist()
        return Done()

    def _tell(self, source: str, op: Any, pods: tuple[Pod, ...]) -> None:
        if pods or op == "SET":
            self.peer("pod_workers").tell(PodUpdate(source=source, op=op, pods=pods))


ACTOR = Config

"""The config actor: sends the pods of every source to pod_workers.

It starts the sources, sends their pods again to a peer that started, and answers queries. Each source merges its own
changes: `sources/files.py` for manifests, `sources/api.py` for the API server, which needs a kubeconfig.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from actors._base import Actor, handles
from actors._base.actor import Runtime
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

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._manifests = ManifestPods(self, lambda op, pods: self._tell(files.SOURCE, op, pods))
        self._api: ApiPods | None = None
        if self.settings.kubeconfig:
            # Saves the API client's memory where there is no cluster.
            from actors.config.sources.api import ApiPods  # noqa: PLC0415

            self._api = ApiPods(self, lambda op, pods: self._tell("api", op, pods))

    async def rebuild(self) -> None:
        """Load the checkpoint of each source."""
        self._manifests.recover()
        if self._api is not None:
            self._api.recover()

    def on_ready(self) -> None:
        """Start the sources.

        A hundred manifests take longer than the start of an actor may, so pod_workers waits for the SET instead.
        """
        self._manifests.start()
        if self._api is not None:
            self._api.start()

    def on_peer_started(self, name: str, incarnation: int) -> None:  # noqa: ARG002 - the base's signature
        """Send all pods to a new pod_workers, and those of the API server to a new status."""
        if name == "pod_workers":
            self._manifests.resend()
        if self._api is not None:
            self._api.resend(name)

    def describe(self) -> dict[str, Any]:
        """State for the console: the state of each source."""
        shown = self._manifests.describe()
        return shown if self._api is None else {**shown, "api": self._api.describe()}

    @handles(ListSources)
    def on_list_sources(self, _: ListSources) -> Sources:
        """List each source's pods and problems."""
        pods, problems = {files.SOURCE: self._manifests.names()}, self._manifests.problems()
        if self._api is not None:
            pods["api"] = self._api.names()
            problems += self._api.problems()
        return Sources(pods=pods, problems=tuple(problems))

    @handles(Relist)
    async def on_relist(self, _: Relist) -> Done:
        """Read all manifests again, then answer. The API server's pods are watched and need no second read."""
        await self._manifests.relist()
        return Done()

    def _tell(self, source: str, op: Any, pods: tuple[Pod, ...]) -> None:
        if pods or op == "SET":
            self.peer("pod_workers").tell(PodUpdate(source=source, op=op, pods=pods))


ACTOR = Config

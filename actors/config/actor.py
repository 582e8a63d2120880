"""The config actor: sends the pods of every source to pod_workers.

It starts the sources, sends their pods again to a peer that started, and answers queries. Each source merges its own
changes: `sources/files.py` for manifests, `sources/url.py` for a URL, `sources/api.py` for the API server. The last two
are imported only where they are configured.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from actors._base import Actor, handles
from actors._base.actor import ActorContext
from actors._base.messaging import tracing
from actors._host.files import paths
from actors.config.sources import files
from actors.config.sources.files import ManifestPods
from proto.pods.config import ListSources, Relist, Sources
from proto.pods.pod_workers import PodTrace, PodUpdate
from proto.v1 import Pod
from proto.wire.message import Done

if TYPE_CHECKING:
    from actors.config.sources.api import ApiPods
    from actors.config.sources.url import UrlPods


class Config(Actor):
    """State: the sources of pods by name."""

    name: ClassVar[str] = "config"
    asks: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, context: ActorContext) -> None:
        super().__init__(context)
        self._manifests = ManifestPods(self, partial(self._tell, files.SOURCE))
        self._sources: dict[str, ManifestPods | UrlPods | ApiPods] = {files.SOURCE: self._manifests}
        self._url: UrlPods | None = None
        if self.settings.static_pod_url:
            from actors.config.sources.url import UrlPods  # noqa: PLC0415

            self._url = self._sources["http"] = UrlPods(self, partial(self._tell, "http"))
        if self.settings.kubeconfig:
            # Saves the API client's memory where there is no cluster.
            from actors.config.sources.api import ApiPods  # noqa: PLC0415

            self._sources["api"] = ApiPods(self, partial(self._tell, "api"))

    async def rebuild(self) -> None:
        """Load the checkpoint of each source."""
        if self._url is None:
            with suppress(OSError):
                os.unlink(paths.url_pods(self.settings.root_dir))  # a URL that is set again is another start
        for source in self._sources.values():
            source.recover()

    def on_ready(self) -> None:
        """Start the sources.

        A hundred manifests take longer than the start of an actor may, so pod_workers waits for the SET instead.
        """
        for source in self._sources.values():
            source.start()

    def on_peer_started(self, name: str, incarnation: int) -> None:  # noqa: ARG002 - the base's signature
        """Send all pods to a new pod_workers, and those of the API server to a new status."""
        for source in self._sources.values():
            source.resend(name)

    def describe(self) -> dict[str, Any]:
        """State for the console: the state of each source; that of the manifests is not nested."""
        shown = {name: source.describe() for name, source in self._sources.items()}
        return shown.pop(files.SOURCE) | shown

    @handles(ListSources)
    def on_list_sources(self, _: ListSources) -> Sources:
        """List each source's pods and problems."""
        return Sources(
            pods={name: source.names() for name, source in self._sources.items()},
            problems=tuple(problem for source in self._sources.values() for problem in source.problems()),
        )

    @handles(Relist)
    async def on_relist(self, _: Relist) -> Done:
        """Read all manifests and the URL again, then answer. The API server's pods are watched."""
        await self._manifests.relist()
        if self._url is not None:
            await self._url.relist()
        return Done()

    def _tell(self, source: str, op: Any, pods: tuple[Pod, ...], seen_ns: int = 0) -> None:
        if pods or op == "SET":
            seen_ns = seen_ns or time.time_ns()
            traces = _traces(pods, seen_ns) if op in ("SET", "ADD") else {}
            update = PodUpdate(source=source, op=op, pods=pods, traces=traces, seen_ns=seen_ns, told_ns=time.time_ns())
            self.peer("pod_workers").tell(update)


def _traces(pods: tuple[Pod, ...], seen_ns: int) -> dict[str, PodTrace]:
    """A trace for the start of each pod, if it is sampled. pod_workers ignores those of pods that it knows."""
    contexts = {pod.metadata.uid: context for pod in pods if (context := tracing.new_trace())}
    now_ns = time.time_ns()
    for context in contexts.values():
        tracing.record("readPod", seen_ns, tracing.below(context), context, ended_ns=now_ns)
    return {uid: PodTrace(context=one, seen_ns=seen_ns, told_ns=now_ns) for uid, one in contexts.items()}


ACTOR = Config

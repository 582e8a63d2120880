"""The state and the peers that request handlers use."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from actors._base.messaging.futures import Future
from actors._base.shared import Shared
from actors._cgroup.migration_prewarm import MigrationPrewarm
from actors._cri.client import CriCalls
from actors._net.loop import Loop
from actors.server.base.http import Request, Response, Upgraded
from actors.server.base.peers import Peers
from actors.server.base.read_budget import ReadBudget
from actors.server.figures.collect import Collector
from actors.server.pod_copies import PodCopies
from proto.agent.settings import Settings
from proto.wire.message import Request as Ask


class Context(Peers):
    """One for all handlers of a server. Use it in the loop's thread."""

    def __init__(
        self,
        loop: Loop,
        settings: Settings,
        ask: Callable[[str, Ask[Any], float], Future[Any]],
        blocking: Callable[..., Future[Any]],
        *,
        cri: CriCalls,
        moves: MigrationPrewarm,
        paths: Sequence[str] = (),
        log_root: str = "/var/log",
    ) -> None:
        """`paths` are the patterns that /statusz lists; `log_root` is the directory that /logs/ serves."""
        super().__init__(loop, settings, ask, blocking)
        self.cri = cri
        self.moves = moves
        self.paths = paths
        self.log_root = log_root
        self.collector = Collector(self)
        self.log_readers = ReadBudget()
        self.profiles = 0
        """Running profiles for the web page."""
        self.log_queries = 0
        """Running programs of queries of the node's logs."""
        self.runs = 0
        """Running commands of /run."""
        self.pods = PodCopies()
        self.pod_list: Shared[bytes] | None = None
        """The latest answer of status to /pods; used until the copy is complete."""


Handler = Callable[[Context, Request], Coroutine[Any, None, Response | Upgraded]]

"""Reads the node's resolv.conf, and reports every half minute what is wrong with it.

Source: CheckLimitsForResolvConf of pkg/kubelet/network/dns.
"""

from __future__ import annotations

from pathlib import Path

from actors._base import Actor
from actors._events.recorder import Recorder
from actors.pod_workers.cri_config.dns import DnsConfig, host_problem, parse_resolv_conf
from proto.common.until import Until
from proto.wire.errors import AskTimeout

PERIOD_S = 30.0
READ_S = 5.0


def read_resolv_conf(path: str) -> DnsConfig:
    """Blocks. Raises OSError."""
    return parse_resolv_conf(Path(path).read_text(encoding="utf-8", errors="replace"))


class ResolvConfCheck:
    """Records a node event at each look that finds a problem."""

    def __init__(self, actor: Actor, events: Recorder) -> None:
        self._actor, self._events = actor, events

    def begin(self) -> None:
        """Look now and every PERIOD_S, if the configuration names a file."""
        if self._actor.settings.resolv_conf:
            self._actor.every(Until(PERIOD_S), self._look, "resolv.conf")

    async def _look(self) -> None:
        settings = self._actor.settings
        try:
            host = await self._actor.blocking(READ_S, read_resolv_conf, settings.resolv_conf)
        except OSError as error:
            problem = f"open {settings.resolv_conf}: {(error.strerror or str(error)).lower()}"
        except AskTimeout as error:
            problem = str(error)
        else:
            problem = host_problem(settings.resolv_conf, host.searches, settings.cluster_domain)
        if problem:
            self._events.node("Warning", "CheckLimitsForResolvConf", problem)

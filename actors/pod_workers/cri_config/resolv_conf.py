"""Reads the node's resolv.conf, and reports every half minute what is wrong with it.

Source: CheckLimitsForResolvConf of pkg/kubelet/network/dns.
"""

from __future__ import annotations

from pathlib import Path

from actors._base import Actor
from actors._events.recorder import Recorder
from actors.pod_workers.cri_config.dns import DnsConfig, host_problem, parse_resolv_conf, syntax_problem
from proto.common.until import Until
from proto.wire.errors import AskTimeout

PERIOD_S = 30.0
READ_S = 5.0


def read_resolv_conf(path: str) -> DnsConfig:
    """Blocks. Raises OSError."""
    return parse_resolv_conf(_read(path))


def _read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")


def unreadable(path: str, error: OSError) -> str:
    """The kubelet's words for a resolv.conf that cannot be read: those of Go's os.Open (getHostDNSConfig)."""
    return f"open {path}: {(error.strerror or str(error)).lower()}"


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
            text = await self._actor.blocking(READ_S, _read, settings.resolv_conf)
        except OSError as error:
            problem = unreadable(settings.resolv_conf, error)
        except AskTimeout as error:
            problem = str(error)
        else:
            searches = parse_resolv_conf(text).searches
            problem = syntax_problem(text) or host_problem(settings.resolv_conf, searches, settings.cluster_domain)
        if problem:
            self._events.node("Warning", "CheckLimitsForResolvConf", problem)

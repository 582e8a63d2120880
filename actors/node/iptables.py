"""Keeps the kubelet's iptables chains (makeIPTablesUtilChains), with the machine's programs iptables and ip6tables.

Containers with several versions of iptables look for KUBE-IPTABLES-HINT in each, to use the machine's version. So the
machine's own program makes it. KUBE-FIREWALL drops packets from elsewhere to 127.0.0.0/8, which kube-proxy's
route_localnet would let in. What is missing is added, and nothing else is touched. Source:
pkg/kubelet/kubelet_network_linux.go of Kubernetes 1.36.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from typing import Any, NamedTuple

from actors._base import Actor
from proto.common.safe_text import one_line
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

PERIOD_S = 60.0
"""Until missing chains are made again, for example after a firewall was reloaded; as in the kubelet."""
CALL_S = 15.0
WAIT_S = 5
"""The wait for the lock of iptables."""
MAX_ERROR = 300
HINT, FIREWALL = "KUBE-IPTABLES-HINT", "KUBE-FIREWALL"
CANARY = "KUBE-KUBELET-CANARY"
"""An empty chain of each table. In the kubelet its loss tells of a flush; here every chain is looked for anyway."""


class Entry(NamedTuple):
    """A chain, or a rule in it; both in the words of iptables."""

    table: str
    chain: str
    rule: tuple[str, ...] = ()
    how: str = "-A"
    """-A: a new rule is the chain's last one; -I: the first one."""


# kube-proxy makes the very same rule, so its words must not change.
MARTIANS = (
    "-m", "comment", "--comment", "block incoming localnet connections", "--dst", "127.0.0.0/8", "!", "--src",
    "127.0.0.0/8", "-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP",
)  # fmt: skip
_CANARIES = tuple(Entry(table, CANARY) for table in ("mangle", "nat", "filter"))
WANTED = {
    "iptables": (
        Entry("mangle", HINT),
        Entry("filter", FIREWALL),
        Entry("filter", "OUTPUT", ("-j", FIREWALL), "-I"),
        Entry("filter", "INPUT", ("-j", FIREWALL), "-I"),
        Entry("filter", FIREWALL, MARTIANS),
        *_CANARIES,
    ),
    "ip6tables": (Entry("mangle", HINT), *_CANARIES),
}
"""By program."""


class IptablesChains:
    """State: the last problem of each program."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._problems = dict.fromkeys(WANTED, "not made yet")

    def describe(self) -> dict[str, Any]:
        """State for the console: the problem of each program."""
        return dict(self._problems)

    async def keep_loop(self) -> None:
        """Add what is missing, for ever."""
        while True:
            for program, entries in WANTED.items():
                try:
                    limit_s = 2 * len(entries) * CALL_S
                    problem = await self._actor.blocking(limit_s, ensure, program, entries)
                except AskTimeout:
                    problem = f"{program} does not end"
                self._report(program, problem)
            await self._actor.sleep(PERIOD_S)

    def _report(self, program: str, problem: str) -> None:
        if problem and problem != self._problems[program]:
            log.warning(
                "cannot make the kubelet's chains: %s; set makeIPTablesUtilChains: false to do without", problem
            )
        self._problems[program] = problem


def ensure(name: str, entries: tuple[Entry, ...]) -> str:
    """Make the entries that are missing. Blocks. Returns the problem; empty: all are there."""
    program = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin")))
    if program is None:
        return f"there is no program {name}; install iptables"
    for entry in entries:
        look, make = ("-C", entry.how) if entry.rule else ("-S", "-N")
        if _run(program, look, entry):
            problem = _run(program, make, entry)
            if problem:
                return f"{name}: {problem}"
    return ""


def _run(program: str, verb: str, entry: Entry) -> str:
    """The problem of one call; empty after a success."""
    command = [program, "-w", str(WAIT_S), "-t", entry.table, verb, entry.chain, *entry.rule]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=CALL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return one_line(str(error))[:MAX_ERROR]
    if done.returncode == 0:
        return ""
    return one_line(done.stderr[:MAX_ERROR].decode(errors="replace").strip()) or f"exit status {done.returncode}"

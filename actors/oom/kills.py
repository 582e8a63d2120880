"""Finds OOM kills in the kernel's log. Pure.

A kill takes several messages, of which each kernel has its own form. From 5.1 on they are:

    memory: usage 16384kB, limit 16384kB, failcnt 108
    oom-kill:constraint=CONSTRAINT_MEMCG,...,oom_memcg=/a,task_memcg=/a/b,task=NAME,pid=7,uid=0
    Memory cgroup out of memory: Killed process 7 (NAME) total-vm:35572kB, anon-rss:22328kB, file-rss:4456kB, ...

Kernel 4.19 has `Task in /a/b killed as a result of limit of /a` in place of the second. With memory.oom.group, kills of
the group's other processes follow. The kernel holds a lock, so messages of two kills do not mix. When kills are many,
it leaves out all but the last message.

A process name is 15 bytes of anything, and a container may name cgroups below its own. So a name can look like a part
of a message. Every pattern matches a whole line. Pids are read from the side that names cannot reach. The victim's
cgroup is the limited one or below it. So names can mislead about nothing outside their own pod.

Source: mm/oom_kill.c and mm/memcontrol.c of Linux 4.19 to 6.12.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from actors.oom.record import KERNEL, LogRecord, unescaped

MOST_NAME = 15 * 4
"""Longest process name in the log, in characters: 15 bytes, each escaped."""

GROUP_US = 100_000
"""Longest time between the kills of one group. After it a kill without its own context has an unknown cgroup."""

_BEGIN = re.compile(r".{0,60} invoked oom-killer: gfp_mask=0x[0-9a-f]+.*")
_USAGE = re.compile(r"memory: usage (\d{1,20})kB, limit (\d{1,20})kB, failcnt \d+")
_CONTEXT = re.compile(
    r"oom-kill:constraint=CONSTRAINT_\w+,nodemask=[^/=]*,cpuset=(?:/|[^/]*),mems_allowed=[^/=]*,"
    r"(?:global_oom,task_memcg=(?P<task>/.*)|oom_memcg=(?P<limited>/.*)),pid=(?P<pid>\d{1,10}),uid=\d{1,10}"
)
_OLD_LIMIT = " killed as a result of limit of "
_OLD_CONTEXT = re.compile(rf"Task in (/.*{_OLD_LIMIT}/.*)")
_OLD_SCOPE = re.compile(
    rf"(Memory cgroup out|Out) of memory(?: \([a-z_ ]+\))?: Kill process \d+ \(.{{0,{MOST_NAME}}}\) score \d+ or .*"
)
_GROUP = re.compile(r"Tasks in (/.*) are going to be killed due to memory\.oom\.group set")
_KILLED = re.compile(
    r"(?:(?P<scope>Memory cgroup out|Out) of memory(?: \([a-z_ ]+\))?: )?"
    rf"Killed process (?P<pid>\d{{1,10}}) \((?P<name>.{{0,{MOST_NAME}}})\),?(?: UID \d{{1,10}},)? "
    r"total-vm:\d{1,20}kB, anon-rss:(?P<anon>\d{1,20})kB, file-rss:(?P<file>\d{1,20})kB"
    r"(?:, shmem-rss:(?P<shmem>\d{1,20})kB)?(?:,? UID:\d.*)?"
)


@dataclass(frozen=True, slots=True)
class Kill:
    """One process that the kernel killed for memory."""

    sequence: int
    """The record's number since the boot."""
    stamp_us: int
    """Time on the kernel's monotonic clock."""
    pid: int
    process: str
    """Its name, foreign text."""
    resident_bytes: int
    of_node: bool
    """The node was out of memory, not a cgroup."""
    cgroup: str = ""
    """Cgroup of the process; empty when the log does not tell it."""
    limited: str = ""
    """Cgroup whose limit was reached; empty for the node and when the log does not tell it."""
    limit_bytes: int = 0
    usage_bytes: int = 0
    """Of the limited cgroup; 0 when the log does not tell it."""


@dataclass(frozen=True, slots=True)
class _Context:
    """The messages before a kill."""

    pid: int | None = None
    """The victim's; None with kernel 4.19, which does not tell it here."""
    cgroup: str = ""
    limited: str = ""
    of_node: bool = False
    usage_bytes: int = 0
    limit_bytes: int = 0
    group: str = ""
    """Cgroup of which all processes are killed."""
    group_us: int = 0
    """Time of the group's latest kill."""


class KillFinder:
    """Finds kills in records that are fed in order. After lost records a kill may lack its cgroup."""

    def __init__(self) -> None:
        self._context = _Context()

    def feed(self, record: LogRecord) -> Kill | None:
        """Return the kill that the record completes, if any. Messages of user space are not read."""
        if record.facility != KERNEL:
            return None
        text = record.text
        if killed := _KILLED.fullmatch(text):
            return self._kill(record, killed)
        if _BEGIN.fullmatch(text):
            self._context = _Context()
        elif usage := _USAGE.fullmatch(text):
            self._set(usage_bytes=int(usage[1]) << 10, limit_bytes=int(usage[2]) << 10)
        elif found := _CONTEXT.fullmatch(text):
            self._set(**_cgroups(found), pid=int(found["pid"]), of_node=found["limited"] is None, group="")
        elif found := _OLD_CONTEXT.fullmatch(text):
            self._set(**_old_cgroups(found[1]), pid=None, of_node=False, group="")
        elif found := _OLD_SCOPE.fullmatch(text):
            self._set(of_node=found[1] == "Out")
        elif found := _GROUP.fullmatch(text):
            self._set(group=found[1], group_us=record.stamp_us)
        return None

    def lost(self) -> None:
        """Forget the context: records are missing."""
        self._context = _Context()

    def _set(self, **changes: Any) -> None:
        self._context = replace(self._context, **changes)

    def _kill(self, record: LogRecord, killed: re.Match[str]) -> Kill:
        pid, context = int(killed["pid"]), self._context
        kill = Kill(
            sequence=record.sequence,
            stamp_us=record.stamp_us,
            pid=pid,
            process=unescaped(killed["name"]),
            resident_bytes=sum(int(killed[part] or 0) << 10 for part in ("anon", "file", "shmem")),
            of_node=context.of_node if killed["scope"] is None else killed["scope"] == "Out",
        )
        if killed["scope"] is None and context.pid is None:  # kernel 4.19: one context, one kill
            self._context = _Context()
            cgroup = context.cgroup
        elif context.pid == pid:
            cgroup = context.cgroup
        elif context.group and 0 <= record.stamp_us - context.group_us <= GROUP_US:
            self._set(group_us=record.stamp_us)
            cgroup = context.group
        else:
            self._context = _Context()
            return kill
        usage, limit = context.usage_bytes, context.limit_bytes
        limited = "" if kill.of_node else context.limited
        return replace(kill, cgroup=cgroup, limited=limited, usage_bytes=usage, limit_bytes=limit)


def _is_below(cgroup: str, above: str) -> bool:
    return cgroup == above or cgroup.startswith(above.rstrip("/") + "/")


def _cgroups(found: re.Match[str]) -> dict[str, str]:
    """Return the victim's and the limited cgroup, from between two parts that no name can reach."""
    if found["limited"] is None:
        return {"cgroup": _without_name(found["task"], 1), "limited": ""}
    for limited, rest in _splits(found["limited"], ",task_memcg="):
        if rest.startswith(limited + ",task=") or _is_below(rest, limited):
            return {"cgroup": _without_name(rest, len(limited)), "limited": limited}
    return {"cgroup": "", "limited": ""}


def _old_cgroups(text: str) -> dict[str, str]:
    for cgroup, limited in _splits(text, _OLD_LIMIT):
        if _is_below(cgroup, limited):
            return {"cgroup": cgroup, "limited": limited}
    return {"cgroup": "", "limited": ""}


def _splits(text: str, separator: str) -> Iterator[tuple[str, str]]:
    """Yield the parts around each occurrence of the separator, the first one first."""
    at = text.find(separator)
    while at >= 0:
        yield text[:at], text[at + len(separator) :]
        at = text.find(separator, at + 1)


def _without_name(text: str, least: int) -> str:
    """Return the cgroup in `CGROUP,task=NAME`. The cgroup has `least` characters at least."""
    at = text.find(",task=", max(least, len(text) - MOST_NAME - len(",task=")))
    return text[:at] if at >= 0 else ""

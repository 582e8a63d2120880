"""The roles of consoles, and the role that each request needs. A role has the rights of the roles before it."""

from __future__ import annotations

from typing import Literal

Role = Literal["read", "operate", "debug"]
ROLES: tuple[Role, ...] = ("read", "operate", "debug")

READ = frozenset({
    "Describe", "Dump", "GetAgentHealth", "GetMetrics", "GetPressure", "GetRelistAge", "GetSummary", "GetTimelines",
    "GetUpgrade", "ListActors", "ListEvents", "ListMailbox", "ListObjects", "ListPodWorkers", "ListPods",
    "ListPulls", "ListSources", "Ping", "PlanCollection", "PlanEviction", "Stacks",
})  # fmt: skip
"""Requests that only read, and whose answers hold no secret."""
OPERATE = frozenset({
    "CollectGarbage", "GetMemory", "KillActor", "Profile", "Relist", "RestartActor", "SetVerbosity", "StartActor",
    "StopActor",
})  # fmt: skip
"""Requests that change or cost something, and harm no pod.

All others need the role debug. So does Inspect: no rule for names finds every secret in a process's memory.
"""
ALWAYS_DEBUG = frozenset({"Evaluate"})
"""Requests that a local console without a role refuses, too."""


def required(request: str) -> Role:
    """The least role for a request, by the name of its type."""
    if request in READ:
        return "read"
    return "operate" if request in OPERATE else "debug"


def allows(role: str, request: str) -> bool:
    """True when a role may send a request; False for an unknown role."""
    return role in ROLES and ROLES.index(role) >= ROLES.index(required(request))


def refusal(role: str, request: str) -> str:
    """The message for a request that a role may not send."""
    return f"cannot send {request}: it needs the role {required(request)}, this console has {role or 'none'}"

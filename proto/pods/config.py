"""Messages the config actor receives."""

from __future__ import annotations

from proto.wire.message import Done, Message, Record, Request


class SourceProblem(Record, frozen=True, kw_only=True):
    """One manifest that was not taken, and why."""

    file: str
    line: int = 0
    """1-based; 0 where no line can be named."""
    field: str = ""
    """Field path, `spec.containers[0].image`."""
    problem: str
    keeps_previous: bool = False
    """The pod of this file's last good version keeps running."""


class Sources(Message, frozen=True, kw_only=True):
    """What each source holds at present."""

    pods: dict[str, tuple[str, ...]]
    """Source name (`file`) to the pods it declares, `NAMESPACE/NAME`."""
    problems: tuple[SourceProblem, ...] = ()


class ListSources(Request[Sources], frozen=True, kw_only=True):
    """Which pods each source declares and which manifests are wrong. A repeat is harmless."""


class Relist(Request[Done], frozen=True, kw_only=True):
    """Read every source again now. A repeat is harmless."""

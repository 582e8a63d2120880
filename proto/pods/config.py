"""Messages that the config actor receives: questions about the sources of pods."""

from __future__ import annotations

from proto.wire.message import Done, Message, Record, Request


class SourceProblem(Record, frozen=True, kw_only=True):
    """A rejected manifest, or a source that cannot be read, and the reason."""

    file: str
    """The file, the path in the API, or the URL without its secrets."""
    line: int = 0
    """From 1; 0: unknown."""
    field: str = ""
    """Field path, `spec.containers[0].image`."""
    problem: str
    keeps_previous: bool = False
    """The pod of this file's last valid version continues to run."""


class Sources(Message, frozen=True, kw_only=True):
    """The pods and problems of each source."""

    pods: dict[str, tuple[str, ...]]
    """By source name (`file`, `http`, `api`): its pods, as `NAMESPACE/NAME`."""
    problems: tuple[SourceProblem, ...] = ()


class ListSources(Request[Sources], frozen=True, kw_only=True):
    """Ask for the pods of each source and for rejected manifests. A repeat is harmless."""


class Relist(Request[Done], frozen=True, kw_only=True):
    """Read every source again. Answered when done. A repeat is harmless."""

"""What is wrong with a configuration, and where: what every reader and rule of the package reports.

Covers the record, its text, and the place of a field that a later step complains about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

MAX_PROBLEMS = 100
"""More of them help nobody; it also bounds the work that a hostile file can cause."""

_MAX_SHOWN = 300


class Problem(NamedTuple):
    """One thing to correct: `field` in Kubernetes' notation ("" for the whole), and where it was written if known."""

    field: str
    message: str
    file: str = ""
    """A file, or the flag a value came from."""
    line: int = 0
    """From 1; 0 if there is none."""

    @property
    def place(self) -> str:
        """`FILE:LINE`, `FILE`, or nothing."""
        return f"{self.file}:{self.line}" if self.file and self.line else self.file

    def __str__(self) -> str:
        field = self.field if len(self.field) <= _MAX_SHOWN else f"{self.field[:_MAX_SHOWN]}..."
        return ": ".join(part for part in (self.place, field, self.message) if part)


class Origin(NamedTuple):
    """Where the value of a field was written."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class ConfigurationError(Exception):
    """A configuration that cannot be used. `problems` has every reason, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "cannot use the kubelet configuration:\n" + "\n".join(f"  {problem}" for problem in self.problems)


class UnusableConfiguration(Exception):
    """Flags and files with which an agent cannot start; the message has every reason."""


def located(problems: Iterable[Problem], sources: Mapping[str, Origin]) -> list[Problem]:
    """The problems with the place of their field, or of the nearest field around it that was written."""
    return [problem if problem.file else _located(problem, sources) for problem in problems]


def _located(problem: Problem, sources: Mapping[str, Origin]) -> Problem:
    field = problem.field
    while field and field not in sources:
        field = field[: max(field.rfind("."), field.rfind("["), 0)]
    origin = sources.get(field)
    return problem._replace(file=origin.file, line=origin.line) if origin else problem

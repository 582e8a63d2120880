"""Errors of a configuration with their field, file and line, as readers and rules report them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

MAX_PROBLEMS = 100
"""Limit of reported errors, which also limits the work that a hostile file can cause."""

_MAX_SHOWN = 300


def file_name(path: str) -> str:
    """The path as text for people and JSON, with escapes for bytes that are not UTF-8."""
    return os.fsencode(path).decode(errors="backslashreplace")


class Problem(NamedTuple):
    """An error: the field in Kubernetes' notation ("" for the whole), the message, and the place if known."""

    field: str
    message: str
    file: str = ""
    """The file or the flag with the value."""
    line: int = 0
    """From 1; 0: none."""
    is_remark: bool = False
    """True for the kubelet's own warning of a value that has its effect."""

    @property
    def place(self) -> str:
        """`FILE:LINE`, `FILE`, or empty."""
        return f"{self.file}:{self.line}" if self.file and self.line else self.file

    def __str__(self) -> str:
        field = self.field if len(self.field) <= _MAX_SHOWN else f"{self.field[:_MAX_SHOWN]}..."
        return ": ".join(part for part in (self.place, field, self.message) if part)


class Origin(NamedTuple):
    """The file and line, or the flag, of a field's value."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class ConfigurationError(Exception):
    """An invalid configuration. `problems` has all errors in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "cannot use the kubelet configuration:\n" + "\n".join(f"  {problem}" for problem in self.problems)


def located(problems: Iterable[Problem], sources: Mapping[str, Origin]) -> list[Problem]:
    """The problems with the place of their field, or of its nearest parent with a source."""
    return [problem if problem.file else _located(problem, sources) for problem in problems]


def _located(problem: Problem, sources: Mapping[str, Origin]) -> Problem:
    field = problem.field
    while field and field not in sources:
        field = field[: max(field.rfind("."), field.rfind("["), 0)]
    origin = sources.get(field)
    return problem._replace(file=origin.file, line=origin.line) if origin else problem

"""What is wrong with a manifest, and where: the error and the warning a person acts on.

Covers the records and the exception. Does not cover field paths (`proto.fieldpath`) or what counts as wrong
(`manifest.py`, `validation.py`).
"""

from typing import NamedTuple

from proto.fieldpath import Path


class Violation(NamedTuple):
    """One rule broken: the field and the problem, in the API server's words where it has some."""

    path: Path
    problem: str


class ManifestWarning(NamedTuple):
    """Something that does not stop the pod but is hardly meant, with its line (from 1)."""

    line: int
    field: str
    problem: str


class ManifestError(Exception):
    """A manifest that cannot be used: `file`, `line` (from 1, 0 if unknown), `field` ("" for the whole), `problem`.

    `others` lists further problems of the same file, each as "line N: field: problem".
    """

    def __init__(self, file: str, line: int, field: str, problem: str, others: tuple[str, ...] = ()) -> None:
        super().__init__(file, line, field, problem, others)
        self.file = file
        self.line = line
        self.field = field
        self.problem = problem
        self.others = others

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        field = f"{self.field}: " if self.field else ""
        more = f" (and {len(self.others)} more: {'; '.join(self.others)})" if self.others else ""
        return f"cannot use manifest {place}: {field}{self.problem}{more}"

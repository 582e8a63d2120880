"""What is wrong with a manifest, and where: the error and the warning a person acts on.

Covers the records and the exception. Does not cover field paths (`proto.schema.fieldpath`) or what counts as wrong
(`manifest.py`, `validation.py`).
"""

from typing import NamedTuple

from actors._files.problems import FileError
from proto.schema.fieldpath import Path


class Violation(NamedTuple):
    """One rule broken: the field and the problem, in the API server's words where it has some."""

    path: Path
    problem: str


class ManifestWarning(NamedTuple):
    """Something that does not stop the pod but is hardly meant, with its line (from 1)."""

    line: int
    field: str
    problem: str


class ManifestError(FileError):
    """A manifest that cannot be used."""

    what = "manifest"

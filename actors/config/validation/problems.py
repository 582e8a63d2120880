"""The error, warning and violation records of a manifest. `proto.schema.fieldpath` has the field paths."""

from __future__ import annotations

from typing import NamedTuple

from actors._files.problems import FileError
from proto.schema import fieldpath


class Path(tuple[str | int, ...]):
    """A field's path; `path / "name"` is the path of a field or an item below it."""

    __slots__ = ()

    def __truediv__(self, part: str | int) -> Path:
        return Path((*self, part))


class Violation(NamedTuple):
    """A broken rule: the field and the problem, in the API server's words where it has some."""

    path: fieldpath.Path
    problem: str


class ManifestWarning(NamedTuple):
    """A likely mistake that does not stop the pod, with its line (from 1)."""

    line: int
    field: str
    problem: str


class ManifestError(FileError):
    """A manifest that cannot be used."""

    what = "manifest"

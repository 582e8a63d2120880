"""Reads and decodes one configuration file, with the line of every error.

A file that changes during the read is read again, so that its content is from one moment. The kubelet decodes the file
of --config leniently when strict decoding finds unknown fields or repeated keys. So these are no errors. In a drop-in
the kubelet ignores unknown fields and refuses repeated keys (pkg/kubelet/kubeletconfig/util/codec). YAML is imported at
the first call.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Container
from typing import TYPE_CHECKING, Any, NamedTuple

from supervisor.config.kubeletconfig.problems import MAX_PROBLEMS, Origin, Problem, file_name
from supervisor.config.kubeletconfig.typed.decode import decode
from supervisor.config.kubeletconfig.typed.types import KubeletConfiguration

if TYPE_CHECKING:
    from proto.schema.fieldpath import Path

MAX_BYTES = 1024 * 1024
"""The limit of a ConfigMap. A complete configuration has about 10 KiB."""
_ATTEMPTS = 3


class Loaded(NamedTuple):
    """A decoded file. With `errors`, it must not be used."""

    file: str
    config: KubeletConfiguration
    """The configuration without defaults."""
    value: dict[str, Any]
    """The plain values of the file, which drop-ins merge."""
    sources: dict[str, Origin]
    """File and line of every field, by its path in Kubernetes' notation: `evictionHard[memory.available]`."""
    errors: tuple[Problem, ...] = ()
    ignored: tuple[Problem, ...] = ()
    """Unknown fields, which are in no value here, and repeated keys of --config, of which the last value counts."""
    warnings: tuple[Problem, ...] = ()

    def problems(self) -> list[Problem]:
        """All that strict decoding refuses, in the order of the file."""
        return sorted(self.errors + self.ignored, key=lambda problem: problem.line)


class ReadError(Exception):
    """The file cannot be read as a whole. `problem` has the reason and the remedy."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def load(path: str | os.PathLike[str], *, drop_in: bool = False) -> Loaded:
    """Read and decode a YAML or JSON file. Errors are in `errors`; it raises none."""
    try:
        return parse(file_name(os.fspath(path)), read(os.fspath(path)), drop_in=drop_in)
    except ReadError as error:
        return _failed(error.problem)


def parse(file: str, data: bytes, *, drop_in: bool = False) -> Loaded:
    """Decode a file's bytes. `file` is its name for errors.

    In a `drop_in`, null entries of maps are valid. They are in `value` only, for the merge. Repeated keys are errors.
    """
    from proto.schema.document import DocumentError, Finding, Limits  # noqa: PLC0415 - loads YAML
    from proto.schema.document import parse as parse_document  # noqa: PLC0415
    from proto.schema.fieldpath import field_text  # noqa: PLC0415

    repeated: list[Finding] = []
    limits = Limits(MAX_BYTES, "a configuration", "a KubeletConfiguration")
    try:
        document = parse_document(data, limits, None if drop_in else repeated)
    except DocumentError as error:
        return _failed(Problem(field_text(error.path), error.problem, file, error.line))
    unknown: dict[Path, str] = {}
    decoded = decode(document.value, file, document.line, unknown, drop_in=drop_in)
    found = [
        Finding(document.line(path), path, problem) for path, problem in itertools.islice(unknown.items(), MAX_PROBLEMS)
    ]
    ignored = sorted([*repeated[:MAX_PROBLEMS], *found], key=lambda finding: finding.line)
    warnings = []
    if document.next_document_line:
        text = "only the first document of a file is read; put the others into drop-ins"
        warnings.append(Problem("", text, file, document.next_document_line))
    return Loaded(
        file,
        decoded.config,
        _without(document.value, unknown) if isinstance(document.value, dict) else {},
        {
            field_text(path): Origin(file, line)
            for path, line in document.lines.items()
            if path and not _within(path, unknown)
        },
        tuple(sorted(decoded.problems, key=lambda problem: problem.line)),
        tuple(Problem(field_text(path), problem, file, line) for line, path, problem in ignored[:MAX_PROBLEMS]),
        tuple(warnings),
    )


def _without(value: Any, unknown: Container[Path], path: Path = ()) -> Any:
    """A plain value without unknown fields."""
    if isinstance(value, dict):
        inner = ((key, (*path, key), item) for key, item in value.items())
        return {key: _without(item, unknown, here) for key, here, item in inner if here not in unknown}
    if isinstance(value, list):
        return [_without(item, unknown, (*path, index)) for index, item in enumerate(value)]
    return value


def _within(path: Path, unknown: Container[Path]) -> bool:
    return any(path[:length] in unknown for length in range(1, len(path) + 1))


def read(path: str) -> bytes:
    """The whole content of a regular file at one moment. Raises ReadError.

    The file is opened once, so the exchange of a symbolic link, as in a ConfigMap volume, has no effect. A file that is
    written during the read is read again, at most _ATTEMPTS times.
    """
    try:
        for _ in range(_ATTEMPTS):
            data = _read_once(path)
            if data is not None:
                return data
    except (OSError, ValueError) as error:
        raise ReadError(Problem("", _reason(path, error), file_name(path))) from error
    raise ReadError(Problem("", "is being written; write another file and rename it over this one", file_name(path)))


def _read_once(path: str) -> bytes | None:
    # Non-blocking, because open() would wait for the writer of a FIFO.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as file:
        before = os.fstat(descriptor)
        if stat.S_ISDIR(before.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(before.st_mode):
            raise ReadError(Problem("", "is not a regular file", file_name(path)))
        parts = []
        size = 0
        while size <= MAX_BYTES and (part := file.read(MAX_BYTES + 1 - size)):
            parts.append(part)
            size += len(part)
        if size > MAX_BYTES:
            text = f"is larger than a configuration may be ({MAX_BYTES} bytes)"
            raise ReadError(Problem("", text, file_name(path)))
        after = os.fstat(descriptor)
    same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns) and size == after.st_size
    return b"".join(parts) if same else None


def _reason(path: str, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        if os.path.islink(path):
            return "is a symbolic link without a target; restore its target"
        return "does not exist; check the path, or leave the flag out for the defaults"
    if isinstance(error, IsADirectoryError):
        return "is a directory, not a file; a directory of drop-ins is given with --config-dir"
    if isinstance(error, PermissionError):
        return f"cannot be read: {error.strerror}; check the permissions of the file and of the directories above it"
    return f"cannot be read: {error.strerror if isinstance(error, OSError) else error}"


def _failed(problem: Problem) -> Loaded:
    return Loaded(problem.file, KubeletConfiguration(), {}, {}, (problem,))

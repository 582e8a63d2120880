"""Reads state files that may be damaged, and decodes JSON from outside: such files, answers of servers, annotations.

The decoder raises UnicodeDecodeError for bytes that are not UTF-8, and RecursionError for deep nesting. A reader that
expects DecodeError alone would crash at every start. `decode_json` raises DecodeError for all of them.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")


def read_file(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """The content of a regular file, also behind a link; never blocks on a FIFO or a device.

    Raises OSError: EINVAL for another kind of file, EFBIG beyond `most_bytes`.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        if status.st_size > most_bytes:
            raise OSError(errno.EFBIG, f"it has {status.st_size} bytes, more than {most_bytes}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(most_bytes)
    finally:
        os.close(descriptor)


@overload
def decode_json(content: bytes | bytearray | memoryview | str) -> Any: ...
@overload
def decode_json(content: bytes | bytearray | memoryview | str, kind: type[T]) -> T: ...
@overload
def decode_json(content: bytes | bytearray | memoryview | str, kind: Any) -> Any: ...
def decode_json(content: Any, kind: Any = Any) -> Any:
    """The value in `content`, of type `kind`.

    Raises msgspec.DecodeError, and no other error, for content that is not JSON, too deep, or of another type.
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"it is not UTF-8: {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise msgspec.DecodeError("it is nested too deeply") from error


def refuse_repeated_keys(content: bytes | str) -> None:
    """Raises msgspec.DecodeError when an object in this JSON text has a key twice, as Go's strict decoding does.

    `decode_json` takes the last value then.
    """

    def check(pairs: list[tuple[str, Any]]) -> None:
        if len({key for key, _ in pairs}) < len(pairs):
            raise msgspec.DecodeError("an object has a key twice")

    try:
        json.loads(content, object_pairs_hook=check)
    except (ValueError, RecursionError) as error:
        if isinstance(error, msgspec.DecodeError):
            raise
        raise msgspec.DecodeError(f"it is not JSON: {error}") from None


def load_yaml(content: bytes) -> Any:
    """The value of a YAML document, as YAML 1.1 types it. Raises yaml.YAMLError, and no other error.

    PyYAML's constructors raise errors of Python as well: for the date 2001-01-00, `!!bool x` or `!!int ""`.
    """
    import yaml  # noqa: PLC0415 - 2 MB in each process that has it

    try:
        return yaml.load(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        raise
    except Exception as error:
        raise yaml.YAMLError(f"a value cannot be read: {error or type(error).__name__}") from error

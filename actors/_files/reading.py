"""Parses many files in a short-lived child process, so that the actor does not keep YAML and its memory.

Handles files that hang or kill the child. The caller defines the content of a file.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from actors._base.process.run_in_subprocess import run_each_in_subprocess
from actors._files.problems import FileError

FILE_S = 10.0
"""Time for one file. A hundred manifests take a quarter of a second together."""

T = TypeVar("T")


def divided(contents: Mapping[str, bytes | FileError]) -> tuple[dict[str, bytes], dict[str, FileError]]:
    """The readable contents of a scan, and the errors of the other files."""
    found: dict[str, bytes] = {}
    errors: dict[str, FileError] = {}
    for path, content in contents.items():
        if isinstance(content, FileError):
            errors[path] = content
        else:
            found[path] = content
    return found, errors


class Reader(Generic[T]):
    """Parses files of one kind."""

    def __init__(self, result: type[T], load: Callable[[str, bytes], T], failed: Callable[[str, str], T]) -> None:
        """`load` makes a result of a path and its content. msgspec can encode it, and `load` raises nothing. `failed`
        makes a result of a path and a reason."""
        # Any: msgspec's types cannot express a decoder for a type variable.
        self._decoder: Any = msgspec.msgpack.Decoder(result)
        self._load, self._failed = load, failed

    def read(self, contents: Mapping[str, bytes]) -> dict[str, T]:
        """The result of every file. For a pool thread. A file that takes too long or kills the child gets a result by
        `failed`, and the others are still parsed.

        Raises OSError when no process can be started.
        """
        works = [functools.partial(self._one, path, content) for path, content in contents.items()]
        answers = zip(contents, run_each_in_subprocess(works, FILE_S), strict=True)
        return {
            path: self._failed(path, f"cannot be read: {answer}")
            if isinstance(answer, Exception)
            else self._decoder.decode(answer)
            for path, answer in answers
        }

    def _one(self, path: str, content: bytes) -> bytes:
        """Parse a file in the child process."""
        return msgspec.msgpack.encode(self._load(path, content))


def longest_s(contents: Mapping[str, bytes]) -> float:
    """The longest time of `read`, in seconds."""
    return FILE_S * (len(contents) + 1)

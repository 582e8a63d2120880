"""Files parsed in a process of a moment, many at once, so that YAML and its memory are not the actor's to keep.

Covers the way there and back, and files that are the end of such a process. What a file must be is the caller's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from actors._base.process.run_in_subprocess import run_each_in_subprocess
from actors._files.problems import FileError

FILE_S = 10.0
"""For one file; a hundred manifests take a quarter of a second together."""

T = TypeVar("T")


def divided(contents: Mapping[str, bytes | FileError]) -> tuple[dict[str, bytes], dict[str, FileError]]:
    """What there is to read, and what is wrong with the other files of a look."""
    found: dict[str, bytes] = {}
    errors: dict[str, FileError] = {}
    for path, content in contents.items():
        if isinstance(content, FileError):
            errors[path] = content
        else:
            found[path] = content
    return found, errors


class Reader(Generic[T]):
    """Reads files of one kind."""

    def __init__(self, result: type[T], load: Callable[[str, bytes], T], failed: Callable[[str, str], T]) -> None:
        """`load` makes of a path and what it holds a result that msgspec can encode, and raises nothing; `failed` makes
        one of a path and the reason why there is none."""
        # Typed by what is given, as a type variable cannot say.
        self._decoder: Any = msgspec.msgpack.Decoder(result)
        self._load, self._failed = load, failed

    def read(self, contents: Mapping[str, bytes]) -> dict[str, T]:
        """Of every file. For a pool thread. A file that takes too long, or that its process dies of, has a result that
        says so, and the others are read all the same.

        Raises OSError when there can be no process.
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
        """In the child."""
        return msgspec.msgpack.encode(self._load(path, content))


def longest_s(contents: Mapping[str, bytes]) -> float:
    """How long `read` may take at most."""
    return FILE_S * (len(contents) + 1)

"""Files parsed in a process of a moment, many at once, so that YAML and its memory are not the actor's to keep.

Covers the way there and back, and files that are the end of such a process. What a file must be is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from actors._base.aside import AsideError, aside
from actors._files.problems import FileError

READING_S = 20.0
"""For all files of one look, or for one of them alone; a hundred manifests take a quarter of a second."""
LONGEST_S = 3 * READING_S
"""Of `read`, when one file takes too long: all together, that one, and the others."""

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
        self._decoder: Any = msgspec.msgpack.Decoder(dict[str, result])  # type: ignore[valid-type]
        self._load, self._failed = load, failed

    def read(self, contents: Mapping[str, bytes]) -> dict[str, T]:
        """Of every file. For a pool thread. A process that dies of a file is that file's trouble, told as its result.

        Raises OSError when there can be no process.
        """
        try:
            return self._read(contents)
        except (AsideError, TimeoutError) as error:
            if len(contents) == 1:
                path = next(iter(contents))
                return {path: self._failed(path, f"cannot be read: {error}")}
        # Each alone, so that one does not stand in the way of the others.
        return {path: read for one in contents.items() for path, read in self.read(dict([one])).items()}

    def _read(self, contents: Mapping[str, bytes]) -> dict[str, T]:
        def work() -> bytes:
            return msgspec.msgpack.encode({path: self._load(path, content) for path, content in contents.items()})

        result: dict[str, T] = self._decoder.decode(aside(work, READING_S))
        return result

"""Layers on top of each other: what a path leads to in all of them together, never out of them.

A layer is a directory of files; besides, its `Hidden` says what it hides of those below. Covers looking up and
resolving links as overlayfs would show them, without mounting anything; unpack.py writes layers.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

MOST_LINKS = 40
"""Links followed on one way, as the kernel does; more is a circle."""


@dataclass(slots=True)
class Hidden:
    """What a layer hides of the layers below it. Paths are relative, without `.`, `..` or a slash at either end."""

    whiteouts: set[str] = field(default_factory=set)
    """What is deleted."""
    opaque: set[str] = field(default_factory=set)
    """Directories of which nothing below shows."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: where its files are, and what it hides."""

    path: str
    hidden: Hidden


class Stack:
    """Layers, the uppermost first."""

    def __init__(self, layers: Sequence[Layer], work: Callable[[int], None] = lambda _: None) -> None:
        """`work` is told how many looks at a name are about to be taken, and may raise."""
        self.layers = tuple(layers)
        self._work = work

    def find(self, relative: str) -> tuple[str, os.stat_result] | None:
        """What shows at this path, links not followed: its real path in its layer; None when nothing does.

        A link on the way is no directory: use `resolve` for a path that anybody wrote.
        """
        looks = relative.count("/") + 1
        for layer in self.layers:
            self._work(looks)
            path, covers = _look(layer, relative)
            if path:
                return path, os.lstat(path)
            if covers:
                return None
        return None

    def resolve(self, path: str) -> tuple[str, os.stat_result | None]:
        """Follow every link in `path` within the stack: (the relative path, what is there or None).

        `..` at the root stays there. Raises OSError for a circle of links, and for a way through a file.
        """
        todo = [part for part in path.split("/") if part not in ("", ".")][::-1]
        done: list[str] = []
        links = 0
        found: os.stat_result | None = self._root()
        while todo:
            self._work(1)
            part = todo.pop()
            if part == "..":
                del done[-1:]
                continue
            here = "/".join([*done, part])
            shown = self.find(here)
            if shown is None:
                # Nothing below it can be there either; `..` in the rest is taken by the letter.
                return _plain([*done, part, *reversed(todo)]), None
            real, found = shown
            if stat.S_ISLNK(found.st_mode):
                links += 1
                if links > MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                target = os.readlink(real)
                if target.startswith("/"):
                    done.clear()
                todo += [part for part in target.split("/") if part not in ("", ".")][::-1]
                found = self._root()
                continue
            if todo and not stat.S_ISDIR(found.st_mode):
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            done.append(part)
        relative = "/".join(done)
        shown = self.find(relative) if relative else None
        return relative, shown[1] if shown else found

    def open(self, path: str) -> int | None:
        """A descriptor to read the regular file that `path` leads to; None when there is none."""
        try:
            relative, status = self.resolve(path)
        except OSError:
            return None
        shown = self.find(relative) if status is not None and relative else None
        if shown is None or not stat.S_ISREG(shown[1].st_mode):
            return None
        return os.open(shown[0], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)

    def _root(self) -> os.stat_result | None:
        return os.lstat(self.layers[0].path) if self.layers else None


def _look(layer: Layer, relative: str) -> tuple[str, bool]:
    """The path of what one layer has there, or empty; and whether it hides that place in the layers below.

    Goes down step by step: a link in a lower layer that a directory of an upper one covers must not be followed.
    """
    place, covered = "", "" in layer.hidden.opaque
    parts = relative.split("/") if relative else []
    for number, part in enumerate(parts, 1):
        place = f"{place}/{part}" if place else part
        if place in layer.hidden.whiteouts:
            return "", True
        path = os.path.join(layer.path, place)
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return "", covered
        if number == len(parts):
            return path, True
        if not stat.S_ISDIR(status.st_mode):
            return "", True
        covered = covered or place in layer.hidden.opaque
    return layer.path, True


def _plain(parts: list[str]) -> str:
    done: list[str] = []
    for part in parts:
        if part == "..":
            del done[-1:]
        else:
            done.append(part)
    return "/".join(done)

"""Stacked layers: looks up paths and resolves links in all of them, never outside, as overlayfs shows them.

A layer is a directory of files, with a `Hidden` that says which files of lower layers it hides. Nothing is mounted.
unpack.py writes layers.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

MOST_LINKS = 40
"""Links followed in one lookup, as in the kernel; more are a loop."""


@dataclass(slots=True)
class Hidden:
    """The paths of lower layers that a layer hides: relative, without `.`, `..` and outer slashes."""

    whiteouts: set[str] = field(default_factory=set)
    """Deleted paths."""
    opaque: set[str] = field(default_factory=set)
    """Directories whose lower content is hidden."""

    def below(self, place: str) -> Hidden:
        """The paths hidden below the directory `place`, relative to it."""
        prefix = f"{place}/" if place else ""
        return Hidden(
            {path.removeprefix(prefix) for path in self.whiteouts if path.startswith(prefix)},
            {path.removeprefix(prefix) for path in self.opaque if path.startswith(prefix)},
        )


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer's directory and its hidden paths."""

    path: str
    hidden: Hidden


class Stack:
    """Layers, the topmost first."""

    def __init__(self, layers: Sequence[Layer], work: Callable[[int], None] = lambda _: None) -> None:
        """`work` is called with the number of lookups ahead, and may raise."""
        self.layers = tuple(layers)
        self._work = work

    def find(self, relative: str) -> tuple[str, os.stat_result] | None:
        """The real path and status of the file that shows at a path; None when none does.

        Follows no links: a link among the parents is not a directory. Use `resolve` for paths from outside.
        """
        looks = relative.count("/") + 1
        for layer in self.layers:
            self._work(looks)
            path, covers = _resolve_in(layer, relative)
            if path:
                return path, os.lstat(path)
            if covers:
                return None
        return None

    def resolve(self, path: str) -> tuple[str, os.stat_result | None]:
        """Resolve all links of `path` in the stack: (relative path, status or None).

        `..` at the root stays there. Raises OSError for a loop of links, for a parent that is a file, and for a missing
        parent before `..`.
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
                if ".." in todo:  # by text it could lead to a link
                    raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
                return "/".join([*done, part, *reversed(todo)]), None
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

    def directory(self, relative: str) -> Stack:
        """The stack of a directory's files alone, given its real path as of `resolve`; empty without the directory."""
        inside: list[Layer] = []
        way = ["", *itertools.accumulate(relative.split("/"), "{}/{}".format)] if relative else [""]
        for layer in self.layers:
            path, covers = _resolve_in(layer, relative)
            if path:
                if not stat.S_ISDIR(os.lstat(path).st_mode):
                    break
                inside.append(Layer(path, layer.hidden.below(relative)))
                covers = not layer.hidden.opaque.isdisjoint(way)
            if covers:
                break
        return Stack(inside, self._work)

    def open(self, path: str) -> int | None:
        """A descriptor of the regular file that `path` leads to, for reading; None without one."""
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


def _resolve_in(layer: Layer, relative: str) -> tuple[str, bool]:
    """The real path in one layer, or empty; and True if it hides the path in lower layers.

    Goes down component by component: a lower layer's link that an upper directory covers must not be followed.
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

"""Chooses the SELinux labels of sandboxes and containers. Pure.

A label is USER:ROLE:TYPE:LEVEL. A level here is a sensitivity with two of 1024 categories, as `s0:c1,c2`. Source of the
behaviour: InitLabels, DupSecOpt and Relabel of opencontainers/selinux, which containerd and CRI-O call.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from typing import NamedTuple

CATEGORIES = 1024
LEVELS = CATEGORIES * (CATEGORIES - 1) // 2
"""Pairs of categories: so many pods may have a level of their own."""
SHARED_LEVEL = "s0"
"""Processes of each level may use files of this one."""
_RESERVED = f"s0:c{CATEGORIES - 2},c{CATEGORIES - 1}"
"""Files that other runtimes make for containers without labels have it (PrivContainerMountLabel)."""
_CATEGORY = r"c\d{1,4}(?:\.c\d{1,4})?"
_ONE_LEVEL = rf"s\d(?::{_CATEGORY}(?:,{_CATEGORY})*)?"
_LEVEL = re.compile(rf"{_ONE_LEVEL}(?:-{_ONE_LEVEL})?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_.]{1,128}", re.ASCII)
_MACHINES_OWN = (
    *("/", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp"),
    *("/var", "/var/cache", "/var/lib", "/var/lib/kubelet", "/var/lib/kubelet/pods", "/var/log", "/var/log/pods"),
    *("/var/run", "/var/spool", "/var/tmp"),
)
_WITH_ALL_BELOW = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr")


class BadLabel(ValueError):
    """No label can be made as asked; the message says why."""


class Context(NamedTuple):
    """A label in its parts."""

    user: str
    role: str
    type: str
    level: str = ""
    """Empty where the policy has no levels."""

    def __str__(self) -> str:
        return ":".join(part for part in self if part)


class Options(NamedTuple):
    """The parts of a label that CRI's SELinuxOption asks for; empty for the default."""

    user: str = ""
    role: str = ""
    type: str = ""
    level: str = ""


class Defaults(NamedTuple):
    """The labels that the policy has for containers."""

    process: Context
    file: Context


class Labels(NamedTuple):
    """The labels of a sandbox or a container; empty for none."""

    process: str = ""
    mount: str = ""


NONE = Labels()


def parse(label: str) -> Context:
    """The parts of a label. Raises BadLabel."""
    parts = label.split(":", 3)
    if len(parts) < 3 or not all(parts[:3]):
        raise BadLabel(f"{label[:200]!r} is no SELinux label: it has no user, role and type")
    return Context(*parts)


def level(taken: Collection[str], start: int) -> str:
    """A level that is not `taken`, the first one from number `start` on. Raises BadLabel."""
    for offset in range(LEVELS):
        found = _level_of((start + offset) % LEVELS)
        if found not in taken and found != _RESERVED:
            return found
    raise BadLabel("each SELinux level is that of a pod; end pods")


def _level_of(number: int) -> str:
    """The pair of categories with this number, below LEVELS.

    A row of the lower half of first categories is filled up by one of the upper half, so all rows are equally long.
    """
    row, column = divmod(number, CATEGORIES - 1)
    if column >= row:
        return f"s0:c{row},c{column + 1}"
    return f"s0:c{CATEGORIES - 1 - row},c{CATEGORIES - 1 - column}"


def require_valid(options: Options) -> None:
    """Require options that stay in their parts of a label. Raises BadLabel."""
    for name in ("user", "role", "type"):
        value = getattr(options, name)
        if value and not _NAME.fullmatch(value):
            raise BadLabel(f"{value[:200]!r} is no SELinux {name}; give letters, digits, underscores and dots")
    if options.level and not _LEVEL.fullmatch(options.level):
        raise BadLabel(f"{options.level[:200]!r} is no SELinux level; give one as s0:c1,c2")


def labels(found: Defaults, options: Options, own_level: str) -> Labels:
    """The labels for these options, with `own_level` where they ask for none. Raises BadLabel.

    Files have the type of all containers' files: the options' role and type are the process's.
    """
    require_valid(options)
    chosen = (options.level or own_level) if found.process.level else ""
    process, file = found.process, found.file
    return Labels(
        str(Context(options.user or process.user, options.role or process.role, options.type or process.type, chosen)),
        str(Context(options.user or file.user, file.role, file.type, chosen)),
    )


def of_pod(process_label: str) -> Options:
    """The options that give a container its sandbox's labels."""
    return Options(*parse(process_label))


def shared(mount_label: str) -> str:
    """The label of files that processes of all levels may use."""
    found = parse(mount_label)
    return str(found._replace(level=SHARED_LEVEL if found.level else ""))


def level_of(label: str) -> str:
    """The level of a label; empty without one."""
    return parse(label).level if label else ""


def require_not_machines(path: str) -> None:
    """Require that files at `path`, an absolute path without links, may get another label. Raises BadLabel.

    Programs of the machine could not use their files any more. The list is longer than that of opencontainers/selinux.
    """
    real = os.path.normpath(f"/{path.lstrip('/')}")
    if real in _MACHINES_OWN or f"{real}/".startswith(tuple(f"{one}/" for one in _WITH_ALL_BELOW)):
        raise BadLabel(f"cannot give {real} a container's SELinux label: it is the machine's; mount another directory")

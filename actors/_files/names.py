"""Decides which files of a directory are used, and when a file is complete. Pure."""

from typing import NamedTuple

_EDITOR_PREFIXES = (".", "#")
_EDITOR_SUFFIXES = (
    "~",
    "#",
    ".swp",
    ".swx",
    ".swo",
    ".bak",
    ".tmp",
    ".orig",
    ".rej",
    ".dpkg-new",
    ".dpkg-old",
    ".dpkg-dist",
)
# Vim probes a directory by creating this name, and one more after each clash.
_VIM_PROBES = frozenset({"4913", "5036", "5159"})


def is_meant(name: str) -> bool:
    """True for a name that is neither hidden nor a temporary file of an editor or package manager.

    The kubelet ignores only names that begin with a dot; it would read an editor's incomplete file as a pod.
    """
    return not (name.startswith(_EDITOR_PREFIXES) or name.endswith(_EDITOR_SUFFIXES) or name in _VIM_PROBES)


def is_skipped_here_only(name: str) -> bool:
    """True for a name that the kubelet would read: `is_meant` is false, and it does not begin with a dot."""
    return not name.startswith(".") and not is_meant(name)


QUIET_S = 5.0
"""A file without a write for this time is read although its writer still holds it open."""


class Writing(NamedTuple):
    """A file that was created or written and not yet closed: the last event, and its age in seconds."""

    only_created: bool
    age_s: float


def is_being_written(writing: Writing | None, has_other_name: bool) -> bool:
    """True while a file is incomplete: half of a file may be valid with another meaning.

    A link that was just created has its content already, and its creator never closes it.
    """
    if writing is None or writing.age_s >= QUIET_S:
        return False
    return not (writing.only_created and has_other_name)

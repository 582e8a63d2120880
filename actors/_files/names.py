"""Which files of a directory count, and when one is complete. Pure."""

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
    """True when a directory entry may be meant for us: not hidden, not an editor's or package manager's leftover.

    The kubelet ignores only names that begin with a dot; a half-written editor file would be a pod to it, or an error.
    """
    return not (name.startswith(_EDITOR_PREFIXES) or name.endswith(_EDITOR_SUFFIXES) or name in _VIM_PROBES)


QUIET_S = 5.0
"""A file that nobody has written to for so long is taken as it is, though its writer still holds it open."""


class Writing(NamedTuple):
    """A file that was created or written to and not yet closed: what was seen last, and how long ago in seconds."""

    only_created: bool
    age_s: float


def is_being_written(writing: Writing | None, has_other_name: bool) -> bool:
    """True when to leave a file alone for now: a half-written file may be a valid one that nobody meant.

    A link that was just created has its content already, and its creator never closes it.
    """
    if writing is None or writing.age_s >= QUIET_S:
        return False
    return not (writing.only_created and has_other_name)

"""Labels that the kernel's policy knows: its labels for containers, those of sandboxes, and of files of ours."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from actors._host.selinux import SELinux
from actors.runtime.selinux.labels import LEVELS, BadLabel, Defaults, Labels, Options, labels, level, parse

ATTRIBUTE = "security.selinux"
"""Extended attribute of a file."""
FILE_SYSTEM = "/sys/fs/selinux"


def find_defaults(machine: SELinux) -> Defaults:
    """The policy's labels for containers. Raises BadLabel, which says what is missing."""
    if not machine.process or not machine.file:
        raise BadLabel("the SELinux policy has no labels for containers; install container-selinux")
    for label in (machine.process, machine.file):
        require_known(label)
    return Defaults(parse(machine.process), parse(machine.file))


def require_known(label: str, file_system: str = FILE_SYSTEM) -> None:
    """Require that the kernel's policy knows a label. Raises BadLabel."""
    try:
        Path(file_system, "context").write_text(label)
    except OSError as error:
        raise BadLabel(
            f"the kernel refuses the SELinux label {label}: {error.strerror}; give a user, role, type and level "
            "that its policy has"
        ) from error


class Labelling:
    """Gives sandboxes and containers their labels. Safe from any thread."""

    def __init__(self, found: Defaults | None, problem: str, in_use: Callable[[], set[str]]) -> None:
        """`found`: the policy's labels; None where this runtime labels nothing.

        `problem`: why, where SELinux is enabled nevertheless. `in_use`: the levels of all pods on record, which a
        restarted runtime reads from the disk.
        """
        self._defaults = found
        self._in_use = in_use
        self._lock = threading.Lock()
        self._pending: set[str] = set()
        self.problem = problem

    @property
    def works(self) -> bool:
        """True where pods get labels."""
        return self._defaults is not None

    @contextlib.contextmanager
    def new_level(self) -> Iterator[str]:
        """A level of no other pod, kept from others until the caller's record is among those in use."""
        if self._defaults is None:
            yield ""
            return
        with self._lock:
            found = level(self._in_use() | self._pending, random.randrange(LEVELS))
            self._pending.add(found)
        try:
            yield found
        finally:
            with self._lock:
                self._pending.discard(found)

    def labels(self, options: Options, own_level: str) -> Labels:
        """The labels for these options. Raises BadLabel, also where labels are asked for that nothing would get."""
        if self._defaults is None:
            if self.problem and any(options):
                raise BadLabel(f"no container can have a SELinux label here: {self.problem}")
            return Labels()
        made = labels(self._defaults, options, own_level)
        for label in made:
            require_known(label)
        return made


def label_file(path: str | Path, label: str) -> None:
    """Label one file of ours, unless the label is empty or its file system has none. Raises OSError."""
    if label:
        try:
            os.setxattr(path, ATTRIBUTE, label.encode(), follow_symlinks=False)
        except OSError as error:
            if error.errno != errno.ENOTSUP:
                raise

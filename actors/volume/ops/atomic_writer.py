"""Replaces all files of a volume atomically, in the kubelet's layout.

    NAME       -> ..data/NAME          one link for each first component of a path
    ..data     -> ..2026_01_02_03_04_05.123456789
    ..2026_01_02_03_04_05.123456789/   the files

One rename of the link `..data` changes all files; a process that opened `..data` before reads the old files. `plan` is
pure, `write` blocks and runs in a helper process. Source: AtomicWriter of pkg/volume/util.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from actors._host.files import trees
from actors._host.files.untrusted_files import open_regular, read_bounded
from actors.volume.ops import ownership
from actors.volume.ops.inside import DIRECTORY, opened
from actors.volume.steps.volumes import File

DATA = "..data"
NEW_DATA = "..data_tmp"
_STAMPED = "..2"
"""Prefix of the directories with files, which begin with the year."""
_MODE = 0o755
_DEEPEST = 100
"""Deepest nesting that is read; desired paths have a few levels."""

Content = Mapping[str, tuple[bytes, int]]
"""Data and permissions by path."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes to a volume's directory, in this order; `files`: write all files first."""

    files: bool
    link: tuple[str, ...] = ()
    unlink: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    """Directories with files that are not in use any more."""


def plan(wanted: Content, present: Content | None, entries: Mapping[str, bool], in_use: str) -> Plan:
    """Compare desired and present files. `in_use`: the target of `..data`; `present`: its files, None without any.

    `entries`: names in the volume's directory, True for a symbolic link. Files show as links only, so a directory is
    the mount point of another volume, ours or a kubelet's. It stays, also in the place of a file.
    """
    heads = {path.partition("/")[0] for path in wanted}
    files = wanted != present
    visible = {name for name in entries if not name.startswith("..")}
    stamped = {name for name in entries if name.startswith(_STAMPED)}
    return Plan(
        files=files,
        link=tuple(sorted(heads - visible)),
        unlink=tuple(sorted(name for name in visible - heads if entries[name])),
        remove=tuple(sorted(stamped if files else stamped - {in_use})),
    )


def write(directory: int, files: Iterable[File], fs_group: int | None = None) -> bool:
    """Write exactly these files to the open directory; False when they were there already. Raises OSError.

    The files get their group before they are visible.
    """
    files = tuple(files)
    wanted = {file.path: (file.data, _mode(file.mode, fs_group)) for file in files}
    in_use = _link_target(directory)
    present = _read(directory, in_use, sum(len(file.data) for file in files))
    todo = plan(wanted, present, _entries(directory), in_use)
    if todo.files:
        stamp = _write_stamped(directory, files, fs_group)
        with suppress(FileNotFoundError):
            os.unlink(NEW_DATA, dir_fd=directory)
        os.symlink(stamp, NEW_DATA, dir_fd=directory)
        os.rename(NEW_DATA, DATA, src_dir_fd=directory, dst_dir_fd=directory)
    for name in todo.link:
        os.symlink(f"{DATA}/{name}", name, dir_fd=directory)
    for name in todo.unlink:
        os.unlink(name, dir_fd=directory)
    for name in todo.remove:
        trees.remove(name, dir_fd=directory)
    if fs_group is not None and not ownership.matches(directory, fs_group, read_only=True):
        ownership.set_directory(directory, fs_group, read_only=True)
    return todo.files


def _entries(directory: int) -> dict[str, bool]:
    with os.scandir(directory) as entries:
        return {entry.name: entry.is_symlink() for entry in entries}


def _mode(mode: int, fs_group: int | None) -> int:
    return mode if fs_group is None else ownership.wanted_mode(stat.S_IFREG | mode, read_only=True)


def _link_target(directory: int) -> str:
    try:
        return os.readlink(DATA, dir_fd=directory)
    except OSError:
        return ""


def _read(directory: int, name: str, most_bytes: int) -> Content | None:
    """The present files; None when there are none, or they exceed `most_bytes`, the size of the desired ones."""
    if not name or "/" in name:
        return None
    found: dict[str, tuple[bytes, int]] = {}
    try:
        with opened(name, DIRECTORY, directory) as fd:
            _read_into(found, fd, "", most_bytes)
    except OSError:  # missing; or a link, a FIFO or a larger file, put there by a container: it is replaced
        return None
    return found


def _read_into(found: dict[str, tuple[bytes, int]], directory: int, prefix: str, left: int) -> int:
    """Returns the bytes of `left` that remain. Raises OSError."""
    if prefix.count("/") > _DEEPEST:
        raise OSError(errno.ENAMETOOLONG, "directories are nested too deep", prefix)
    for name in os.listdir(directory):
        if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            with opened(name, DIRECTORY, directory) as fd:
                left = _read_into(found, fd, f"{prefix}{name}/", left)
        else:
            fd = open_regular(name, beneath=f"/proc/self/fd/{directory}")
            try:
                content = read_bounded(fd, left, name)
                found[prefix + name] = (content, stat.S_IMODE(os.fstat(fd).st_mode))
            finally:
                os.close(fd)
            left -= len(content)
    return left


def _write_stamped(directory: int, files: Iterable[File], fs_group: int | None) -> str:
    now_ns = time.time_ns()
    name = time.strftime("..%Y_%m_%d_%H_%M_%S.", time.gmtime(now_ns // 10**9)) + f"{now_ns % 10**9:09}"
    top = _make(directory, name)
    try:
        for file in files:
            _write_file(top, file)
        if fs_group is not None:
            ownership.set_ownership(top, fs_group, read_only=True)
    except OSError:
        with suppress(OSError):
            trees.remove(name, dir_fd=directory)  # it may be what fills the disk
        raise
    finally:
        os.close(top)
    return name


def _write_file(top: int, file: File) -> None:
    *parents, name = file.path.split("/")
    here = os.dup(top)
    try:
        for parent in parents:
            below = _make(here, parent)
            os.close(here)
            here = below
        # Closed to others until it has its mode: a Secret's defaultMode may be 0400.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=here)
        try:
            view = memoryview(file.data)
            while view:
                view = view[os.write(fd, view) :]
            if file.user is not None:
                os.fchown(fd, file.user, -1)
            os.fchmod(fd, file.mode)
        finally:
            os.close(fd)
    finally:
        os.close(here)


def _make(parent: int, name: str) -> int:
    with suppress(FileExistsError):
        os.mkdir(name, _MODE, dir_fd=parent)
    fd = os.open(name, DIRECTORY, dir_fd=parent)
    os.fchmod(fd, _MODE)  # the umask may have removed bits
    return fd

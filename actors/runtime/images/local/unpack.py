"""Unpacks a layer, a tar stream with changes to the layers below it, into a directory.

The format: https://github.com/opencontainers/image-spec/blob/main/layer.md. The stream is hostile: nothing is read or
written outside the directory. The kernel never follows a link. Each is resolved within the layers (stack.py), and
parents are opened without links (beneath.py). Device files are left out: the OCI runtime gives containers theirs. A
whiteout becomes overlayfs's, a character device 0:0. An opaque directory gets overlayfs's attribute. Both are also
returned to the caller.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tarfile
import zlib
from typing import IO

from actors.runtime.images.errors import BadImage, ImageError, StoreFull
from actors.runtime.images.headers import ArchiveReader, Member, Readable, next_member, opened
from actors.runtime.images.limits import Budget
from actors.runtime.images.local.beneath import Beneath
from actors.runtime.images.local.sparse import copy_file
from actors.runtime.images.local.stack import Hidden, Layer, Stack

WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
OPAQUE_ATTRIBUTES = ("trusted.overlay.opaque", "user.overlay.opaque")
"""overlayfs's attributes: root's, and with its option userxattr other users'."""
_CHUNK = 1024 * 1024
_KNOWN = 4096
"""Number of the layer's directories kept in memory, so that each is looked up once."""
_KEPT_ATTRIBUTES = ("user.", "security.capability")
_XATTR = "SCHILY.xattr."
_FULL = (errno.ENOSPC, errno.EDQUOT)


def unpack(stream: Readable, target: str, below: Stack, budget: Budget) -> Hidden:
    """Unpack `stream` into the new directory `target`; return the paths that it hides of `below`.

    Raises BadImage, StoreFull; the caller removes the unfinished directory.
    """
    os.makedirs(target, mode=0o755)
    root = below.find("")
    if root is not None:
        _copy_attributes(root[0], target, root[1])
    try:
        source = ArchiveReader(stream, budget)
        with contextlib.closing(Beneath(target, budget.work)) as beneath, opened(source) as tar:
            work = _Unpacking(target, beneath, below, budget)
            while (member := next_member(tar, source)) is not None:
                work.add(source, member)
            work.finish()
    except ImageError:
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFull(f"no room for it: {error}") from error
        raise BadImage(f"cannot be unpacked: {error}") from error
    except (tarfile.TarError, EOFError, ValueError, IndexError, zlib.error, RecursionError, OverflowError) as error:
        raise BadImage(f"is no tar file as it should be: {type(error).__name__}: {error}") from error
    return work.hidden


_REMOVAL_STEPS = 500
"""Cost of removing a directory, which is slow on a journalling file system."""


class _Unpacking:
    """The state of unpacking one layer."""

    def __init__(self, target: str, beneath: Beneath, below: Stack, budget: Budget) -> None:
        self.hidden = Hidden()
        self._beneath = beneath
        self._stack = Stack([Layer(target, self.hidden), *below.layers], budget.work)
        self._budget = budget
        self._real = {""}
        """Some paths of the layer that are directories and not links."""
        self._times: dict[str, float] = {}
        self._unmade: dict[str, list[str]] = {}
        """By directory: names hidden there without a device file on the disk."""

    def add(self, source: ArchiveReader, member: Member) -> None:
        """Unpack one member."""
        self._budget.entry()
        path = self._checked(member.name)
        parent, _, name = path.rpartition("/")
        if name.startswith(WHITEOUT):
            self._hide(self._directory(parent), name)
            return
        if not path:
            self._give_attributes("", member)
            return
        place = f"{above}/{name}" if (above := self._directory(parent)) else name
        if member.isdir():
            self._add_directory(place, member)
        elif member.isreg():
            self._add_file(source, place, member)
        elif member.issym():
            self._make_room(place)
            os.symlink(member.linkname, self._in_target(place))
            self._give_attributes(place, member)
        elif member.islnk():
            self._add_link(place, member)
        elif member.isfifo():
            self._make_room(place)
            os.mkfifo(self._in_target(place), 0o600)
            self._give_attributes(place, member)

    def finish(self) -> None:
        """Set the times of directories last: each file added changes its directory's."""
        for place, when in reversed(self._times.items()):
            self._beneath.trim()
            os.utime(self._in_target(place), (when, when), follow_symlinks=False)

    # Names

    def _checked(self, name: str) -> str:
        """A member's path relative to the root, normalized. Raises BadImage for one outside the root."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise BadImage(f"a file name that leads out of the image: {name[:200]!r}")
        if len(parts) > self._budget.limits.depth:
            raise BadImage(f"directories more than {self._budget.limits.depth} deep")
        return "/".join(parts)

    def _in_target(self, place: str) -> str:
        """The path for system calls to `place`, valid until the next `_directory`. Raises OSError for a link above."""
        return self._beneath.path(place)

    def _directory(self, path: str) -> str:
        """The path of the directory `path` with links resolved, created in this layer if only a lower one has it.

        Links are resolved within the image: layers on top of a merged /usr need it.
        """
        self._beneath.trim()
        if path in self._real:
            return path
        self._budget.work(path.count("/") + 1)
        relative, status = self._stack.resolve(path)
        if status is not None:
            self._require_directory(path, status)
        made = ""
        for part in relative.split("/") if relative else ():
            made = f"{made}/{part}" if made else part
            if made not in self._real:
                self._beneath.trim()
                self._ensure(made)
                self._know(made)
        return relative

    def _require_directory(self, place: str, status: os.stat_result) -> None:
        if not stat.S_ISDIR(status.st_mode):
            raise BadImage(f"a file in {place[:200]!r}, which is no directory")

    def _know(self, place: str) -> None:
        if len(self._real) >= _KNOWN:
            self._real = {""}
        self._real.add(place)

    def _note_time(self, place: str, when: float) -> None:
        """Past the limit of noted names a directory keeps the time of its last entry."""
        if place in self._times:
            self._times.pop(place)
        elif not self._budget.note(place):
            self._budget.forget(place)
            return
        self._times[place] = when

    def _ensure(self, place: str) -> None:
        """Make `place` a directory of this layer, with its attributes in the lower ones. Raises BadImage for a file."""
        path = self._in_target(place)
        if place in self.hidden.whiteouts:
            self._make_room(place)
            self._make_opaque(place, new=True)
            return
        if os.path.lexists(path):
            self._require_directory(place, os.lstat(path))
            return
        shown = self._stack.find(place)
        self._budget.entry()
        os.mkdir(path, 0o755)
        if shown is not None:
            self._require_directory(place, shown[1])
            _copy_attributes(shown[0], path, shown[1])
            if place not in self._times:
                self._note_time(place, shown[1].st_mtime)

    # Entries

    def _add_directory(self, place: str, member: Member) -> None:
        path = self._in_target(place)
        hidden = place in self.hidden.whiteouts
        if not os.path.lexists(path) or hidden or not stat.S_ISDIR(os.lstat(path).st_mode):
            self._make_room(place)
            os.mkdir(path, 0o755)
            if hidden:
                self._make_opaque(place, new=False)
        self._know(place)
        self._give_attributes(place, member)

    def _add_file(self, source: ArchiveReader, place: str, member: Member) -> None:
        self._make_room(place)
        pieces = member.pieces()
        self._budget.take(member.size)
        descriptor = os.open(
            self._in_target(place), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with open(descriptor, "wb", buffering=0) as file:
            source.seek(member.offset_data)
            self._budget.work(len(pieces))
            for offset, size in pieces:
                file.seek(offset)
                self._write(source, size, file, place)
            file.truncate(member.size)
        self._give_attributes(place, member)

    def _write(self, source: ArchiveReader, size: int, file: IO[bytes], place: str) -> None:
        left = size
        while left > 0:
            chunk = source.data(min(left, _CHUNK))
            if not chunk:
                raise BadImage(f"ends in the middle of {place[:200]!r}")
            self._budget.check_room(len(chunk))
            file.write(chunk)
            left -= len(chunk)

    def _add_link(self, place: str, member: Member) -> None:
        """Make a hard link to a file of this layer, or to one copied up from a lower layer."""
        wanted = self._checked(member.linkname)
        parent, _, name = wanted.rpartition("/")
        relative, _ = self._stack.resolve(parent)
        source = f"{relative}/{name}" if relative else name
        shown = self._stack.find(source)
        if not name or shown is None or stat.S_ISDIR(shown[1].st_mode):
            raise BadImage(f"a hard link {place[:200]!r} to {member.linkname[:200]!r}, which is no file of the image")
        if source == place:
            return
        if shown[0] != os.path.join(self._stack.layers[0].path, source):
            self._directory(relative)
            self._copy_up(shown[0], self._in_target(source), shown[1])
        path = self._in_target(source)
        self._make_room(place)
        os.link(path, self._in_target(place), follow_symlinks=False)

    def _copy_up(self, source: str, target: str, status: os.stat_result) -> None:
        self._budget.take(status.st_size)
        copy_entry(source, target, status, self._budget)

    def _make_room(self, place: str) -> None:
        """Remove the layer's file at `place`: a later entry of a name replaces an earlier one."""
        path = self._in_target(place)
        self._show(place)
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(status.st_mode):
            self._remove_tree(place)
            self._real = {""}
            self._beneath.forget()
        else:
            os.unlink(path)

    def _remove_tree(self, place: str) -> None:
        """Remove a directory of this layer and all notes on it, in about the time that creating it took."""
        top = self._in_target(place)
        todo = [place]
        emptied = []
        while todo:
            here = todo.pop()
            emptied.append(here)
            self._budget.work(_REMOVAL_STEPS)
            for name in self._unmade.pop(here, ()):
                self._show(f"{here}/{name}")
            if self._times.pop(here, None) is not None:
                self._budget.forget(here)
            if here in self.hidden.opaque:
                self.hidden.opaque.discard(here)
                self._budget.forget(here)
            with os.scandir(top + here.removeprefix(place)) as entries:
                for entry in entries:
                    inner = f"{here}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(inner)
                    else:
                        os.unlink(entry.path)
                        self._show(inner)
        for here in reversed(emptied):
            os.rmdir(top + here.removeprefix(place))

    def _show(self, place: str) -> None:
        if place in self.hidden.whiteouts:
            self.hidden.whiteouts.discard(place)
            self._budget.forget(place)

    # Whiteouts

    def _hide(self, parent: str, name: str) -> None:
        if name == OPAQUE:
            self._make_opaque(parent, new=False)
            return
        hidden = name.removeprefix(WHITEOUT)
        if hidden.startswith(WHITEOUT):
            return  # a file of aufs itself
        if hidden in ("", ".", ".."):
            raise BadImage(f"a whiteout of {hidden!r}")
        place = f"{parent}/{hidden}" if parent else hidden
        path = self._in_target(place)
        if os.path.lexists(path):
            return  # a whiteout hides files of lower layers only
        if place in self.hidden.whiteouts:
            return
        self._note(place)
        self.hidden.whiteouts.add(place)
        try:
            os.mknod(path, stat.S_IFCHR, 0)
        except PermissionError:  # then overlayfs is forbidden, too; copies use the list
            self._unmade.setdefault(parent, []).append(hidden)

    def _note(self, place: str) -> None:
        if not self._budget.note(place):
            raise BadImage(f"it hides more than {self._budget.limits.noted_bytes} bytes of names")

    def _make_opaque(self, place: str, *, new: bool) -> None:
        if new:
            os.mkdir(self._in_target(place), 0o755)
        if place not in self.hidden.opaque:
            self._note(place)
            self.hidden.opaque.add(place)
        for attribute in OPAQUE_ATTRIBUTES:
            try:
                os.setxattr(self._in_target(place), attribute, b"y", follow_symlinks=False)
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP):
                    raise

    # Attributes

    def _give_attributes(self, place: str, member: Member) -> None:
        path = self._in_target(place)
        if os.geteuid() == 0:
            os.chown(path, member.uid, member.gid, follow_symlinks=False)
        for key, value in member.pax_headers.items():
            if key.startswith(_XATTR):
                self._give_attribute(path, key.removeprefix(_XATTR), value)
        if not member.issym():
            mode = member.mode & (0o7777 if self._budget.limits.allow_setuid else 0o1777)
            os.chmod(path, mode)
        if member.isdir():
            self._note_time(place, member.mtime)
        else:
            os.utime(path, (member.mtime, member.mtime), follow_symlinks=False)

    def _give_attribute(self, path: str, name: str, value: str) -> None:
        if not name.startswith(_KEPT_ATTRIBUTES) or name in OPAQUE_ATTRIBUTES or name.startswith("user.overlay."):
            return  # overlayfs obeys trusted.*, and security labels are the machine's
        if name == "security.capability" and not self._budget.limits.allow_setuid:
            return
        try:
            os.setxattr(path, name, value.encode("utf-8", "surrogateescape"), follow_symlinks=False)
        except OSError as error:
            if error.errno in (
                errno.ENOSPC,
                errno.E2BIG,
                errno.ERANGE,
            ):  # the limit of one file's attributes, not a full disk
                raise BadImage(f"an attribute {name[:100]!r} of {len(value)} characters") from error
            if error.errno not in (errno.ENOTSUP, errno.EPERM):
                raise


def is_whiteout(path: str) -> bool:
    """Return True for overlayfs's mark of a deleted file."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def copy_entry(source: str, target: str, status: os.stat_result, budget: Budget) -> None:
    """Copy a file, link or FIFO with its attributes to a free path. Raises OSError, StoreFull, and Cancelled."""
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(source), target)
    elif stat.S_ISREG(status.st_mode):
        copy_file(source, target, budget.check_room)
    elif stat.S_ISFIFO(status.st_mode):
        os.mkfifo(target, 0o600)
    else:
        return
    _copy_attributes(source, target, status)


def _copy_attributes(source: str, target: str, status: os.stat_result) -> None:
    if os.geteuid() == 0:
        os.chown(target, status.st_uid, status.st_gid, follow_symlinks=False)
    for name in _attributes(source):
        if name.startswith(_KEPT_ATTRIBUTES) and name not in OPAQUE_ATTRIBUTES:
            os.setxattr(target, name, os.getxattr(source, name, follow_symlinks=False), follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode):
        os.chmod(target, stat.S_IMODE(status.st_mode))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)


def _attributes(path: str) -> list[str]:
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError:
        return []

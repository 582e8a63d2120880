"""Unpacks one layer, a tar stream, into a directory: changes on top of the layers below it.

The format: https://github.com/opencontainers/image-spec/blob/main/layer.md. Whatever the stream says, nothing is read
or written outside of the directory: no link is ever followed by the kernel, each is resolved within the layers
(stack.py). Devices are left out, a runtime gives a container those it may have. A whiteout becomes overlayfs's own, a
character device 0:0, an opaque directory its attribute; both are also told to the caller.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tarfile
import zlib
from typing import Any, Protocol

from actors.runtime.images.errors import BadImage, ImageError, StoreFull
from actors.runtime.images.limits import Budget
from actors.runtime.images.stack import Hidden, Layer, Stack

WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
OPAQUE_ATTRIBUTES = ("trusted.overlay.opaque", "user.overlay.opaque")
"""overlayfs's of root, and with its option userxattr, of others."""
_CHUNK = 1024 * 1024
_KEPT_ATTRIBUTES = ("user.", "security.capability")
_XATTR = "SCHILY.xattr."
_EXTENSIONS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Readable(Protocol):
    """What a layer is read from."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; less only at the end."""


def unpack(stream: Readable, target: str, below: Stack, budget: Budget) -> Hidden:
    """Unpack `stream` into the new directory `target`; what it hides of `below`.

    Raises BadImage, StoreFull; what was unpacked so far is the caller's to remove.
    """
    os.makedirs(target, mode=0o755)
    root = below.find("")
    if root is not None:
        _copy_attributes(root[0], target, root[1])
    work = _Unpacking(target, below, budget)
    try:
        readable: Any = stream
        with tarfile.open(fileobj=readable, mode="r|", tarinfo=_member_type(budget.limits.header_bytes)) as tar:
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # it would keep each: a million of them are a gigabyte
                work.add(tar, member)
        work.finish()
    except ImageError:
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFull(f"no room for it: {error}") from error
        raise BadImage(f"cannot be unpacked: {error}") from error
    except (tarfile.TarError, EOFError, ValueError, zlib.error, RecursionError, OverflowError) as error:
        raise BadImage(f"is no tar file as it should be: {type(error).__name__}: {error}") from error
    return work.hidden


def _member_type(most_bytes: int) -> type[tarfile.TarInfo]:
    class Member(tarfile.TarInfo):
        """Extended headers are read whole into memory: not of any size."""

        def _proc_member(self, tar: tarfile.TarFile) -> Any:
            if self.type in _EXTENSIONS and self.size > most_bytes:
                raise BadImage(f"a header of {self.size} bytes")
            return super()._proc_member(tar)  # type: ignore[misc]

    return Member


class _Unpacking:
    """One layer on its way."""

    def __init__(self, target: str, below: Stack, budget: Budget) -> None:
        self.hidden = Hidden()
        self._target = target
        self._stack = Stack([Layer(target, self.hidden), *below.layers])
        self._budget = budget
        self._real = {""}
        """Directories known to be there and no links."""
        self._times: dict[str, float] = {}

    def add(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Put one member in its place."""
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
            self._add_file(tar, place, member)
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
        """Directories get their times last: each file put into them changed it."""
        for place, when in reversed(self._times.items()):
            os.utime(self._in_target(place), (when, when), follow_symlinks=False)

    # Names

    def _checked(self, name: str) -> str:
        """The path relative to the root, in plain form. Raises BadImage for one that would lead out of it."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise BadImage(f"a file name that leads out of the image: {name[:200]!r}")
        if len(parts) > self._budget.limits.depth:
            raise BadImage(f"directories more than {self._budget.limits.depth} deep")
        return "/".join(parts)

    def _in_target(self, place: str) -> str:
        return os.path.join(self._target, place)

    def _directory(self, path: str) -> str:
        """The directory that entries below `path` go to, made in this layer where it is only in one below.

        Links on the way are followed within the image, as a build on top of a merged /usr needs it.
        """
        if path in self._real:
            return path
        relative, status = self._stack.resolve(path)
        if status is not None and not stat.S_ISDIR(status.st_mode):
            raise BadImage(f"a file in {path[:200]!r}, which is no directory")
        made = ""
        for part in relative.split("/") if relative else ():
            made = f"{made}/{part}" if made else part
            if made not in self._real:
                self._ensure(made)
                self._real.add(made)
        return relative

    def _ensure(self, place: str) -> None:
        """`place` as a directory of this layer; with the attributes it has below."""
        path = self._in_target(place)
        if os.path.lexists(path):
            if not is_whiteout(path):
                return
            self._make_room(place)
            self._make_opaque(place, new=True)
            return
        shown = self._stack.find(place)
        self._budget.entry()
        os.mkdir(path, 0o755)
        if shown is not None and stat.S_ISDIR(shown[1].st_mode):
            _copy_attributes(shown[0], path, shown[1])
            self._times.setdefault(place, shown[1].st_mtime)

    # Entries

    def _add_directory(self, place: str, member: tarfile.TarInfo) -> None:
        path = self._in_target(place)
        hidden = is_whiteout(path)
        if not os.path.lexists(path) or hidden or not stat.S_ISDIR(os.lstat(path).st_mode):
            self._make_room(place)
            os.mkdir(path, 0o755)
            if hidden:
                self._make_opaque(place, new=False)
        self._real.add(place)
        self._give_attributes(place, member)

    def _add_file(self, tar: tarfile.TarFile, place: str, member: tarfile.TarInfo) -> None:
        self._make_room(place)
        content = tar.extractfile(member)
        if content is None:
            raise BadImage(f"a file without content: {place[:200]!r}")
        descriptor = os.open(
            self._in_target(place), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with open(descriptor, "wb", buffering=0) as file:
            written = 0
            while chunk := content.read(_CHUNK):
                self._budget.take(len(chunk))
                file.write(chunk)
                written += len(chunk)
            if written != member.size:
                raise BadImage(f"ends in the middle of {place[:200]!r}")
        self._give_attributes(place, member)

    def _add_link(self, place: str, member: tarfile.TarInfo) -> None:
        """A hard link to a file of the image: of this layer, or copied up from one below."""
        wanted = self._checked(member.linkname)
        parent, _, name = wanted.rpartition("/")
        relative, _ = self._stack.resolve(parent)
        source = f"{relative}/{name}" if relative else name
        shown = self._stack.find(source)
        if not name or shown is None or stat.S_ISDIR(shown[1].st_mode):
            raise BadImage(f"a hard link {place[:200]!r} to {member.linkname[:200]!r}, which is no file of the image")
        if source == place:
            return
        path = self._in_target(source)
        if not os.path.lexists(path):
            self._directory(relative)
            self._copy_up(shown[0], path, shown[1])
        self._make_room(place)
        os.link(path, self._in_target(place), follow_symlinks=False)

    def _copy_up(self, source: str, target: str, status: os.stat_result) -> None:
        self._budget.take(status.st_size)
        copy_entry(source, target, status)

    def _make_room(self, place: str) -> None:
        """Remove what this layer has at `place`: a later entry of a name replaces the former."""
        path = self._in_target(place)
        self.hidden.whiteouts.discard(place)
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(path)
            self._forget_below(place)
        else:
            os.unlink(path)

    def _forget_below(self, place: str) -> None:
        prefix = f"{place}/"
        gone = {known for known in self._real if known == place or known.startswith(prefix)}
        self._real -= gone
        self.hidden.opaque -= gone
        self.hidden.whiteouts = {known for known in self.hidden.whiteouts if not known.startswith(prefix)}
        for known in [known for known in self._times if known == place or known.startswith(prefix)]:
            del self._times[known]

    # What is hidden

    def _hide(self, parent: str, name: str) -> None:
        if name == OPAQUE:
            self._make_opaque(parent, new=False)
            return
        hidden = name.removeprefix(WHITEOUT)
        if hidden.startswith(WHITEOUT):
            return  # aufs's own book-keeping
        if hidden in ("", ".", ".."):
            raise BadImage(f"a whiteout of {hidden!r}")
        place = f"{parent}/{hidden}" if parent else hidden
        path = self._in_target(place)
        if os.path.lexists(path):
            return  # it hides what is below, not what this layer brings
        self.hidden.whiteouts.add(place)
        try:
            os.mknod(path, stat.S_IFCHR, 0)
        except PermissionError:
            return  # no overlayfs for us either; copies go by the list

    def _make_opaque(self, place: str, *, new: bool) -> None:
        if new:
            os.mkdir(self._in_target(place), 0o755)
        self.hidden.opaque.add(place)
        for attribute in OPAQUE_ATTRIBUTES:
            try:
                os.setxattr(self._in_target(place), attribute, b"y", follow_symlinks=False)
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP):
                    raise

    # Attributes

    def _give_attributes(self, place: str, member: tarfile.TarInfo) -> None:
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
            self._times.pop(place, None)
            self._times[place] = member.mtime
        else:
            os.utime(path, (member.mtime, member.mtime), follow_symlinks=False)

    def _give_attribute(self, path: str, name: str, value: str) -> None:
        if not name.startswith(_KEPT_ATTRIBUTES) or name in OPAQUE_ATTRIBUTES or name.startswith("user.overlay."):
            return  # trusted.* would speak to overlayfs, and labels are the machine's
        if name == "security.capability" and not self._budget.limits.allow_setuid:
            return
        try:
            os.setxattr(path, name, value.encode("utf-8", "surrogateescape"), follow_symlinks=False)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EPERM):
                raise


def is_whiteout(path: str) -> bool:
    """Whether overlayfs's mark of a deleted file is there."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def copy_entry(source: str, target: str, status: os.stat_result) -> None:
    """Copy one file, link or FIFO with all its attributes to a place where nothing is. Raises OSError."""
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(source), target)
    elif stat.S_ISREG(status.st_mode):
        shutil.copyfile(source, target, follow_symlinks=False)
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

"""Binds a path inside a volume for a container's subPath, safe from links that containers plant. Blocks.

A container that may write to the volume can put a link anywhere in it, at any moment (CVE-2017-1002101,
CVE-2021-25741). So the path is opened directory by directory, without following links. Links are read and resolved
likewise, and a path that leads out of the volume is refused. The final descriptor is bound, not a name.

The kubelet follows a link that leaves the volume and comes back. Here it is refused: outside, names may be in another
volume of the same container, which can turn them into links to mounts that hang. Source: pkg/volume/util/subpath.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack, suppress

from actors._host.files import mounts, paths
from actors.volume.ops import setup
from actors.volume.ops.inside import DIRECTORY, PATH, Walk, opened
from actors.volume.steps.errors import VolumeError
from actors.volume.steps.volumes import SubPath

_DIR_MODE = 0o750
_FILE_MODE = 0o640
_STACKED = 8
"""Most stacked mounts that are unmounted at once."""


def bind(root: str, step: SubPath) -> str:
    """Bind the sub path for this volumeMount, and return the path of the bind mount. Idempotent.

    Missing directories get the volume's mode with its set-user-ID, set-group-ID and sticky bits. Raises VolumeError,
    OSError.
    """
    with ExitStack() as stack:
        volume = stack.enter_context(opened(step.volume_path, os.O_PATH | os.O_CLOEXEC))
        source = open_beneath(volume, step.sub_path)
        stack.callback(os.close, source)
        here = stack.enter_context(opened(paths.pods_dir(root), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        for name in (step.uid, paths.SUBPATHS, step.volume, step.container):
            here = setup.ensure_dir(here, name, _DIR_MODE)
            stack.callback(os.close, here)
        index = str(step.index)
        if not _is_bound(here, index, source):
            _make_target(here, index, is_dir=stat.S_ISDIR(os.fstat(source).st_mode))
            mounts.bind(f"/proc/self/fd/{source}", f"/proc/self/fd/{here}/{index}")
    return f"{paths.subpaths_dir(root, step.uid)}/{step.volume}/{step.container}/{index}"


def open_beneath(volume: int, sub_path: str) -> int:
    """Open `sub_path` in the open volume (O_PATH); missing directories are created, but not for links.

    Raises VolumeError for a path that leads out of the volume, OSError.
    """
    walk = _Walk(volume)
    try:
        walk.walk(sub_path)
        return os.dup(walk.here)
    finally:
        walk.close()


class _Walk(Walk):
    """A walk that creates missing directories of the path itself, and refuses paths that leave the volume."""

    def leave(self, path: str) -> None:
        raise VolumeError(f"subpath {path!r} not within volume path")

    def resolve(self, target: str, path: str) -> str:
        top = os.readlink(f"/proc/self/fd/{self.volume}").rstrip("/")
        if not f"{target}/".startswith(f"{top}/"):
            self.leave(path)
        return target[len(top) :]

    def open(self, name: str) -> int:
        try:
            return super().open(name)
        except FileNotFoundError:
            if self.is_linked:
                raise  # as in the kubelet, which makes no target for a dangling link
            mode = stat.S_IMODE(os.fstat(self.volume).st_mode)
            os.mkdir(name, mode, dir_fd=self.here)
            fd = os.open(name, DIRECTORY, dir_fd=self.here)
            os.fchmod(fd, mode)
            return fd


def _is_bound(directory: int, name: str, source: int) -> bool:
    """True when `source` is mounted there; another mount is unmounted."""
    for _ in range(_STACKED):
        try:
            with opened(name, PATH, directory) as fd:
                if mounts.mount_id(fd) == mounts.mount_id(directory):
                    return False
                if os.path.samestat(os.fstat(fd), os.fstat(source)):
                    return True
        except FileNotFoundError:
            return False
        mounts.unmount(f"/proc/self/fd/{directory}/{name}")
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), name)


def _make_target(directory: int, name: str, *, is_dir: bool) -> None:
    with suppress(OSError):  # a leftover of the other kind, from before the volume's content changed
        os.rmdir(name, dir_fd=directory) if not is_dir else os.unlink(name, dir_fd=directory)
    if is_dir:
        with suppress(FileExistsError):
            os.mkdir(name, _DIR_MODE, dir_fd=directory)
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(name, flags, _FILE_MODE, dir_fd=directory))

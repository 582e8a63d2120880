"""A container's root file system: the image's layers with a writable layer on top.

It is an overlayfs where one can be mounted, else a copy of all layers. The image `host` has the machine's root in place
of layers. The container's writes are in its directory. The mount is in the run directory, which a reboot empties.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from actors._host.files import mounts, trees
from actors.runtime.helper.kernel import syscalls
from actors.runtime.images.limits import Budget
from actors.runtime.images.local.stack import Hidden, Layer, Stack
from actors.runtime.images.local.store import ImageStore
from actors.runtime.images.local.unpack import copy_entry, is_whiteout
from actors.runtime.model.disk import remove_tree
from actors.runtime.model.namespace_threads import CLONE_FS, in_thread
from actors.runtime.model.namespaces import unmount_all
from actors.runtime.model.user_mapping import PodUsers
from actors.runtime.oci.relabeling import relabel

HOST_LAYER = "host"
"""Stands for the image `host` in a list of layers."""
_OPTIONS_BYTES = 4000
"""mount(2) takes a page of options."""
_descriptors = threading.Lock()
"""One mount at a time opens all its layers, so that a few mounts do not use up the process's descriptors."""
_TRIAL_FILES, _TRIAL_FILE_BYTES = 16, 64 << 10
"""More files, and larger ones, than an overlayfs makes in a trial."""


def can_overlay(directory: Path) -> bool:
    """Return True when this process can use overlayfs in `directory`; not every file system and user can.

    Raises OSError when the disk is full or read-only: then a failure tells nothing. `directory` is gone afterwards.
    """
    _remove_trial(directory)  # that of a start which was killed would spoil this one
    try:
        _try_overlay(directory)
    except OSError:
        directory.mkdir(parents=True, exist_ok=True)
        for number in range(_TRIAL_FILES):
            (directory / f"room-{number}").write_bytes(os.urandom(_TRIAL_FILE_BYTES))
        return False
    finally:
        _remove_trial(directory)
    return True


def _try_overlay(directory: Path, users: PodUsers | None = None) -> None:
    """Mount and change an overlayfs. Without room for its work directory, the kernel mounts it read-only."""
    names = [directory / name for name in ("lower", "upper", "work", "merged")]
    for name in names:
        name.mkdir(parents=True, exist_ok=True)
    (names[0] / "file").touch()
    _overlay(str(directory), ["lower"], str(names[3]), str(names[1]), str(names[2]), _namespace(users))
    if users is not None and (owner := (names[3] / "file").stat().st_uid) != users.ids.first:
        raise OSError(errno.EINVAL, f"an overlayfs shows {owner} as the owner in place of {users.ids.first}")
    (names[3] / "file").unlink()  # needs whiteouts


def try_mapped_overlay(directory: Path, users: PodUsers) -> None:
    """Require an overlayfs in `directory` whose files belong to the pod's users. Raises OSError.

    `directory` is gone afterwards.
    """
    _remove_trial(directory)
    try:
        _try_overlay(directory, users)
    finally:
        _remove_trial(directory)


def _remove_trial(directory: Path) -> None:
    with contextlib.suppress(OSError):
        unmount_all(str(directory / "merged"))
    if directory.exists():  # the removal of what is not there fails on a read-only disk
        remove_tree(directory)


class RootFs:
    """Mounts and unmounts root file systems."""

    def __init__(self, store: ImageStore, *, overlay: bool, links: bool = False) -> None:
        """`links`: make a link to a copy, for agents that may not mount."""
        self.overlay = overlay
        self._links = links
        self._store = store

    def stack(self, layers: Sequence[str]) -> Stack:
        """The image's files, readable without a mount."""
        if tuple(layers) == (HOST_LAYER,):
            return Stack([Layer("/", Hidden())])
        return self._store.stack(layers)

    def prepare(
        self, layers: Sequence[str], own: Path, target: Path, users: PodUsers | None = None, label: str = ""
    ) -> None:
        """Mount at `target`, with writes going to `own`; idempotent after `remove`. Raises OSError, ImageError.

        Only an overlayfs can show the files with a pod's `users`, who own what is written. `label`: SELinux's, of all
        files. A copy of the image gets it on the disk; the machine's root gets none.
        """
        host = tuple(layers) == (HOST_LAYER,)
        if self._links:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.symlink_to("/" if host else self._copy(layers, own))
            return
        target.mkdir(parents=True, exist_ok=True)
        if self.overlay:
            upper, work = own / "upper", own / "work"
            for directory in (upper, work):
                directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            _own_root(upper, self.stack(layers), users)
            base, lower = self._lower(layers)
            lower = lower or [self._empty_layer()]
            _overlay(base, lower, str(target), str(upper), str(work), _namespace(users), label)
        elif host:
            if label:
                raise OSError(errno.EOPNOTSUPP, "without overlayfs the image `host` cannot have an SELinux label")
            mounts.bind("/", str(target))
        else:
            copy = self._copy(layers, own)
            relabel([os.path.realpath(copy)] if label else [], label)
            mounts.bind(str(copy), str(target))

    def _copy(self, layers: Sequence[str], own: Path) -> Path:
        copy = own / "copy"
        if not copy.exists():
            copy_all(self._store.stack(layers), own / "copying", self._budget(own))
            (own / "copying").rename(copy)
        return copy

    def _budget(self, directory: Path) -> Budget:
        """Copies leave as much of the disk free as pulls do."""
        return Budget(self._store.limits, str(directory))

    def _lower(self, layers: Sequence[str]) -> tuple[str, list[str]]:
        """Lower directories, topmost first, and the directory that their paths begin in."""
        if tuple(layers) == (HOST_LAYER,):
            return "/", ["."]
        return str(self._store.layers_dir), [f"{name}/fs" for name in reversed(layers)]

    def prepare_read_only(
        self, layers: Sequence[str], target: Path, users: PodUsers | None = None, label: str = ""
    ) -> None:
        """Mount the layers read-only at `target`, with the users and the SELinux label of a pod.

        Raises OSError, ImageError.
        """
        target.mkdir(parents=True, exist_ok=True)
        if self.overlay:
            base, lower = self._lower(layers)
            # overlayfs wants two layers when none is writable.
            lower += [self._empty_layer(suffix) for suffix in ("", ".2")[: max(0, 2 - len(lower))]]
            _overlay(base, lower, str(target), namespace=_namespace(users), label=label)
        elif not any(target.iterdir()):
            copying = target.with_name(f"{target.name}.copying")
            copy_all(self._store.stack(layers), copying, self._budget(target.parent))
            relabel([os.path.realpath(copying)] if label else [], label)
            copying.rename(target)

    def remove_read_only(self, target: Path) -> None:
        """Undo prepare_read_only. Idempotent. Raises OSError."""
        if not self._links:
            unmount_all(str(target))
        if self.overlay:
            with contextlib.suppress(FileNotFoundError):
                target.rmdir()
        else:
            remove_tree(target)

    def _empty_layer(self, suffix: str = "") -> str:
        """Path of an empty directory: overlayfs needs a layer, and an image may have none."""
        path = self._store.root / f"nothing{suffix}"
        path.mkdir(exist_ok=True)
        return str(path)

    def remove(self, target: Path) -> None:
        """Unmount `target`; the container's writes stay. Idempotent. Raises OSError."""
        if self._links:
            target.unlink(missing_ok=True)
            return
        unmount_all(str(target))
        try:
            target.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or mounts.mounts_under(os.path.realpath(target)):
                raise
            # A start that went on after the unmount has made mount points here.
            remove_tree(target)


def _namespace(users: PodUsers | None) -> str:
    return "" if users is None else users.namespace


def _own_root(upper: Path, stack: Stack, users: PodUsers | None) -> None:
    """Give the writable layer's root the mode and the owners that the image's has."""
    top = stack.find("")
    uid, gid = (top[1].st_uid, top[1].st_gid) if top is not None else (0, 0)
    if top is not None:
        os.chmod(upper, stat.S_IMODE(top[1].st_mode))
    if users is not None:
        uid, gid = users.ids.on_machine(uid), users.ids.on_machine(gid)
    if top is not None or users is not None:
        os.chown(upper, uid, gid)


def _overlay(
    directory: str,
    lower: Sequence[str],
    target: str,
    upper: str = "",
    work: str = "",
    namespace: str = "",
    label: str = "",
) -> None:
    """Mount an overlayfs; read-only without `upper`.

    `namespace`: the path of a user namespace, with whose IDs the layers in `directory` appear. `label`: SELinux's, of
    all files.

    `lower`, topmost first, may be relative to `directory`: absolute paths of many layers are too long for mount(2).
    Where relative ones are too long, too, the numbers of open descriptors are the layers' names.
    """
    own = f",upperdir={upper},workdir={work}" if upper else ""
    own += f',context="{label}"' if label else ""

    def work_in_directory() -> None:
        syscalls.unshare(CLONE_FS)
        os.chdir(directory)
        mount()

    def mount() -> None:
        with contextlib.ExitStack() as stack:
            names = lower
            if len(":".join(lower)) + len(own) > _OPTIONS_BYTES:
                stack.enter_context(_descriptors)
                names = [str(_opened(path, stack)) for path in lower]
                os.chdir("/proc/thread-self/fd")
            mounts.mount("overlay", target, "overlay", f"lowerdir={':'.join(names)}{own}")

    if namespace:
        _mount_mapped(directory, target, namespace, mount)
    else:
        in_thread(work_in_directory)


def _mount_mapped(directory: str, target: str, namespace: str, mount: Callable[[], None]) -> None:
    """Have `mount` work in a mapped copy of `directory`, and attach what it mounts at `target`.

    overlayfs takes layers from an attached mount only. So the copy is attached in a mount namespace of the thread's
    own, which ends with it: a kill leaves nothing.
    """

    def work() -> int:
        syscalls.unshare(syscalls.NEW["mount"])
        syscalls.mount("", "/", "", syscalls.MS_SLAVE | syscalls.MS_REC)
        users, tree = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC), syscalls.open_tree(directory, recursive=False)
        try:
            syscalls.map_ids(tree, users, directory)
            syscalls.attach(tree, target)
        finally:
            os.close(users)
            os.close(tree)
        os.chdir(target)
        mount()
        return syscalls.open_tree(target, recursive=False)

    made = in_thread(work)
    try:
        syscalls.attach(made, target)
    finally:
        os.close(made)


def _opened(directory: str, stack: contextlib.ExitStack) -> int:
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    stack.callback(os.close, descriptor)
    return descriptor


def copy_all(stack: Stack, target: Path, budget: Budget) -> None:
    """Copy all files that are visible in the stack; `target` is gone after an error. Raises OSError, ImageError."""
    remove_tree(target)
    target.mkdir(parents=True)
    try:
        for layer in reversed(stack.layers):
            _copy_layer(layer, target, budget)
    except BaseException:
        remove_tree(target)
        raise


def _copy_layer(layer: Layer, target: Path, budget: Budget) -> None:
    for hidden in layer.hidden.whiteouts:
        if _is_within(target, hidden):
            trees.remove(target / hidden)
    for opaque in layer.hidden.opaque:
        if _is_within(target, f"{opaque}/"):
            for inner in (target / opaque).iterdir():
                trees.remove(inner)
    links: dict[tuple[int, int], str] = {}
    for directory, names, files in os.walk(layer.path):
        here = target / os.path.relpath(directory, layer.path)
        for name in names:
            source, copy = os.path.join(directory, name), here / name
            if not os.path.islink(source) and copy.is_dir() and not copy.is_symlink():
                continue
            _copy_one(source, copy, links, budget)
        for name in files:
            _copy_one(os.path.join(directory, name), here / name, links, budget)
    for directory, _, _ in os.walk(layer.path, topdown=False):
        status = os.lstat(directory)
        here = target / os.path.relpath(directory, layer.path)
        if os.geteuid() == 0:
            os.chown(here, status.st_uid, status.st_gid)
        os.chmod(here, stat.S_IMODE(status.st_mode))
        os.utime(here, ns=(status.st_atime_ns, status.st_mtime_ns))


def _is_within(target: Path, path: str) -> bool:
    """Return True when all parents in `path` are real directories: a lower layer's link could lead out of the copy."""
    here = target
    for part in path.split("/")[:-1]:
        here /= part
        if here.is_symlink() or not here.is_dir():
            return False
    return True


def _copy_one(source: str, copy: Path, links: dict[tuple[int, int], str], budget: Budget) -> None:
    status = os.lstat(source)
    if is_whiteout(source):
        return
    budget.entry()
    trees.remove(copy)
    if stat.S_ISDIR(status.st_mode):
        copy.mkdir()
        return
    key = (status.st_dev, status.st_ino)
    if status.st_nlink > 1 and key in links:
        os.link(links[key], copy, follow_symlinks=False)
        return
    links[key] = str(copy)
    if stat.S_ISREG(status.st_mode):
        budget.take(status.st_size)
    copy_entry(source, str(copy), status, budget)

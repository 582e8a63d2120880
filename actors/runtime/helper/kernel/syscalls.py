"""System calls that Python has no function for. Each raises OSError with the path or object concerned."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from typing import Any

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC = 4096, 16384
MS_UNBINDABLE, MS_PRIVATE, MS_SLAVE, MS_SHARED = 1 << 17, 1 << 18, 1 << 19, 1 << 20
MNT_DETACH = 2
NEW = {
    "mount": 0x00020000,
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "network": 0x40000000,
}
"""Flags of unshare(2), by OCI's names."""
MOUNT_ATTR = {"ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 0x10, "strictatime": 0x20}
"""Flags of mount_setattr(2), by mount(8)'s names."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_KEEPCAPS, PR_SET_NO_NEW_PRIVS = 4, 24, 8, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, PR_CAP_AMBIENT_CLEAR_ALL = 47, 2, 4

RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH, RESOLVE_IN_ROOT = 1, 2, 4, 8, 16
"""Flags of openat2(2)."""
PROC_MAGIC, DEVPTS_MAGIC = 0x9FA0, 0x1CD1
"""Values of f_type in statfs(2)."""

_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
_MOVE_EMPTY_PATHS = 0x4 | 0x40
_MOUNT_ATTR_IDMAP = 0x00100000
_FSCONFIG_SET_FLAG, _FSCONFIG_SET_STRING, _FSCONFIG_CMD_CREATE = 0, 1, 6
# These numbers are the same on all architectures since Linux 5.2. pivot_root is older, and its number differs.
_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT = 428, 429, 430, 431, 432
_CLOSE_RANGE, _OPENAT2, _PIDFD_GETFD, _MOUNT_SETATTR = 436, 437, 438, 442
_OPENAT2_TRIES = 64
"""openat2 returns EAGAIN when a rename or a mount elsewhere interferes."""
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217, "armv7l": 218}
_SETRESUID = {"x86_64": 117, "aarch64": 147, "riscv64": 147, "ppc64le": 164, "s390x": 208, "armv7l": 208}
_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351, "armv7l": 386}
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280, "armv7l": 311}
_KEYCTL_JOIN_SESSION_KEYRING = 1
_CAP_VERSION_3 = 0x20080522

_libc: Any = ctypes.CDLL(None, use_errno=True)
_text = ctypes.c_char_p
_libc.mount.argtypes = (_text, _text, _text, ctypes.c_ulong, _text)
_libc.umount2.argtypes = (_text, ctypes.c_int)
_libc.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)


def unshare(flags: int) -> None:
    """Move this process, and for pids its children, to new namespaces."""
    if flags:
        _check(_libc.unshare(flags), "new namespaces")


def setns(path: str) -> None:
    """Enter the namespace at `path`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        setns_of(fd, path)
    finally:
        os.close(fd)


def setns_of(fd: int, about: str) -> None:
    """Enter the namespace of a descriptor."""
    _check(_libc.setns(fd, 0), about)


def openat2(directory: int, path: str, flags: int, resolve: int) -> int:
    """Open `path` from a directory with the rules of `resolve`; return a descriptor. Linux 5.6."""
    how = (ctypes.c_uint64 * 3)(flags | os.O_CLOEXEC, 0, resolve)
    for _ in range(_OPENAT2_TRIES):
        fd: int = _libc.syscall(_OPENAT2, directory, os.fsencode(path), how, ctypes.c_size_t(24))
        if fd >= 0 or ctypes.get_errno() != errno.EAGAIN:
            break
    _check(fd, path)
    return fd


def file_system(fd: int) -> int:
    """The f_type of the descriptor's file system, fstatfs(2)."""
    buffer = ctypes.create_string_buffer(256)
    _check(_libc.fstatfs(fd, buffer), "the file system")
    word = 4 if os.uname().machine == "s390x" else ctypes.sizeof(ctypes.c_long)
    return int.from_bytes(buffer.raw[:word], sys.byteorder)


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """Create or change a mount."""
    code = _libc.mount(
        os.fsencode(source) or None, os.fsencode(target), kind.encode() or None, flags, data.encode() or None
    )
    _check(code, target)


def unmount(target: str, flags: int = 0) -> None:
    """umount2(2)."""
    _check(_libc.umount2(os.fsencode(target), flags), target)


def open_tree(path: str, *, recursive: bool) -> int:
    """Descriptor of a detached copy of the mounts at `path`."""
    return _open_tree(_AT_FDCWD, path, recursive=recursive)


def open_tree_of(fd: int, about: str, *, recursive: bool) -> int:
    """Descriptor of a detached copy of the mounts at a descriptor."""
    return _open_tree(fd, "", recursive=recursive, about=about)


def _open_tree(directory: int, path: str, *, recursive: bool, about: str = "") -> int:
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | (_AT_RECURSIVE if recursive else 0)
    flags |= 0 if path else _AT_EMPTY_PATH
    fd: int = _libc.syscall(_OPEN_TREE, directory, os.fsencode(path), ctypes.c_uint(flags))
    _check(fd, path or about)
    return fd


def move_mount(fd: int, target: int, about: str) -> None:
    """Attach a mount to the descriptor `target`, which no rename and no link can change."""
    _check(_libc.syscall(_MOVE_MOUNT, fd, b"", target, b"", _MOVE_EMPTY_PATHS), about)


def attach(fd: int, path: str) -> None:
    """Attach a mount at a path whose last component is no link. Raises OSError."""
    place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        move_mount(fd, place, path)
    finally:
        os.close(place)


def new_file_system(kind: str, attributes: int, *, source: str = "", options: str = "") -> int:
    """Descriptor of a new detached file system. `options` are those of mount(8) after -o, without `attributes`."""
    context: int = _libc.syscall(_FSOPEN, kind.encode(), ctypes.c_uint(1))
    _check(context, kind)
    try:
        settings = [("source", source)] if source else []
        settings += [(name, value) for name, _, value in (one.partition("=") for one in options.split(",") if one)]
        for name, value in settings:
            command = _FSCONFIG_SET_STRING if value else _FSCONFIG_SET_FLAG
            _check(_libc.syscall(_FSCONFIG, context, command, name.encode(), value.encode() or None, 0), kind)
        _check(_libc.syscall(_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0), kind)
        fd: int = _libc.syscall(_FSMOUNT, context, ctypes.c_uint(1), ctypes.c_uint(attributes))
        _check(fd, kind)
    finally:
        os.close(context)
    return fd


def set_attributes(path: str, attributes: int, *, fd: int = -1, recursive: bool, propagation: int = 0) -> None:
    """mount_setattr(2): add `attributes` to the mount at `path`, or to the one behind `fd`."""
    flags = _AT_RECURSIVE if recursive else 0
    clear = 0x70 if attributes & 0x30 else 0  # only one of the access time flags may be set
    what = (ctypes.c_uint64 * 4)(attributes, clear, propagation, 0)
    if fd >= 0:
        code = _libc.syscall(_MOUNT_SETATTR, fd, b"", flags | _AT_EMPTY_PATH, what, ctypes.c_size_t(32))
    else:
        code = _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), flags, what, ctypes.c_size_t(32))
    _check(code, path)


def map_ids(fd: int, namespace: int, about: str) -> None:
    """mount_setattr(2): show the files of the detached mount `fd` with the IDs of a user namespace. Linux 5.12."""
    what = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_IDMAP, 0, 0, namespace)
    _check(_libc.syscall(_MOUNT_SETATTR, fd, b"", _AT_EMPTY_PATH, what, ctypes.c_size_t(32)), about)


def pivot_root() -> None:
    """Make the working directory the root, and unmount the old root.

    The old root is stacked on the new one. Its mounts first become slaves: unmounting a shared one would unmount the
    machine's /proc, /tmp and others, too.
    """
    old = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _check(_libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."), "the new root")
        os.fchdir(old)
    finally:
        os.close(old)
    mount("", ".", "", MS_SLAVE | MS_REC)
    unmount(".", MNT_DETACH)


def bpf(command: int, attributes: bytes, about: str) -> int:
    """Ask the kernel's BPF; return a new descriptor, or 0."""
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    code: int = _libc.syscall(_BPF[os.uname().machine], command, buffer, ctypes.c_uint(len(attributes)))
    _check(code, about)
    return code


def pidfd_getfd(pidfd: int, fd: int, about: str) -> int:
    """Open a copy of a process's descriptor."""
    copy: int = _libc.syscall(_PIDFD_GETFD, pidfd, fd, 0)
    _check(copy, about)
    return copy


def join_new_keyring() -> None:
    """Give this process and its children a new session keyring, keyctl(2). ENOSYS: the kernel has no keyrings."""
    number = _KEYCTL.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), "the session keyring")
    _check(_libc.syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None), "the session keyring")


def close_all(*keep: int) -> None:
    """Close every descriptor but 0 to 2 and `keep`."""
    first = 3
    for fd in (*sorted(one for one in keep if one >= 3), 0xFFFFFFFF):
        if fd > first:
            _libc.syscall(_CLOSE_RANGE, ctypes.c_uint(first), ctypes.c_uint(fd - 1), ctypes.c_uint(0))
        first = fd + 1


def prctl(option: int, *arguments: int) -> None:
    """Change an attribute of this process."""
    _check(_libc.prctl(option, *arguments, *[0] * (4 - len(arguments))), f"prctl {option}")


def become_user(uid: int) -> None:
    """Give this thread an effective user, and no effective capability. os.seteuid would give it to all threads."""
    same = ctypes.c_uint(0xFFFFFFFF)
    _check(_libc.syscall(_SETRESUID[os.uname().machine], same, ctypes.c_uint(uid), same), f"user {uid}")


def set_capabilities(effective: int, permitted: int, inheritable: int) -> None:
    """capset(2), of three masks."""
    header = (ctypes.c_uint32 * 2)(_CAP_VERSION_3, 0)
    low, high = 0xFFFFFFFF, 32
    masks = (effective, permitted, inheritable)
    data = (ctypes.c_uint32 * 6)(*[mask & low for mask in masks], *[mask >> high for mask in masks])
    _check(_libc.capset(header, data), "capabilities")


def _check(code: int, about: str) -> None:
    if code < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), about)

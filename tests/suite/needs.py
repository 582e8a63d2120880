"""Needs of tests beyond a bare Debian with Python: programs of further packages, and rights.

A test declares it: `@pytest.mark.needs("openssl")`. A need with a package moves the test to `make test-node`, which
installs the package. A test whose rights are missing is left out of `make test`, which says so at its end.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from actors._host import selinux
from actors._host.system import machine_id, system_uuid
from actors.objects.local.keep import in_memory
from actors.oom.kernel_log import open_log
from actors.runtime.selinux.kernel import find_defaults
from actors.runtime.selinux.labels import BadLabel

LOOP_DEVICES = 4
"""Tests that run side by side may have so many at once."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Need(NamedTuple):
    """One thing that a machine may lack."""

    what: str
    """For people."""
    is_met: Callable[[], bool]
    package: str = ""
    """The Debian package that has it; empty where no package gives it."""


def _program(name: str, package: str = "") -> Need:
    return Need(name, lambda: shutil.which(name, path=PATH) is not None, package or name)


@functools.cache
def _can_mount() -> bool:
    return os.geteuid() == 0 and _ran("unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt")


@functools.cache
def _can_make_networks() -> bool:
    return os.geteuid() == 0 and _ran("unshare", "--net", "true")


@functools.cache
def _has_nftables() -> bool:
    """Return True when the kernel has netfilter's tables, which a pod network with host ports needs."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12):
        return _can_make_networks()
    return False


@functools.cache
def _has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as listener:
        listener.bind(("::1", 0))
        return True
    return False


@functools.cache
def _can_write_cgroups() -> bool:
    """Return True when a cgroup can be made in each controller's hierarchy, or in that of v2."""
    root = Path("/sys/fs/cgroup")
    name = f"nvneed-{os.getpid()}"
    for top in (root, root / "memory"):
        with contextlib.suppress(OSError):
            (top / name).mkdir()
            (top / name).rmdir()
            return True
    return False


@functools.cache
def _has_cgroup_v2() -> bool:
    """Return True when cgroups can be made in v2's hierarchy, which may be beside v1's and without controllers."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        if line.split()[2] == "cgroup2":
            with contextlib.suppress(OSError):
                made = Path(line.split()[1], f"nvneed-{os.getpid()}")
                made.mkdir()
                made.rmdir()
                return True
    return False


def _has_locales() -> bool:
    return shutil.which("localedef") is not None and Path("/usr/share/i18n/charmaps").is_dir()


def _has_journald() -> bool:
    return shutil.which("journalctl") is not None and Path("/usr/lib/systemd/systemd-journald").exists()


def _has_systemd() -> bool:
    return Path("/run/systemd/system").is_dir() and Path("/sys/fs/cgroup/cgroup.controllers").exists()


@functools.cache
def _enforces_selinux() -> bool:
    """Return True when a policy is enforced that has labels for containers."""
    with contextlib.suppress(OSError, BadLabel):
        return Path("/sys/fs/selinux/enforce").read_text() == "1" and bool(find_defaults(selinux.read()))
    return False


@functools.cache
def disk_directory() -> str | None:
    """A directory on a disk where this user may write, or None. /tmp is in memory on many machines."""
    for directory in (tempfile.gettempdir(), "/var/tmp", os.getcwd()):
        if os.access(directory, os.W_OK) and not in_memory(directory):
            return directory
    return None


@functools.cache
def _has_user_namespaces() -> bool:
    """Return True when an ordinary user has them: tests of root act as that user."""
    user = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups") if os.geteuid() == 0 else ()
    return _ran(*user, "unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt")


@contextlib.contextmanager
def _one_worker_at_a_time() -> Iterator[None]:
    """Workers that look side by side would take the devices from each other, and xdist wants the same tests of each."""
    devices = os.open("/dev", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(devices, fcntl.LOCK_EX)
        yield
    finally:
        os.close(devices)


@functools.cache
def _has_loop_devices() -> bool:
    """Return True when several can be had at once: a container's /dev may lack the nodes of further ones."""
    if os.geteuid() != 0 or not _can_mount():
        return False
    with _one_worker_at_a_time(), tempfile.NamedTemporaryFile() as file:
        file.truncate(1 << 20)
        try:
            return all(_ran("losetup", "--find", file.name) for _ in range(LOOP_DEVICES))
        finally:
            _ran(
                "sh",
                "-c",
                'losetup --noheadings --output NAME --associated "$0" | xargs -r losetup --detach',
                file.name,
            )


@functools.cache
def _can_read_kernel_log() -> bool:
    """Return True when /dev/kmsg is the kernel's log and has the records of this machine's kernel."""
    with contextlib.suppress(OSError):
        os.close(open_log())
        return True
    return False


@functools.cache
def _can_give_pods_users() -> bool:
    """Return True when isolation level 1 has an OCI runtime that passes the trial of users_trial.py."""
    return _can_mount() and any(_gives_users(program) for program in _oci_runtimes())


def _gives_users(program: str) -> bool:
    if program.endswith("runc"):
        return True
    said = subprocess.run([program, "--version"], capture_output=True, check=False, timeout=30, text=True).stdout
    return tuple(map(int, said.split()[2].split(".")[:2])) >= (1, 24)


@functools.cache
def _oci_runtimes() -> tuple[str, ...]:
    from actors.runtime.assembly import isolation_here  # noqa: PLC0415 - it loads the whole runtime

    return isolation_here().programs


def _ran(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0
    except OSError:
        return False


NEEDS = {
    "busybox": _program("busybox", "busybox-static"),
    "chromium": _program("chromium"),
    "dbus-daemon": _program("dbus-daemon"),
    "ip": _program("ip", "iproute2"),
    "iptables": _program("iptables"),
    "journald": Need("systemd-journald and journalctl", _has_journald),
    "kubectl": _program("kubectl", "kubernetes-client"),
    "locales": Need("localedef with its locales", _has_locales, "locales"),
    "mmdebstrap": _program("mmdebstrap"),
    "mkfs.ext4": _program("mkfs.ext4", "e2fsprogs"),
    "openssl": _program("openssl"),
    "runc": _program("runc"),
    "root": Need("root", lambda: os.geteuid() == 0),
    "disk": Need("a directory outside memory", lambda: disk_directory() is not None),
    "mounts": Need("the right to mount", _can_mount),
    "IPv6": Need("the address ::1", _has_ipv6),
    "networks": Need("the right to make network namespaces", _can_make_networks),
    "nftables": Need("nftables in the kernel", _has_nftables),
    "cgroups": Need("the right to make cgroups", _can_write_cgroups),
    "cgroup v2": Need("cgroup v2, perhaps beside v1, and the right to make cgroups in it", _has_cgroup_v2),
    "SELinux": Need("SELinux, enforced, with labels for containers", _enforces_selinux),
    "systemd": Need("systemd with cgroup v2 alone", _has_systemd),
    "user namespaces": Need("user namespaces", _has_user_namespaces),
    "two OCI runtimes": Need("crun and runc", lambda: len(_oci_runtimes()) > 1),
    "users of pods": Need("runc 1.1.5 or crun 1.24, and the right to mount", _can_give_pods_users, "runc"),
    "machine ID": Need("a machine ID or the firmware's UUID", lambda: bool(machine_id() or system_uuid())),
    "loop devices": Need("loop devices", _has_loop_devices),
    "kernel log": Need("the right to read /dev/kmsg", _can_read_kernel_log),
    "fuse": Need("/dev/fuse", lambda: _can_mount() and Path("/dev/fuse").exists()),
}


def missing(needs: tuple[str, ...]) -> list[str]:
    """Names of the needs that this machine does not meet."""
    return [name for name in needs if not NEEDS[name].is_met()]

"""Sets up and checks process and host before the agent starts, as the kubelet does.

Sets RLIMIT_NOFILE (maxOpenFiles), oom_score_adj and kernel settings (protectKernelDefaults). Checks swap (failSwapOn),
the cgroup version (failCgroupV1), its controllers, and reservations. Takes the lock file. `supervisor start` calls it;
limits and lock survive its exec of the agent.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import resource
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from proto.common import logs

log = logging.getLogger(__name__)

PROC = "/proc"
CGROUP_ROOT = "/sys/fs/cgroup"

KERNEL_SETTINGS: Mapping[str, tuple[int, bool]] = {
    "vm.overcommit_memory": (1, False),
    "vm.panic_on_oom": (0, False),
    "kernel.panic": (10, False),
    "kernel.panic_on_oops": (1, False),
    # The kernel takes keys of root's for containers; with too few of them their start fails.
    "kernel.keys.root_maxkeys": (1_000_000, True),
    "kernel.keys.root_maxbytes": (25_000_000, True),
}
"""The kubelet's value by name, and True where a higher value is accepted, too."""


class HostSetupError(Exception):
    """The agent cannot start; the text says what, where and what to do."""


def set_open_files(limit: int, configured: bool = True) -> None:
    """Set RLIMIT_NOFILE, which children inherit. Without the right to, set it as high as the hard limit allows.

    `configured`: the value was configured, so that a lower one is a warning.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    except (OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, hard), hard))
        level = logging.WARNING if configured else logging.INFO
        log.log(level, "cannot set the limit of open files to %d (maxOpenFiles): it is %d", limit, min(limit, hard))


def set_oom_score_adj(value: int, configured: bool = True, proc: str = PROC) -> None:
    """Set oom_score_adj of this process and its children, -1000 to 1000. `configured` as in `set_open_files`."""
    try:
        Path(proc, "self/oom_score_adj").write_text(f"{value}\n")
    except OSError as error:
        level = logging.WARNING if configured else logging.INFO
        log.log(level, "cannot set oom_score_adj to %d: %s; the agent keeps the default", value, error.strerror)


def check_kernel_settings(protect: bool, proc: str = PROC) -> None:
    """Set kernel settings to Kubernetes' values. A setting that cannot be changed is a warning.

    With `protect`, change nothing and raise HostSetupError with all differences.
    """
    wrong = []
    for name, (wanted, more_is_good) in KERNEL_SETTINGS.items():
        path = Path(proc, "sys", *name.split("."))
        found = _read(path)
        if found is None or found == wanted or (more_is_good and found > wanted):
            continue
        if protect:
            wrong.append(f"  {name} is {found}, has to be {wanted}")
        else:
            _set(path, name, found, wanted)
    if wrong:
        raise HostSetupError(
            "cannot start: protectKernelDefaults is set and kernel settings differ:\n"
            + "\n".join(wrong)
            + "\nset them (sysctl -w NAME=VALUE, and in /etc/sysctl.d), or let the agent: protectKernelDefaults: false"
        )


def _read(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError) as error:
        if not isinstance(error, FileNotFoundError):
            log.warning("cannot read kernel setting %s: %s", path, error)
        return None


def _set(path: Path, name: str, found: int, wanted: int) -> None:
    try:
        path.write_text(f"{wanted}\n")
    except OSError as error:
        log.warning("cannot set kernel setting %s from %d to %d: %s", name, found, wanted, error.strerror)
    else:
        log.log(logs.NOTICE, "set kernel setting %s from %d to %d", name, found, wanted)


def check_swap(refuse: bool, proc: str = PROC) -> None:
    """Raise HostSetupError if the machine has swap and `refuse` is set; else log it."""
    try:
        areas = Path(proc, "swaps").read_text().splitlines()[1:]
    except OSError:
        return  # a kernel without swap
    if not areas:
        return
    if refuse:
        raise HostSetupError(
            "cannot start: running with swap on is not supported, please disable swap or set --fail-swap-on flag to "
            "false"
        )
    log.info("the machine has swap: %s", ", ".join(area.split()[0] for area in areas))


def check_cgroup_version(refuse_v1: bool, root: str = CGROUP_ROOT) -> None:
    """Raise HostSetupError on cgroup v1 if `refuse_v1` is set; else log it."""
    if Path(root, "cgroup.controllers").exists():
        return
    if refuse_v1:
        raise HostSetupError(
            "cannot start: kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is "
            "unsupported and will be removed in a future release; move to cgroup v2, or set failCgroupV1: false"
        )
    log.info("cgroup v1 detected: Kubernetes is about to drop it; plan to migrate the machine to cgroup v2")


def check_controllers(missing: Sequence[str]) -> None:
    """Raise HostSetupError if the machine lacks cgroup controllers that limits of pods need, as the kubelet does."""
    if not missing:
        return
    names = " ".join(missing)
    how = ""
    if "memory" in missing:
        how = (
            "add cgroup_enable=memory to the kernel's command line and restart the machine (Raspberry Pi OS, which "
            "switches it off: /boot/firmware/cmdline.txt); or "
        )
    raise HostSetupError(
        f"cannot start: system validation failed - Following Cgroup subsystem not mounted: [{names}]; {how}"
        "run pods without cgroups of their own: cgroupsPerQOS: false, enforceNodeAllocatable: [none]"
    )


def check_word_size(bits: int) -> None:
    """Raise HostSetupError in a Python of 32 bits: the numbers of system calls are those of 64-bit programs."""
    if bits < 64:
        raise HostSetupError(
            f"cannot start: this Python is of {bits} bits, and 64 are needed; install a 64-bit system (arm64, amd64)"
        )


def check_reservations(reservations: Iterable[Mapping[str, str]], proc: str = PROC, cpus: int | None = None) -> None:
    """Raise HostSetupError if reservations of CPU or memory exceed the machine's capacity."""
    from proto.v1.scalars.quantity import milli_value, value  # noqa: PLC0415 - comes with the API types; few reserve anything

    total = Path(proc, "meminfo").read_text().partition("MemTotal:")[2].split()[0]
    capacity = {"cpu": (cpus or os.cpu_count() or 1) * 1000, "memory": int(total) * 1024}
    wrong = []
    for resource_name, there in capacity.items():
        amount = milli_value if resource_name == "cpu" else value
        reserved = sum(amount(one[resource_name]) for one in reservations if resource_name in one)
        if reserved > there:
            unit = "m" if resource_name == "cpu" else ""
            wrong.append(
                f'Resource "{resource_name}" has a reservation of {reserved}{unit} but capacity of {there}{unit}. '
                "Expected capacity >= reservation."
            )
    if wrong:
        raise HostSetupError(f"cannot start: invalid Node Allocatable configuration. {' '.join(wrong)}")


def take_lock_file(path: str) -> int:
    """Wait for the lock and return an inheritable descriptor that holds it. Raises HostSetupError."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise HostSetupError(f"cannot start: lock file {path}: {error.strerror}; choose another --lock-file") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno != errno.EWOULDBLOCK:
            raise HostSetupError(
                f"cannot start: lock file {path}: {error.strerror}; choose another --lock-file"
            ) from error
        log.log(logs.NOTICE, "waiting for lock file %s, which another process holds", path)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.set_inheritable(descriptor, True)
    return descriptor

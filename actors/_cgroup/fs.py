"""Making, limiting, measuring and removing cgroups.

Everything here is a handful of small files in the kernel's memory and may be called from an actor's thread. With the
systemd driver slices belong to systemd: the runtime has it make them, and it drops them once empty, so nothing is made
or removed here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path

from actors._cgroup.hierarchy import Hierarchy, hierarchy, huge_page_sizes
from actors._cgroup.limits import write, write_limits
from actors._cgroup.names import QOS_CLASSES, pod_cgroup, pod_uid, qos_cgroup
from actors._cgroup.quantities.qos import qos_class
from actors._cgroup.quantities.resources import PodLimits, pod_limits
from actors._host.machine import memory_used
from actors._metrics.kubelet import CGROUP_SECONDS
from proto.agent.settings import Settings
from proto.v1 import Pod

V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")
"""What pods may need of v2, as far as the kernel has it; the kubelet's list."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What one cgroup and all below it use now."""

    memory_bytes: int
    memory_working_set_bytes: int
    """Less what the kernel could drop at once: inactive file pages."""
    cpu_ns: int
    pids: int


def create_pod_cgroup(pod: Pod, settings: Settings, tree: Hierarchy | None = None) -> None:
    """Make the pod's cgroup in every controller and set its limits. Idempotent. Raises OSError, QuantityError."""
    name = _managed(settings, pod)
    if name:
        limits = pod_limits(pod, settings, settings.pod_pids_limit, huge_page_sizes())
        create(name, limits, tree or hierarchy())


def pod_cgroup_exists(pod: Pod, settings: Settings, tree: Hierarchy | None = None) -> bool:
    """Whether the pod's cgroup is there, in any controller. With the systemd driver, too."""
    qos, uid = qos_class(pod), pod.metadata.uid
    name = pod_cgroup(settings.cgroup_driver, settings.cgroup_root, settings.cgroups_per_qos, qos, uid)
    return bool(name) and any(os.path.isdir(path) for path in (tree or hierarchy()).paths(name))


def remove_pod_cgroup(uid: str, cgroup_parent: str, settings: Settings, tree: Hierarchy | None = None) -> bool:  # noqa: ARG001
    """Remove the pod's cgroup and what a crash left below it. False while something still runs in it: try again later.

    Idempotent. Raises OSError for what is not a matter of time.
    """
    if not cgroup_parent or settings.cgroup_driver == "systemd" or not settings.cgroups_per_qos:
        return True
    return remove(cgroup_parent, tree or hierarchy())


def list_pod_cgroups(settings: Settings, tree: Hierarchy | None = None) -> dict[str, str]:
    """Every pod's cgroup there is, UID to name, in whichever controllers it is left. Raises OSError."""
    found: dict[str, str] = {}
    if not settings.cgroups_per_qos:
        return found
    driver = settings.cgroup_driver
    for qos in QOS_CLASSES:
        above = qos_cgroup(driver, settings.cgroup_root, qos)
        for path in (tree or hierarchy()).paths(above):
            with contextlib.suppress(FileNotFoundError):
                for name in os.listdir(path):
                    if uid := pod_uid(driver, name):
                        found[uid] = f"{above}/{name}"
    return found


def _managed(settings: Settings, pod: Pod) -> str:
    """The cgroup we make for the pod; empty where that is not for us."""
    if settings.cgroup_driver == "systemd":
        return ""
    return pod_cgroup(
        settings.cgroup_driver, settings.cgroup_root, settings.cgroups_per_qos, qos_class(pod), pod.metadata.uid
    )


def create(name: str, limits: PodLimits, tree: Hierarchy) -> None:
    """Make the cgroup `name`, and those above it, in every controller, with these limits. Raises OSError."""
    began = time.monotonic()
    if tree.unified:
        _make_v2(tree.mounts[""], name)
    else:
        for path in tree.paths(name):
            _make_v1(path, cpuset=path == tree.path("cpuset", name))
    write_limits(name, limits, tree)
    CGROUP_SECONDS.observe(time.monotonic() - began, "create")


def _make_v1(path: str, *, cpuset: bool) -> None:
    try:
        os.mkdir(path)
    except FileExistsError:
        pass
    except FileNotFoundError:
        _make_v1(os.path.dirname(path), cpuset=cpuset)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
    if cpuset:
        for file in ("cpuset.cpus", "cpuset.mems"):
            _fill(path, file)


def _fill(path: str, file: str) -> None:
    """A new cpuset is empty, and nothing can enter it until it has CPUs and memory nodes; so may one be that another
    has just made."""
    with contextlib.suppress(FileNotFoundError):
        if Path(path, file).read_text().strip():
            return
    above = os.path.dirname(path)
    if not Path(above, file).read_text().strip():
        _fill(above, file)
    write(f"{path}/{file}", Path(above, file).read_text())


def _make_v2(mount: str, name: str) -> None:
    there = os.path.isdir(mount + name)  # perhaps without controllers: `supervisor start` makes what it locks
    above = mount
    for part in filter(None, name.split("/")):
        try:
            _delegate(above)
        except OSError:
            if not there:
                raise
        above = f"{above}/{part}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(above)


def _delegate(path: str) -> None:
    """Let the children of `path` limit what it can limit itself."""
    has = Path(path, "cgroup.controllers").read_text().split()
    given = Path(path, "cgroup.subtree_control").read_text().split()
    missing = [f"+{controller}" for controller in V2_CONTROLLERS if controller in has and controller not in given]
    if missing:
        write(f"{path}/cgroup.subtree_control", " ".join(missing))


def remove(name: str, tree: Hierarchy) -> bool:
    """Remove the cgroup `name` and all below it from every controller; False while a process is in one of them.

    Kills nothing. Gone already is done. Raises OSError for what is not a matter of time.
    """
    began = time.monotonic()
    gone = all([_remove_tree(path) for path in tree.paths(name)])  # noqa: C419 - all of them, not up to the first
    CGROUP_SECONDS.observe(time.monotonic() - began, "destroy")
    return gone


def _remove_tree(path: str) -> bool:
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.ENOTEMPTY):
            raise
    else:
        return True
    # Busy: by a process, or by cgroups below, which go deepest first.
    try:
        below = [entry.path for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return True
    if not below or not all([_remove_tree(child) for child in below]):  # noqa: C419
        return False
    return _remove_tree(path)


def usage(name: str, tree: Hierarchy | None = None) -> Usage | None:
    """What the cgroup `name` (`/` for the root) uses; None when it is not there. Controllers not mounted count 0."""
    tree = tree or hierarchy()
    memory = _memory(name, tree)
    if memory is None:
        return None
    used, working_set = memory
    return Usage(
        memory_bytes=used,
        memory_working_set_bytes=working_set,
        cpu_ns=_cpu_ns(name, tree),
        pids=_number(tree.path("pids", name), "pids.current"),
    )


def _memory(name: str, tree: Hierarchy) -> tuple[int, int] | None:
    """(used, working set); None without the cgroup."""
    where = tree.path("memory", name)
    if where is None or not os.path.isdir(where):
        return None
    if not tree.unified:
        used, key = _number(where, "memory.usage_in_bytes"), "total_inactive_file"
    elif name.strip("/"):
        used, key = _number(where, "memory.current"), "inactive_file"
    else:
        used, key = memory_used(), "inactive_file"
    return used, max(0, used - _stat(f"{where}/memory.stat", key))


def _cpu_ns(name: str, tree: Hierarchy) -> int:
    where = tree.path("cpuacct", name)
    if tree.unified:
        return _stat(f"{where}/cpu.stat", "usage_usec") * 1000
    return _number(where, "cpuacct.usage")


def _number(directory: str | None, file: str) -> int:
    """The number in a file; 0 when it is not there: it has just gone, or is not mounted."""
    if directory is None:
        return 0
    try:
        return int(Path(directory, file).read_bytes())
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV):
            return 0
        raise


def _stat(path: str, key: str) -> int:
    try:
        text = Path(path).read_text()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV):
            return 0
        raise
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if name == key:
            return int(number)
    return 0

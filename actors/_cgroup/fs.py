"""Creates, measures and removes cgroups, above all those of pods.

With the driver cgroupfs a call touches a few files in kernel memory. With systemd it first waits for systemd, which
owns the slices (`systemd`): it runs in a pool thread. The files are written with either driver: systemd knows no huge
pages, rounds CPU quotas and, on cgroup v1, handles only some controllers.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from actors._cgroup import figures
from actors._cgroup.hierarchy import Hierarchy, hierarchy, huge_page_sizes
from actors._cgroup.limits import write, write_limits
from actors._cgroup.names import QOS_CLASSES, pod_cgroup, pod_uid, qos_cgroup
from actors._cgroup.quantities.qos import qos_class
from actors._cgroup.quantities.resources import PodLimits, pod_limits
from actors._cgroup.systemd.properties import of_limits, slice_of, slices_above
from actors._metrics.kubelet import CGROUP_SECONDS
from proto.agent.settings import Settings
from proto.v1 import Pod

V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")
"""Controllers of v2 that pods may need, as in the kubelet. A kernel may lack some."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Current usage of one cgroup and all below it."""

    memory_bytes: int
    memory_working_set_bytes: int
    """Memory without inactive file pages, which the kernel can drop at once."""
    cpu_ns: int
    pids: int


def create_pod_cgroup(pod: Pod, settings: Settings, tree: Hierarchy | None = None) -> None:
    """Create the pod's cgroup in every controller and set its limits. Idempotent. Raises OSError, QuantityError."""
    if name := pod_cgroup_of(pod, settings):
        limits = pod_limits(pod, settings, settings.pod_pids_limit, huge_page_sizes())
        ensure(name, limits, settings.cgroup_driver, tree or hierarchy())


def pod_cgroup_exists(pod: Pod, settings: Settings, tree: Hierarchy | None = None) -> bool:
    """Return True when the pod's cgroup exists in some controller, with either driver."""
    name = pod_cgroup_of(pod, settings)
    return bool(name) and any(os.path.isdir(path) for path in (tree or hierarchy()).paths(name))


def pod_cgroup_of(pod: Pod, settings: Settings) -> str:
    """Return the name of the pod's cgroup; empty when the runtime chooses it."""
    qos, uid = qos_class(pod), pod.metadata.uid
    return pod_cgroup(settings.cgroup_driver, settings.cgroup_root, settings.cgroups_per_qos, qos, uid)


def remove_pod_cgroup(name: str, settings: Settings, tree: Hierarchy | None = None) -> bool:
    """Remove the pod's cgroup and all below it. Return False while a process runs in it. Idempotent. Raises OSError.

    Raises ValueError when `name` is not the cgroup of a pod.
    """
    if not name or not settings.cgroups_per_qos:
        return True
    if not pod_uid(settings.cgroup_driver, os.path.basename(name)):
        raise ValueError(f"cannot remove {name}: it is not the cgroup of a pod")
    return discard(name, settings.cgroup_driver, tree or hierarchy())


def discard(name: str, driver: str, tree: Hierarchy) -> bool:
    """Remove the cgroup `name` and all below it, with the driver that made it. False and raises as `remove`."""
    if driver == "systemd":
        from actors._cgroup.systemd import units  # noqa: PLC0415 - loads jeepney

        if processes_below(name, tree):  # systemd would end them
            return False
        units.stop(slice_of(name))
    return remove(name, tree)


def processes_below(name: str, tree: Hierarchy) -> set[int]:
    """Return the pids in the cgroup `name` and below it."""
    pids: set[int] = set()
    for path in tree.paths(name):
        for directory, _, _ in os.walk(path):
            with contextlib.suppress(FileNotFoundError):
                pids.update(map(int, Path(directory, "cgroup.procs").read_text().split()))
    return pids


def list_pod_cgroups(settings: Settings, tree: Hierarchy | None = None) -> dict[str, str]:
    """Return UID to name of all pods' cgroups that exist in some controller. Raises OSError."""
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


def find_pod_cgroups(uids: Iterable[str], settings: Settings, tree: Hierarchy | None = None) -> dict[str, str]:
    """Return UID to name of those of these pods' cgroups that exist in some controller, without a list of all."""
    tree = tree or hierarchy()
    driver, root, per_qos = settings.cgroup_driver, settings.cgroup_root, settings.cgroups_per_qos
    names = ((uid, pod_cgroup(driver, root, per_qos, qos, uid)) for uid in uids for qos in QOS_CLASSES)
    return {uid: name for uid, name in names if name and any(map(os.path.isdir, tree.paths(name)))}


def ensure(name: str, limits: PodLimits, driver: str, tree: Hierarchy) -> None:
    """Create the cgroup `name` and its parents unless they exist, and set its limits. Raises OSError."""
    if driver == "systemd":
        from actors._cgroup.systemd import units  # noqa: PLC0415 - loads jeepney

        units.ensure(slice_of(name), slices_above(name), of_limits(limits, unified=tree.unified))
    create(name, limits, tree)


def create(name: str, limits: PodLimits, tree: Hierarchy) -> None:
    """Create the cgroup `name` and its parents in every controller, and set its limits. Raises OSError."""
    began = time.monotonic()
    if tree.unified:
        _make_v2(tree.mounts[""], name)
    else:
        for path in tree.paths(name):
            _make_v1(path, cpuset=path == tree.path("cpuset", name))
    write_limits(name, limits, tree)
    CGROUP_SECONDS.observe(time.monotonic() - began, "create")


def enter(name: str, pid: int, tree: Hierarchy) -> None:
    """Create the cgroup `name` without limits, and move the process into it in every hierarchy. Raises OSError."""
    create(name, PodLimits(), tree)
    for path in tree.paths(name):
        write(f"{path}/cgroup.procs", str(pid))


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
    # A new cpuset is empty, and no process can enter it before it has CPUs and memory nodes. The parent may be as new,
    # when another process has just created it.
    with contextlib.suppress(FileNotFoundError):
        if Path(path, file).read_text().strip():
            return
    above = os.path.dirname(path)
    if not Path(above, file).read_text().strip():
        _fill(above, file)
    write(f"{path}/{file}", Path(above, file).read_text())


def _make_v2(mount: str, name: str) -> None:
    there = os.path.isdir(mount + name)  # perhaps without controllers: `supervisor start` creates it as a lock
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
    """Enable the controllers of `path` for its children."""
    has = Path(path, "cgroup.controllers").read_text().split()
    given = Path(path, "cgroup.subtree_control").read_text().split()
    missing = [f"+{controller}" for controller in V2_CONTROLLERS if controller in has and controller not in given]
    if missing:
        write(f"{path}/cgroup.subtree_control", " ".join(missing))


def remove(name: str, tree: Hierarchy) -> bool:
    """Remove the cgroup `name` and all below it from every controller. Kills no process.

    Return False while a process is in one of them, True also when there is none left. Raises OSError.
    """
    began = time.monotonic()
    gone = all([_remove_tree(path) for path in tree.paths(name)])  # noqa: C419 - all of them, even after a False
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
    # Busy by a process or by cgroups below. The deepest goes first.
    try:
        below = [entry.path for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return True
    if not below or not all([_remove_tree(child) for child in below]):  # noqa: C419
        return False
    return _remove_tree(path)


def usage(name: str, tree: Hierarchy | None = None) -> Usage | None:
    """Return the usage of the cgroup `name` (`/` is the root); None when it does not exist.

    A controller that is not mounted counts 0.
    """
    tree = tree or hierarchy()
    where = tree.path("memory", name)
    if where is None or not os.path.isdir(where):
        return None
    cpu = tree.path("cpuacct", name)
    values = figures.stat(f"{where}/memory.stat", figures.MEMORY[tree.unified])
    if tree.unified:
        is_root = not name.strip("/")
        used = figures.root_memory_bytes(values) if is_root else figures.number(f"{where}/memory.current")
        key, cpu_ns = "inactive_file", figures.stat(f"{cpu}/cpu.stat").get("usage_usec", 0) * 1000
    else:
        used = figures.number(f"{where}/memory.usage_in_bytes")
        key, cpu_ns = "total_inactive_file", figures.number(f"{cpu}/cpuacct.usage")
    return Usage(
        memory_bytes=used,
        memory_working_set_bytes=max(0, used - values.get(key, 0)),
        cpu_ns=cpu_ns,
        pids=figures.number(f"{tree.path('pids', name)}/pids.current"),
    )

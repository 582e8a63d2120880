"""Creates, limits, enters, kills and removes a container's cgroups."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
import time
from collections.abc import Iterator, Mapping
from typing import Any

from actors.runtime.helper.kernel import device_filter

_MACHINES_USERS = 0xEFFFFFFD
"""Inode of the user namespace that is not in another one; PROC_USER_INIT_INO of Linux."""
_REMOVE_S = 5.0
"""Waits this long for killed processes to disappear."""
_MOST_CGROUPS = 10_000
"""Cgroups looked at in one pass: a container with the right to make some could make more without end."""
_MOST_NAMED = 20
"""Processes named in an error."""
Write = tuple[str, str, str]
"""Controller, file, text."""


def name_of(path: str) -> str:
    """The cgroup of linux.cgroupsPath: a path, or systemd's SLICE:PREFIX:NAME, placed as systemd places it."""
    if ":" not in path:
        return path
    slice_, prefix, name = path.split(":")
    parts = slice_.removesuffix(".slice").split("-") if slice_ not in ("", "-.slice") else []
    above = "".join(f"/{'-'.join(parts[: count + 1])}.slice" for count in range(len(parts)))
    return f"{above}/{prefix}-{name}.scope"


def writes(resources: Mapping[str, Any], *, unified: bool) -> list[Write]:
    """The writes to cgroup files that apply linux.resources, without devices. Pure."""
    cpu, memory = resources.get("cpu", {}), resources.get("memory", {})
    found = _writes_v2(cpu, memory) if unified else _writes_v1(cpu, memory)
    found += [("cpuset", f"cpuset.{key}", cpu[key]) for key in ("cpus", "mems") if cpu.get(key)]
    end = "max" if unified else "limit_in_bytes"
    pages = resources.get("hugepageLimits", ())
    found += [("hugetlb", f"hugetlb.{one['pageSize']}.{end}", str(one["limit"])) for one in pages]
    if limit := resources.get("pids", {}).get("limit"):
        found.append(("pids", "pids.max", str(limit) if limit > 0 else "max"))
    if unified:
        found += [(file.split(".")[0], file, text) for file, text in resources.get("unified", {}).items()]
    return found


def _writes_v1(cpu: Mapping[str, Any], memory: Mapping[str, Any]) -> list[Write]:
    files = (("shares", "cpu.shares"), ("period", "cpu.cfs_period_us"), ("quota", "cpu.cfs_quota_us"))
    found = [("cpu", file, str(cpu[key])) for key, file in files if cpu.get(key)]
    if memory.get("limit"):
        found.append(("memory", "memory.limit_in_bytes", str(memory["limit"])))
    if memory.get("swap"):
        found.append(("memory", "memory.memsw.limit_in_bytes", str(memory["swap"])))
    return found


def _writes_v2(cpu: Mapping[str, Any], memory: Mapping[str, Any]) -> list[Write]:
    found: list[Write] = []
    if cpu.get("shares"):
        # https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/2254-cgroup-v2
        found.append(("cpu", "cpu.weight", str(1 + (max(2, cpu["shares"]) - 2) * 9999 // 262142)))
    if cpu.get("quota") or cpu.get("period"):
        quota = str(cpu["quota"]) if cpu.get("quota", 0) > 0 else "max"
        found.append(("cpu", "cpu.max", f"{quota} {cpu.get('period') or 100000}"))
    limit, swap = memory.get("limit", 0), memory.get("swap", 0)
    if limit:
        found.append(("memory", "memory.max", str(limit) if limit > 0 else "max"))
    if swap:
        found.append(("memory", "memory.swap.max", str(max(0, swap - limit)) if swap > 0 else "max"))
    return found


def device_writes(rules: list[Mapping[str, Any]]) -> list[Write]:
    """The writes that apply linux.resources.devices, for cgroup v1. Pure."""
    found = []
    for rule in rules:
        numbers = ":".join("*" if rule.get(key) is None else str(rule[key]) for key in ("major", "minor"))
        kind = rule.get("type") or "a"
        file = "devices.allow" if rule["allow"] else "devices.deny"
        found.append(("devices", file, "a" if kind == "a" else f"{kind} {numbers} {rule['access']}"))
    return found


def parse(mountinfo: bytes) -> dict[str, list[str]]:
    """Controllers by mount point, one mount point for each hierarchy; v2's has one controller, the empty name. Pure.

    Containers and users choose names in the table, in any bytes: only a newline ends a line.
    """
    found: dict[str, list[str]] = {}
    seen = set()
    for line in map(os.fsdecode, mountinfo.split(b"\n")):
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        if kind not in ("cgroup", "cgroup2"):
            continue
        words = options.split(" ")[-1].split(",")
        names = [word for word in words if word not in ("rw", "ro", "xattr", "clone_children", "noprefix")]
        controllers = [""] if kind == "cgroup2" else names
        if tuple(controllers) not in seen:
            seen.add(tuple(controllers))
            found[before.split(" ")[4]] = controllers
    return found


def _hierarchies() -> dict[str, list[str]]:
    with open("/proc/self/mountinfo", "rb") as file:
        return parse(file.read())


def is_unified(hierarchies: Mapping[str, list[str]] | None = None) -> bool:
    """Return True when cgroup v2 has all controllers: of `hierarchies`, or of this machine's."""
    found = _hierarchies() if hierarchies is None else hierarchies
    return all(controllers == [""] for controllers in found.values())


def mounted(name: str) -> list[tuple[str, str, list[str]]]:
    """The cgroup in each hierarchy: (name of the mount, empty for v2; directory; controllers)."""
    if not name:
        return []
    found = []
    for point, controllers in _hierarchies().items():
        path = point + name_of(name)
        if os.path.isdir(path):
            label = "" if controllers == [""] else os.path.basename(point)
            found.append((label, path, [one.removeprefix("name=") for one in controllers if one]))
    return found


def create(path: str, resources: Mapping[str, Any]) -> None:
    """Create the cgroup in each hierarchy and set its limits. A scope of v2 is there already. Raises OSError."""
    name, hierarchies = name_of(path), _hierarchies()
    unified = is_unified(hierarchies)
    for point, controllers in hierarchies.items():
        if unified and ":" in path:
            os.stat(point + name)  # a scope, which the agent has had made: systemd would ignore limits of ours
        elif unified:
            _make_v2(point, name)
        else:
            _make_v1(point + name, cpuset="cpuset" in controllers)
    changes, devices = writes(resources, unified=unified), resources.get("devices", [])
    if not unified:
        changes = device_writes(devices) + changes
    _write_all(name, changes, hierarchies)
    if unified and devices and limits_devices():
        device_filter.attach(next(iter(hierarchies)) + name, devices)


def limits_devices() -> bool:
    """Return True when the container's cgroup limits its devices. Root in a user namespace may load no filter."""
    return not is_unified() or os.stat("/proc/self/ns/user").st_ino == _MACHINES_USERS


def update(path: str, resources: Mapping[str, Any]) -> None:
    """Change the limits. Raises OSError."""
    hierarchies = _hierarchies()
    _write_all(name_of(path), writes(resources, unified=is_unified(hierarchies)), hierarchies)


def enter(path: str, first: int = 0) -> None:
    """Move the calling process into the cgroup. Raises OSError.

    v2 refuses processes in a cgroup with controllers below it, as systemd in a container makes it. Then the cgroup of
    the container's first process `first` is entered, as runc does.
    """
    for label, directory, _ in mounted(path):
        try:
            _write(f"{directory}/cgroup.procs", "0")
        except OSError as error:
            if error.errno != errno.EBUSY or label or not first:
                raise
            inner = inner_name(_text_of(f"/proc/{first}/cgroup"), name_of(path))
            if not inner:
                raise
            _write(f"{directory}{inner}/cgroup.procs", "0")


def inner_name(cgroups: str, name: str) -> str:
    """The path below the cgroup `name` of v2's cgroup in a /proc/PID/cgroup, with a leading slash; else empty. Pure."""
    for line in cgroups.split("\n"):
        found = line.removeprefix("0::")
        if found != line and found.startswith(f"{name}/") and ".." not in found.split("/"):
            return found.removeprefix(name)
    return ""


def tree(directory: str) -> list[str]:
    """A cgroup and those below it, each before its own; _MOST_CGROUPS at most. Their container may have made many."""
    found: list[str] = []
    todo = [directory]
    while todo and len(found) < _MOST_CGROUPS:
        here = todo.pop()
        found.append(here)
        with contextlib.suppress(OSError), os.scandir(here) as entries:
            inner = (entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
            todo += itertools.islice(inner, _MOST_CGROUPS - len(todo))
    return found


def pids(directory: str) -> Iterator[int]:
    """The processes of a cgroup and of those below it; 0 for a process of another PID namespace."""
    for one in tree(directory):
        with contextlib.suppress(OSError), open(f"{one}/cgroup.procs", encoding="ascii") as file:
            yield from map(int, file.read().split())


def kill(path: str) -> None:
    """SIGKILL all processes of the cgroup, and of those below it."""
    for _, directory, _ in mounted(path):
        kill_in(directory)


def kill_in(directory: str) -> None:
    """SIGKILL all processes of the cgroup at a directory, and of those below it."""
    with contextlib.suppress(OSError):  # of v2 since Linux 5.14
        _write(f"{directory}/cgroup.kill", "1")
    for pid in filter(None, pids(directory)):  # kill(0) signals our own group
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def remove(path: str) -> None:
    """Kill the cgroup's processes and remove it. Raises OSError when processes stay for _REMOVE_S."""
    deadline = time.monotonic() + _REMOVE_S
    while left := [directory for _, directory, _ in mounted(path) if not _is_removed(directory)]:
        if time.monotonic() > deadline:
            stay = ", ".join(map(str, itertools.islice(pids(left[0]), _MOST_NAMED)))
            raise OSError(errno.EBUSY, f"processes in it do not end: {stay}", left[0])
        kill(path)
        time.sleep(0.01)


def _is_removed(directory: str) -> bool:
    """Remove the cgroup and those below it, the deepest first; False when some stay. Raises OSError."""
    for one in reversed(tree(directory)):
        try:
            os.rmdir(one)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENOTEMPTY):
                raise
            if one == directory:
                return False
    return True


def _text_of(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _make_v1(path: str, *, cpuset: bool) -> None:
    above = os.path.dirname(path)
    if not os.path.isdir(above):
        _make_v1(above, cpuset=cpuset)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    if cpuset:
        for file in ("cpuset.cpus", "cpuset.mems"):
            _fill(path, file)


def _fill(path: str, file: str) -> None:
    """Copy a cpuset from the parent: a new one is empty, and no process can enter it. The parent may be new, too."""
    if _text(f"{path}/{file}"):
        return
    above = os.path.dirname(path)
    if not _text(f"{above}/{file}"):
        _fill(above, file)
    _write(f"{path}/{file}", _text(f"{above}/{file}"))


def _text(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def _make_v2(point: str, name: str) -> None:
    above = point
    for part in name.strip("/").split("/"):
        with open(f"{above}/cgroup.controllers", encoding="ascii") as file:
            for controller in file.read().split():
                with contextlib.suppress(OSError):  # some cannot be delegated; writing a limit that needs one fails
                    _write(f"{above}/cgroup.subtree_control", f"+{controller}")
        above = f"{above}/{part}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(above)


def _write_all(name: str, changes: list[Write], hierarchies: Mapping[str, list[str]]) -> None:
    points = {controller: point for point, controllers in hierarchies.items() for controller in controllers}
    again = []
    for controller, file, text in changes:
        point = points.get("" if is_unified(hierarchies) else controller)
        if point is None:
            continue  # as containerd: without the controller there is no limit
        try:
            _write(f"{point}{name}/{file}", text)
        except OSError:
            if controller != "memory":
                raise
            again.append((f"{point}{name}/{file}", text))
    for path, text in again:  # memory and memsw: the right order depends on the old limits
        if "memsw" not in path or os.path.exists(path):
            _write(path, text)


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)

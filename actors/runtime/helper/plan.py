"""Plans a container: the steps that follow from config.json and the helper's mode. Pure.

The order of the mounts is the order in which they are made. Paths in steps are paths in the container.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

ROOT, USER, PLAIN = "root", "user", "plain"

_ATTRIBUTES = {"ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8, "relatime": 0, "noatime": 0x10, "strictatime": 0x20}
_PROPAGATION = {"private": 1 << 18, "slave": 1 << 19, "shared": 1 << 20}
_LINKS = (
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
    ("pts/ptmx", "/dev/ptmx"),
)
DEFAULT_DEVICES = (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0))
REPLACED_IN_PROC = tuple(
    f"/proc/{name}"
    for name in (
        *("cpuinfo", "diskstats", "loadavg", "meminfo", "slabinfo", "stat", "swaps", "uptime"),
        *("sys/crypto/fips_enabled", "sys/kernel/ns_last_pid"),
    )
)
"""Files that may be mounted over: lxcfs shows a container's own figures there. The list is runc's."""
_S_IFCHR, _S_IFBLK, _S_IFIFO = 0o020000, 0o060000, 0o010000


class Mount(NamedTuple):
    """A new kernel file system."""

    target: str
    kind: str
    source: str
    attributes: int
    """Flags of mount_setattr(2)."""
    data: str


class Bind(NamedTuple):
    """A bind mount of a path of the machine."""

    target: str
    source: str
    recursive: bool
    attributes: int
    """Flags of mount_setattr(2), for the topmost mount."""
    below: int = 0
    """Flags of mount_setattr(2), for all mounts below it, too."""
    propagation: int = 0


class Cgroups(NamedTuple):
    """The container's own cgroups, mounted as on the machine."""

    target: str
    attributes: int


class Device(NamedTuple):
    """A device file."""

    path: str
    mode: int
    major: int
    minor: int
    uid: int = 0
    gid: int = 0


class Link(NamedTuple):
    """A symbolic link, unless the path exists."""

    target: str
    path: str


class Mask(NamedTuple):
    """Hide a path, if it exists."""

    path: str


class ReadOnly(NamedTuple):
    """Make a path and all below it read-only, if it exists."""

    path: str


Step = Mount | Bind | Cgroups | Device | Link | Mask | ReadOnly


class Plan(NamedTuple):
    """A container to create."""

    root: str
    root_read_only: bool
    root_propagation: int
    """Flag of mount(2) for all inherited mounts."""
    join: tuple[tuple[str, str], ...]
    """Namespaces to join: (kind, path); pid is joined before the fork."""
    new: tuple[str, ...]
    """Kinds of namespaces to create."""
    steps: tuple[Step, ...]
    cgroup: str
    """Empty for no cgroup."""
    maps_user: bool


class BadBundle(ValueError):
    """config.json asks for a feature that the helper lacks; the message names it."""


def plan(config: Mapping[str, Any], mode: str) -> Plan:
    """The plan of a container. Raises BadBundle, KeyError."""
    linux = config.get("linux", {})
    namespaces = {one["type"]: one.get("path", "") for one in linux.get("namespaces", ())}
    if mode == PLAIN:
        namespaces = {}
    elif "mount" not in namespaces or namespaces["mount"]:
        raise BadBundle("a container needs a mount namespace of its own")
    if mode == USER:
        namespaces = {kind: "" for kind, path in namespaces.items() if not path and kind in ("mount", "pid")}
        namespaces["user"] = ""
    return Plan(
        root=config["root"]["path"],
        root_read_only=bool(config["root"].get("readonly")) and mode != PLAIN,
        root_propagation=_PROPAGATION["shared" if "shared" in linux.get("rootfsPropagation", "") else "slave"],
        join=tuple((kind, path) for kind, path in sorted(namespaces.items()) if path),
        new=tuple(sorted(kind for kind, path in namespaces.items() if not path)),
        steps=() if mode == PLAIN else tuple(_steps(config, linux, mode, "pid" in namespaces)),
        cgroup=linux.get("cgroupsPath", "") if mode == ROOT else "",
        maps_user=mode == USER,
    )


def without_mknod(process: Mapping[str, Any], rules: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Take CAP_MKNOD from the process, unless it may open all devices.

    For root in a user namespace on cgroup v2, who may load no device filter. `rules` are linux.resources.devices.
    """
    if not rules or (rules[-1].get("allow") and "type" not in rules[-1]):
        return process
    capabilities = {
        kind: [name for name in names if name != "CAP_MKNOD"] for kind, names in process.get("capabilities", {}).items()
    }
    return {**process, "capabilities": capabilities}


def binds(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Bind mounts that a plain container gets as links in its root directory: (target, source)."""
    return [
        (one["destination"], one["source"])
        for one in config.get("mounts", ())
        if one.get("type") == "bind" and not one["destination"].startswith(("/dev/", "/proc/", "/sys/"))
    ]


def _steps(config: Mapping[str, Any], linux: Mapping[str, Any], mode: str, own_pids: bool) -> list[Step]:
    steps: list[Step] = []
    for one in config.get("mounts", ()):
        steps += _mount(one, mode, own_pids)
        if one["destination"] == "/dev" and one.get("type") != "bind":
            steps += _devices(linux.get("devices", ()), mode)
    steps += [Mask(path) for path in linux.get("maskedPaths", ())]
    steps += [ReadOnly(path) for path in linux.get("readonlyPaths", ())]
    return steps


def _mount(one: Mapping[str, Any], mode: str, own_pids: bool) -> list[Step]:
    target, kind, options = one["destination"], one.get("type", "bind"), list(one.get("options", ()))
    if kind == "bind" or "bind" in options or "rbind" in options:
        return [_bind(target, one["source"], options)]
    if kind in ("cgroup", "cgroup2"):
        return [] if mode == USER else [Cgroups(target, _sum(options, _ATTRIBUTES))]
    if mode == USER:
        # The kernel allows these mounts to the owner of the namespaces that they show, which are the machine's here.
        if kind == "sysfs":
            return [Bind(target, "/sys", recursive=True, attributes=1, below=1)]
        if kind == "mqueue":
            return []
        if kind == "proc" and not own_pids:
            return [Bind(target, "/proc", recursive=True, attributes=0)]
        options = [option for option in options if not option.startswith("gid=")]
    data = ",".join(option for option in options if option not in _ATTRIBUTES and option not in ("rw", "newinstance"))
    return [Mount(target, kind, one.get("source") or kind, _sum(options, _ATTRIBUTES), data)]


def covers_proc(target: str, source: str) -> bool:
    """Return True when a bind mount would hide the container's /proc or part of it. Pure.

    The machine's own /proc is allowed there, for pods that watch the machine.
    """
    path = posixpath.normpath(target)
    if path == "/proc":
        return posixpath.normpath(source) != "/proc"
    return path.startswith("/proc/") and path not in REPLACED_IN_PROC


def _bind(target: str, source: str, options: Sequence[str]) -> Bind:
    if covers_proc(target, source):
        raise BadBundle(f"cannot mount at {target}: it would hide the container's /proc")
    propagation = 0
    for name, value in _PROPAGATION.items():
        if name in options or f"r{name}" in options:
            propagation = value
    return Bind(
        target,
        source,
        recursive="rbind" in options,
        attributes=_sum(options, _ATTRIBUTES),
        below=_ATTRIBUTES["ro"] if "rro" in options else 0,
        propagation=propagation,
    )


def _devices(asked: Sequence[Mapping[str, Any]], mode: str) -> list[Step]:
    steps: list[Step] = []
    wanted = {
        f"/dev/{name}": Device(f"/dev/{name}", _S_IFCHR | 0o666, major, minor) for name, major, minor in DEFAULT_DEVICES
    }
    kinds = {"b": _S_IFBLK, "p": _S_IFIFO}
    for one in asked:
        wanted[one["path"]] = Device(
            one["path"],
            kinds.get(one["type"], _S_IFCHR) | one.get("fileMode", 0o666),
            one.get("major", 0),
            one.get("minor", 0),
            one.get("uid", 0),
            one.get("gid", 0),
        )
    for device in wanted.values():
        # A user namespace may not create devices; bind-mounted devices of the machine work.
        steps.append(Bind(device.path, device.path, recursive=False, attributes=0) if mode == USER else device)
    steps += [Link(target, path) for target, path in _LINKS]
    return steps


def _sum(options: Sequence[str], values: Mapping[str, int]) -> int:
    total = 0
    for option in options:
        total |= values.get(option, 0)
    return total

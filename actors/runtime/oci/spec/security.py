"""Capabilities, seccomp filter, AppArmor profile, SELinux options and devices of a container."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from actors._host.files.untrusted_files import read_bounded
from actors.runtime.helper.kernel.capabilities import CAPABILITIES
from actors.runtime.helper.plan import DEFAULT_DEVICES
from actors.runtime.oci.spec.seccomp import default_seccomp
from actors.runtime.selinux.labels import Options
from proto.common import untrusted
from proto.cri import api_pb2 as pb

MOST_PROFILE_BYTES = 4 * 1024 * 1024
"""Size of a seccomp profile in a file."""
DEFAULT_CAPABILITIES = (
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
)
"""The default set of Docker and containerd."""


_LOCALHOST = "localhost/"
_LOADED = "/sys/kernel/security/apparmor/profiles"

_PTYS = ((5, 1), (5, 2), (136, None))
"""/dev/console, /dev/ptmx and /dev/pts/*, which the OCI runtime creates."""


def capabilities(context: pb.LinuxContainerSecurityContext, bounding: Iterable[str]) -> dict[str, list[str]]:
    """process.capabilities; `bounding` is the largest set that this machine's kernel grants."""
    allowed = set(bounding)
    if context.privileged:
        chosen = set(allowed)
    else:
        adds = {_capability_name(name) for name in context.capabilities.add_capabilities}
        drops = {_capability_name(name) for name in context.capabilities.drop_capabilities}
        chosen = set(allowed) if "CAP_ALL" in adds else set(DEFAULT_CAPABILITIES)
        if "CAP_ALL" in drops:
            chosen = set()
        chosen = (chosen | (adds - {"CAP_ALL"})) - drops
    ambient = {_capability_name(name) for name in context.capabilities.add_ambient_capabilities}
    chosen |= ambient
    ordered = sorted(chosen & allowed)
    sets = {"bounding": ordered, "effective": ordered, "permitted": ordered}
    if ambient & allowed:
        sets |= {"ambient": sorted(ambient & allowed), "inheritable": sorted(ambient & allowed)}
    return sets


def _capability_name(name: str) -> str:
    upper = name.upper()
    return upper if upper.startswith("CAP_") else f"CAP_{upper}"


def bounding_set(mask: int) -> list[str]:
    """Names of the capabilities in a mask, such as CapBnd in /proc/PID/status."""
    return [f"CAP_{name}" for number, name in enumerate(CAPABILITIES) if mask >> number & 1]


def seccomp(context: pb.LinuxContainerSecurityContext, granted: Iterable[str]) -> dict[str, Any] | None:
    """linux.seccomp, or None for no filter. Reads a named profile. Raises OSError, ValueError."""
    if context.privileged:
        return None
    kind, reference = context.seccomp.profile_type, context.seccomp.localhost_ref
    if not context.HasField("seccomp"):  # the field of clients before 1.19
        text = context.seccomp_profile_path
        if text in ("", "unconfined"):
            return None
        kind = pb.SecurityProfile.RuntimeDefault if "default" in text else pb.SecurityProfile.Localhost
        reference = text.removeprefix("localhost/")
    if kind == pb.SecurityProfile.Unconfined:
        return None
    if kind == pb.SecurityProfile.RuntimeDefault:
        return default_seccomp(granted)
    with open(reference.removeprefix("localhost/"), "rb") as file:
        return untrusted.decode_json(read_bounded(file.fileno(), MOST_PROFILE_BYTES, reference), dict[str, Any])


def apparmor(context: pb.LinuxContainerSecurityContext, usable: bool, loaded: Callable[[], Iterable[str]]) -> str:
    """process.apparmorProfile; empty for none, as this runtime has no default profile.

    Raises OSError, ValueError. `usable`: the kernel has AppArmor, and the OCI runtime can apply a profile.
    The node's conformance tests look for the word `apparmor`, in lower case, in the messages.
    """
    name = context.apparmor_profile.removeprefix(_LOCALHOST)
    by_name = context.apparmor_profile.startswith(_LOCALHOST)
    if context.HasField("apparmor"):  # the other field is of clients before 1.30
        name = context.apparmor.localhost_ref.removeprefix(_LOCALHOST)
        by_name = context.apparmor.profile_type == pb.SecurityProfile.Localhost
    if not by_name:
        return ""
    if not usable:
        raise ValueError(f"apparmor profile {name!r}: not supported by this machine's kernel or isolation level")
    if name not in loaded():
        raise ValueError(f"apparmor profile not found: {name!r} is not loaded")
    return name


def loaded_profiles() -> list[str]:
    """Names of the AppArmor profiles in the kernel. Raises OSError."""
    return [line.rpartition(" (")[0] for line in Path(_LOADED).read_text().splitlines()]


def device_rules(devices: list[dict[str, Any]], permissions: list[str], privileged: bool) -> list[dict[str, Any]]:
    """linux.resources.devices: the rules for opening devices. `permissions` correspond to `devices`."""
    if privileged:
        return [{"allow": True, "access": "rwm"}]
    rules: list[dict[str, Any]] = [
        {"allow": False, "access": "rwm"},
        {"allow": True, "type": "c", "access": "m"},
        {"allow": True, "type": "b", "access": "m"},
    ]
    for major, minor in (*(numbers for _, *numbers in DEFAULT_DEVICES), *_PTYS):
        rule = {"allow": True, "type": "c", "major": major, "access": "rwm"}
        rules.append(rule if minor is None else {**rule, "minor": minor})
    for device, access in zip(devices, permissions, strict=True):
        rules.append({"allow": True, **{key: device[key] for key in ("type", "major", "minor")}, "access": access})
    return rules


def host_devices(devices: Iterable[pb.Device]) -> tuple[list[dict[str, Any]], list[str]]:
    """linux.devices, and the permissions of each. Reads the machine's devices. Raises OSError for a missing one."""
    found: list[dict[str, Any]] = []
    permissions = []
    for device in devices:
        host = os.path.realpath(device.host_path)
        inside = device.container_path or device.host_path
        for path, name in _below(host, inside):
            if (described := describe_device(path, name)) is not None:
                found.append(described)
                permissions.append(device.permissions or "rwm")
            elif path == host:
                raise OSError(0, f"not a device: {host}")
    return found, permissions


def selinux_options(asked: pb.SELinuxOption) -> Options:
    """CRI's SELinux options; a missing message asks for nothing."""
    return Options(asked.user, asked.role, asked.type, asked.level)


def bound_devices(
    described: list[dict[str, Any]], devices: Iterable[pb.Device]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The entries of linux.devices that a container with a user namespace may have, and the other devices.

    Those are paths on the machine by path in the container. There an OCI runtime makes no device: it mounts the
    machine's device of the same path, which may be another one.
    """
    renamed = {
        name: path
        for device in devices
        for path, name in _below(os.path.realpath(device.host_path), device.container_path or device.host_path)
        if name != path
    }
    kept = [one for one in described if one["path"] not in renamed]
    return kept, {one["path"]: renamed[one["path"]] for one in described if one["path"] in renamed}


def all_devices() -> list[dict[str, Any]]:
    """Every device of the machine, for privileged containers."""
    skipped = ("/dev/pts", "/dev/shm", "/dev/mqueue", "/dev/fd", "/dev/console", "/dev/.udev", "/dev/ptmx")
    found = []
    for path, name in _below("/dev", "/dev"):
        if not path.startswith(skipped) and (described := describe_device(path, name)) is not None:
            found.append(described)
    return found


def _below(host: str, inside: str) -> list[tuple[str, str]]:
    if not os.path.isdir(host):
        return [(host, inside)]
    found = []
    for directory, names, files in os.walk(host):
        names[:] = [name for name in names if not os.path.ismount(os.path.join(directory, name))]
        for name in files:
            path = os.path.join(directory, name)
            found.append((path, inside + path.removeprefix(host)))
    return found


def describe_device(path: str, name: str) -> dict[str, Any] | None:
    """An entry of linux.devices; None for a file that is not a device."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    kind = "c" if stat.S_ISCHR(status.st_mode) else "b" if stat.S_ISBLK(status.st_mode) else ""
    if not kind:
        return None
    return {
        "type": kind,
        "path": name,
        "major": os.major(status.st_rdev),
        "minor": os.minor(status.st_rdev),
        "fileMode": stat.S_IMODE(status.st_mode),
        "uid": status.st_uid,
        "gid": status.st_gid,
    }

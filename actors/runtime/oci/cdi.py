"""Expands CDI devices of a container: adds the variables, devices and mounts of their specifications to its CRI config.

Source: the Container Device Interface specification 0.8 (CNCF). An edit that this runtime cannot make, such as a hook,
is refused: the container would run without a part of its device. A specification with unknown fields is not used.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import yaml

from actors._host.files.untrusted_files import read_regular
from proto.common import untrusted
from proto.cri import api_pb2 as pb

log = logging.getLogger(__name__)

DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
"""A specification in the second goes before one of the first."""
MOST_BYTES = 1 << 20
MOST_FILES = 256
_UNPRIVILEGED = "isolation level 3, which gives containers no devices and groups; run the agent as root"
_PROPAGATION = {
    "rslave": pb.PROPAGATION_HOST_TO_CONTAINER,
    "slave": pb.PROPAGATION_HOST_TO_CONTAINER,
    "rshared": pb.PROPAGATION_BIDIRECTIONAL,
    "shared": pb.PROPAGATION_BIDIRECTIONAL,
}
_OPTIONS = frozenset({"", "ro", "rw", "bind", "rbind", "private", "rprivate", *_PROPAGATION})


class CdiError(Exception):
    """A CDI device is unknown, or has an edit that this runtime cannot make; the message says which."""


class _Node(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    path: str
    host_path: str = ""
    type: str = ""
    permissions: str = ""
    major: int | None = None
    minor: int | None = None
    file_mode: int | None = None
    uid: int | None = None
    gid: int | None = None


class _Mount(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    host_path: str
    container_path: str
    type: str = ""
    options: list[str] = []


class _Edits(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    env: list[str] = []
    device_nodes: list[_Node] = []
    mounts: list[_Mount] = []
    additional_gids: list[int] = []
    hooks: list[Any] = []
    intel_rdt: Any = None
    net_devices: list[Any] = []


class _Device(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    name: str
    annotations: dict[str, str] = {}
    container_edits: _Edits = msgspec.field(default_factory=_Edits)


class _Spec(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    kind: str
    devices: list[_Device]
    cdi_version: str = ""
    annotations: dict[str, str] = {}
    container_edits: _Edits = msgspec.field(default_factory=_Edits)


def expand(config: pb.ContainerConfig, directories: Sequence[str] = DIRECTORIES, *, privileged: bool = True) -> None:
    """Make the edits of the config's CDI devices. Blocks on the disk. Raises CdiError.

    `privileged` is False at isolation level 3, where containers get no device nodes and no groups.
    """
    wanted = list(dict.fromkeys(one.name for one in config.CDI_devices))
    if not wanted:
        return
    specs = [list(_specs(directory)) for directory in directories]
    general: list[_Spec] = []
    for name in wanted:
        spec, device = _found(specs, name)
        edits = [device.container_edits]
        if all(one is not spec for one in general):
            general.append(spec)
            edits.insert(0, spec.container_edits)
        for one in edits:
            _check(name, one, privileged)
            _make(config, name, one)


def _found(specs: Sequence[Sequence[_Spec]], name: str) -> tuple[_Spec, _Device]:
    """The device in the latest directory that has it. Raises CdiError, also when two specifications there have it."""
    kind, _, device = name.rpartition("=")
    for directory in reversed(specs):
        found = [(spec, one) for spec in directory if spec.kind == kind for one in spec.devices if one.name == device]
        if len(found) > 1:
            raise CdiError(f"two CDI specifications of one directory have the device {name}")
        if found:
            return found[0]
    raise CdiError(f"unresolvable CDI devices {name}")


def _specs(directory: str) -> Iterator[_Spec]:
    """The valid specifications of a directory, by name of the file. Others are logged and left out."""
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith((".json", ".yaml")))
    except OSError:
        return
    if len(names) > MOST_FILES:
        log.warning("cannot use all CDI specifications of %s: there are more than %d", directory, MOST_FILES)
    for name in names[:MOST_FILES]:
        try:
            yield _decoded(name, read_regular(os.path.join(directory, name), MOST_BYTES))
        except (OSError, msgspec.DecodeError, msgspec.ValidationError, yaml.YAMLError) as error:
            log.warning("cannot use the CDI specification %s/%s: %s", directory, name, error)


def _decoded(name: str, content: bytes) -> _Spec:
    if name.endswith(".json"):
        found: _Spec = untrusted.decode_json(content, _Spec)
        return found
    # An alias lets a small file hold a huge number of entries.
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(content, yaml.CSafeLoader)):
        raise yaml.YAMLError("it has an alias")
    return msgspec.convert(untrusted.load_yaml(content), _Spec)


def _check(name: str, edits: _Edits, privileged: bool) -> None:
    """Raises CdiError for edits that this runtime cannot make."""
    if edits.hooks or edits.intel_rdt or edits.net_devices:
        raise CdiError(
            f"the CDI device {name} needs hooks, Intel RDT or network devices, which this runtime does not support; "
            "use containerd or CRI-O"
        )
    in_dev = any(mount.container_path.startswith("/dev/") for mount in edits.mounts)
    if not privileged and (edits.device_nodes or edits.additional_gids or in_dev):
        raise CdiError(
            f"the CDI device {name} needs device nodes, groups or mounts in /dev, and the runtime has {_UNPRIVILEGED}"
        )


def _make(config: pb.ContainerConfig, name: str, edits: _Edits) -> None:
    try:
        _apply(config, name, edits)
    except ValueError as error:  # of protobuf: a number or a string that CRI cannot hold
        raise CdiError(f"the CDI device {name} has an invalid value: {error}") from error


def _apply(config: pb.ContainerConfig, name: str, edits: _Edits) -> None:
    for variable in edits.env:
        _set_variable(config, name, variable)
    for node in edits.device_nodes:
        _add_node(config, name, node)
    for mount in edits.mounts:
        _add_mount(config, name, mount)
    config.linux.security_context.supplemental_groups.extend(gid for gid in edits.additional_gids if gid > 0)


def _add_node(config: pb.ContainerConfig, name: str, node: _Node) -> None:
    """Add a device node as the machine has it, in place of another one at its path."""
    if node.type not in ("", "b", "c", "u"):
        raise CdiError(f"the CDI device {name} has a device node of type {node.type!r}, which is not supported")
    if set(node.permissions) - set("rwm"):
        raise CdiError(f"the CDI device {name} has a device node with the permissions {node.permissions!r}")
    host = node.host_path or node.path
    if other := _differences(node, host, name):
        raise CdiError(
            f"the CDI device {name} gives {host} another {other} than this machine, which is not supported; "
            "use containerd or CRI-O"
        )
    others = [one for one in config.devices if one.container_path != node.path]
    del config.devices[:]
    config.devices.extend(
        [*others, pb.Device(host_path=host, container_path=node.path, permissions=node.permissions or "rwm")]
    )


def _differences(node: _Node, host: str, name: str) -> str:
    """Properties of the machine's device that the specification has otherwise. Raises CdiError for no device."""
    try:
        status = os.stat(host)
    except (OSError, ValueError) as error:
        raise CdiError(f"the CDI device {name} has a device node that cannot be used: {error}") from error
    kind = "b" if stat.S_ISBLK(status.st_mode) else "c" if stat.S_ISCHR(status.st_mode) else ""
    if not kind:
        raise CdiError(f"the CDI device {name} has a device node that is no device here: {host}")
    pairs = {
        "type": (node.type.replace("u", "c") or None, kind),
        "major number": (node.major, os.major(status.st_rdev)),
        "minor number": (node.minor, os.minor(status.st_rdev)),
        "mode": (node.file_mode if node.file_mode is None else node.file_mode & 0o777, status.st_mode & 0o777),
        "owner": (node.uid, status.st_uid),
        "group": (node.gid, status.st_gid),
    }
    return ", ".join(key for key, (asked, real) in pairs.items() if asked is not None and asked != real)


def _set_variable(config: pb.ContainerConfig, name: str, variable: str) -> None:
    key, equals, value = variable.partition("=")
    if not key or not equals:
        raise CdiError(f"the CDI device {name} has an invalid variable")
    others = [one for one in config.envs if one.key != key]
    del config.envs[:]
    config.envs.extend([*others, pb.KeyValue(key=key, value=value.encode())])


def _add_mount(config: pb.ContainerConfig, name: str, mount: _Mount) -> None:
    unknown = {mount.type} - {"", "bind"} | set(mount.options) - _OPTIONS
    if unknown:
        raise CdiError(
            f"the CDI device {name} has a mount with {', '.join(sorted(unknown))}, which is not supported; "
            "use containerd or CRI-O"
        )
    if not mount.host_path.startswith("/") or not os.path.exists(mount.host_path):
        raise CdiError(f"the CDI device {name} has a mount of {mount.host_path!r}, which is not on this machine")
    others = [one for one in config.mounts if one.container_path != mount.container_path]
    del config.mounts[:]
    config.mounts.extend(others)
    spread = (_PROPAGATION[one] for one in mount.options if one in _PROPAGATION)
    config.mounts.add(
        host_path=mount.host_path,
        container_path=mount.container_path,
        readonly="ro" in mount.options,
        propagation=next(spread, pb.PROPAGATION_PRIVATE),
    )

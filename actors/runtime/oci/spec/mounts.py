"""The mounts of a container and their propagation."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from actors.runtime.helper.plan import covers_proc
from actors.runtime.model.user_mapping import UserMapping
from proto.common.machine.mountinfo import Mount
from proto.cri import api_pb2 as pb

_PROPAGATION = {
    pb.PROPAGATION_PRIVATE: "rprivate",
    pb.PROPAGATION_HOST_TO_CONTAINER: "rslave",
    pb.PROPAGATION_BIDIRECTIONAL: "rshared",
}


OPTIONS = ("noexec", "nodev", "nosuid")
"""Options that CRI allows for a mount (KEP-5855)."""
MOST_DECLARED = 128
"""VOLUMEs of one image that become mounts."""
_MOST_PATH_BYTES = 4095
"""PATH_MAX without the final NUL."""


@dataclass(frozen=True, slots=True)
class SandboxFiles:
    """Files and directories that a sandbox shares with its containers, by path on the machine; empty for none."""

    hosts: str = ""
    hostname: str = ""
    resolv_conf: str = ""
    shm: str = ""


class BadMount(ValueError):
    """The requested mount is impossible; the message names it and says why."""


def mounts(
    config: pb.ContainerConfig,
    files: SandboxFiles,
    images: Mapping[int, str],
    declared: Mapping[str, str],
    *,
    users: UserMapping | None = None,
) -> list[dict[str, Any]]:
    """The mounts of the specification. Raises BadMount.

    `images`: path of an image's files on the machine, by index of the mount. `declared`: the directory on the machine
    of each VOLUME of the container's image, by its path in the container. `users`: the pod's, if it has a user
    namespace of its own.
    """
    mapping = _mapping(users)
    privileged = config.linux.security_context.privileged
    asked = {mount.container_path.rstrip("/") or "/" for mount in config.mounts} | declared.keys()
    made = _kernel_mounts(privileged=privileged)
    made = [one for one in made if one["destination"] not in asked or one["destination"] in ("/proc", "/dev")]
    # Sorted with the others, as in containerd: a mount at /etc must not hide the pod's resolv.conf.
    inside = [one for one in _sandbox_mounts(files, config, mapping) if one["destination"] not in asked]
    for index, mount in enumerate(config.mounts):
        _require_mapping(mount, f"mounts[{index}]", users)
        # The layers of an image are mapped already.
        asked_mapping = mapping if mount.uidMappings and not mount.HasField("image") else {}
        inside.append(_asked_mount(mount, images.get(index, "")) | asked_mapping)
    inside += [
        _mount(path, "bind", "rbind", "rprivate", "rw", source=source) | mapping for path, source in declared.items()
    ]
    return made + sorted(inside, key=lambda one: depth(one["destination"]))


def depth(path: str) -> int:
    """The order of mounts, outer ones first: a mount on /data would cover an earlier one on /data/in."""
    return os.path.normpath(path).count("/")


def declared_volumes(volumes: Iterable[str], config: pb.ContainerConfig) -> tuple[str, ...]:
    """Paths in the container of an image's VOLUMEs. Raises BadMount.

    As in containerd (internal/cri/server, volumeMounts), a mount of CRI at the same path goes before, and a relative
    path begins at the root. `..` stays in the root.
    """
    asked = {os.path.normpath(mount.container_path) for mount in config.mounts}
    found: dict[str, None] = {}
    for volume in volumes:
        path = os.path.normpath(f"/{volume.lstrip('/')}")
        if path == "/" or "\0" in path or len(path.encode()) > _MOST_PATH_BYTES or covers_proc(path, ""):
            raise BadMount(
                f"cannot make the image's VOLUME {volume[:200]!r}: it is the root, in /proc, or no path; "
                "use an image without it"
            )
        if path not in asked:
            found[path] = None
        if len(found) > MOST_DECLARED:
            raise BadMount(f"cannot make the image's VOLUMEs: they are more than {MOST_DECLARED}; use another image")
    return tuple(found)


def require_propagation(path: str, spread: pb.MountPropagation.ValueType, on: Mount) -> None:
    """Require that mounts can propagate as asked from or to `path`, a path without links, which is on the mount `on`.

    Raises BadMount, with the words of containerd (internal/cri/opts, ensureShared).
    """
    if spread == pb.PROPAGATION_BIDIRECTIONAL and not on.shared:
        lack = "a shared mount"
    elif spread == pb.PROPAGATION_HOST_TO_CONTAINER and not (on.shared or on.slave):
        lack = "a shared or slave mount"
    else:
        return
    raise BadMount(
        f'path "{path}" is mounted on "{on.mount_point}" but it is not {lack}; '
        f"run `mount --make-rshared {on.mount_point}`, or leave mountPropagation out"
    )


def propagation(config: pb.ContainerConfig) -> str:
    """linux.rootfsPropagation; empty for the default."""
    asked = {mount.propagation for mount in config.mounts}
    if pb.PROPAGATION_BIDIRECTIONAL in asked:
        return "rshared"
    return "rslave" if pb.PROPAGATION_HOST_TO_CONTAINER in asked else ""


def _mount(destination: str, kind: str, *options: str, source: str = "") -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": source or kind, "options": list(options)}


def of_device(path: str, source: str) -> dict[str, Any]:
    """The mount of a device on the machine."""
    return _mount(path, "bind", "bind", "rprivate", source=source)


def _kernel_mounts(*, privileged: bool) -> list[dict[str, Any]]:
    access = "rw" if privileged else "ro"
    quiet = ("nosuid", "noexec", "nodev")
    return [
        _mount("/proc", "proc", *quiet),
        _mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
        _mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
        _mount("/dev/mqueue", "mqueue", *quiet),
        _mount("/sys", "sysfs", *quiet, access),
        # Also on cgroup v2. In a user namespace without a cgroup namespace, runc then binds the machine's mount.
        _mount("/sys/fs/cgroup", "cgroup", *quiet, "relatime", access),
    ]


def _mapping(users: UserMapping | None) -> dict[str, Any]:
    """The keys of a mount whose files appear with these users."""
    return {} if users is None else {"uidMappings": users.to_oci(), "gidMappings": users.to_oci()}


def _require_mapping(mount: pb.Mount, field: str, users: UserMapping | None) -> None:
    """Require no ID mapping, or that of the pod. Raises BadMount."""
    given = [name for name in ("uidMappings", "gidMappings") if getattr(mount, name)]
    if given and (users is None or not users.is_in(mount)):
        whose = "the pod has no user namespace" if users is None else "they are not the pod's in userns_options"
        raise BadMount(f"cannot map the users of {mount.container_path} by {field}.{given[0]}: {whose}; leave them out")
    if users is not None and mount.propagation == pb.PROPAGATION_BIDIRECTIONAL:
        raise BadMount(
            f"cannot mount {mount.container_path} with {field}.propagation Bidirectional: no mount leaves a pod with "
            "users of its own; use HostToContainer"
        )


def _sandbox_mounts(files: SandboxFiles, config: pb.ContainerConfig, mapping: dict[str, Any]) -> list[dict[str, Any]]:
    access = "ro" if config.linux.security_context.readonly_rootfs else "rw"
    found = [
        _mount(destination, "bind", "rbind", "rprivate", access, source=source) | mapping
        for destination, source in (
            ("/etc/hosts", files.hosts),
            ("/etc/hostname", files.hostname),
            ("/etc/resolv.conf", files.resolv_conf),
        )
        if source
    ]
    if files.shm:
        found.append(_mount("/dev/shm", "bind", "rbind", "rprivate", source=files.shm))
    return found


def _asked_mount(mount: pb.Mount, image: str) -> dict[str, Any]:
    if not mount.container_path.startswith("/"):
        raise BadMount(f"cannot mount at {mount.container_path!r}: not an absolute path")
    if covers_proc(mount.container_path, mount.host_path):
        raise BadMount(f"cannot mount at {mount.container_path}: it would hide the container's /proc")
    if unknown := [option for option in mount.mount_options if option not in OPTIONS]:
        raise BadMount(f"cannot mount {mount.container_path} with {', '.join(unknown)}; there is {', '.join(OPTIONS)}")
    if mount.HasField("image"):
        return _image_mount(mount, image)
    options = ["rbind", _PROPAGATION[mount.propagation]]
    if mount.recursive_read_only:
        if not mount.readonly or mount.propagation != pb.PROPAGATION_PRIVATE:
            raise BadMount(f"cannot mount {mount.container_path} recursively read-only: it is writable, or not private")
        options.append("rro")
    else:
        options.append("ro" if mount.readonly else "rw")
    return {
        "destination": os.path.normpath(mount.container_path),
        "type": "bind",
        "source": mount.host_path,
        "options": [*options, *mount.mount_options],
    }


def _image_mount(mount: pb.Mount, source: str) -> dict[str, Any]:
    """Always a read-only mount, as in other runtimes (KEP-4639). Its programs run, but setuid bits have no
    effect."""
    if not source:
        raise BadMount(f"cannot mount an image at {mount.container_path}: not supported by this runtime")
    return {
        "destination": os.path.normpath(mount.container_path),
        "type": "bind",
        "source": source,
        "options": list(dict.fromkeys(["bind", "rprivate", "ro", "nosuid", "nodev", *mount.mount_options])),
    }

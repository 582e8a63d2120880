"""The mounts of a container and their propagation."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from actors.runtime.helper.plan import covers_proc
from proto.cri import api_pb2 as pb

_PROPAGATION = {
    pb.PROPAGATION_PRIVATE: "rprivate",
    pb.PROPAGATION_HOST_TO_CONTAINER: "rslave",
    pb.PROPAGATION_BIDIRECTIONAL: "rshared",
}


OPTIONS = ("noexec", "nodev", "nosuid")
"""Options that CRI allows for a mount (KEP-5855)."""


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
    config: pb.ContainerConfig, files: SandboxFiles, images: Mapping[int, str], *, unified: bool
) -> list[dict[str, Any]]:
    """The mounts of the specification. Raises BadMount.

    `unified`: cgroup v2. `images`: path of an image's files on the machine, by index of the mount.
    """
    privileged = config.linux.security_context.privileged
    asked = {mount.container_path.rstrip("/") or "/" for mount in config.mounts}
    made = _kernel_mounts(privileged=privileged, unified=unified)
    made += [one for one in _sandbox_mounts(files, config) if one["destination"] not in asked]
    made = [one for one in made if one["destination"] not in asked or one["destination"] in ("/proc", "/dev")]
    return made + [_asked_mount(mount, images.get(index, "")) for index, mount in outer_first(config)]


def outer_first(config: pb.ContainerConfig) -> list[tuple[int, pb.Mount]]:
    """The mounts with their indexes. A mount on /data would cover an earlier one on /data/in."""
    return sorted(enumerate(config.mounts), key=lambda one: os.path.normpath(one[1].container_path).count("/"))


def propagation(config: pb.ContainerConfig) -> str:
    """linux.rootfsPropagation; empty for the default."""
    asked = {mount.propagation for mount in config.mounts}
    if pb.PROPAGATION_BIDIRECTIONAL in asked:
        return "rshared"
    return "rslave" if pb.PROPAGATION_HOST_TO_CONTAINER in asked else ""


def _mount(destination: str, kind: str, *options: str, source: str = "") -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": source or kind, "options": list(options)}


def _kernel_mounts(*, privileged: bool, unified: bool) -> list[dict[str, Any]]:
    access = "rw" if privileged else "ro"
    quiet = ("nosuid", "noexec", "nodev")
    return [
        _mount("/proc", "proc", *quiet),
        _mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
        _mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
        _mount("/dev/mqueue", "mqueue", *quiet),
        _mount("/sys", "sysfs", *quiet, access),
        _mount("/sys/fs/cgroup", "cgroup2" if unified else "cgroup", *quiet, "relatime", access, source="cgroup"),
    ]


def _sandbox_mounts(files: SandboxFiles, config: pb.ContainerConfig) -> list[dict[str, Any]]:
    access = "ro" if config.linux.security_context.readonly_rootfs else "rw"
    found = [
        _mount(destination, "bind", "rbind", "rprivate", access, source=source)
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
    if mount.uidMappings or mount.gidMappings:
        raise BadMount(f"cannot map the users of {mount.container_path}: not supported by this runtime")
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

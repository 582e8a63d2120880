"""Builds the whole OCI specification (config.json) of one container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from actors.runtime.images.manifest import Execution
from actors.runtime.model.user_mapping import UserMapping
from actors.runtime.oci.spec import mounts, security
from actors.runtime.oci.spec.users import User
from actors.runtime.selinux.labels import NONE, Labels
from proto.cri import api_pb2 as pb

DEFAULT_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class BadContainer(ValueError):
    """The container that CRI asks for is impossible; the message says why."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The features of this machine that decide a specification."""

    unified: bool
    """All cgroup controllers are v2's."""
    capabilities: tuple[str, ...]
    systemd_cgroups: bool = False
    hugetlb: bool = True
    """The kernel limits huge pages; otherwise such limits are left out, as in containerd."""
    apparmor: bool = False
    """Containers may have AppArmor profiles."""
    lowest_oom_score_adj: int = -1000
    """A process without CAP_SYS_RESOURCE cannot go below its parent's value."""


@dataclass(frozen=True, slots=True)
class Place:
    """A container's place on the machine: root file system, cgroup, namespaces and files."""

    container_id: str
    rootfs: str
    cgroup_parent: str
    hostname: str
    namespaces: Mapping[str, str] = field(default_factory=dict)
    """By OCI name: path of the namespace to join, or empty for a new one. A missing one is the machine's."""
    files: mounts.SandboxFiles = field(default_factory=mounts.SandboxFiles)
    images: Mapping[int, str] = field(default_factory=dict)
    """Path of each image volume's files, by the mount's index in CRI's `mounts`."""
    declared: Mapping[str, str] = field(default_factory=dict)
    """Directory on the machine of each VOLUME of the image, by its path in the container."""
    masked: tuple[str, ...] = ()
    """Paths to mask besides CRI's."""
    users: UserMapping | None = None
    """The users of a pod that has a user namespace of its own."""
    labels: Labels = NONE
    """SELinux's. A privileged container gets no process label, as in containerd: the policy chooses its domain."""


def specification(
    config: pb.ContainerConfig, image: Execution, user: User, place: Place, machine: Machine
) -> dict[str, Any]:
    """The content of config.json. Raises BadContainer, BadMount, and OSError for missing devices and profiles."""
    if "mount" not in place.namespaces:  # without one the OCI runtime would change the machine's mounts
        raise BadContainer("a container needs a mount namespace")
    context = config.linux.security_context
    capabilities = security.capabilities(context, machine.capabilities)
    linux: dict[str, Any] = {
        "namespaces": [
            {"type": kind, **({"path": path} if path else {})} for kind, path in sorted(place.namespaces.items())
        ],
        "resources": resources(config.linux.resources, hugetlb=machine.hugetlb),
        "cgroupsPath": cgroups_path(place.cgroup_parent, place.container_id, machine),
    }
    devices, rules = _devices(config, context)
    made = mounts.mounts(config, place.files, place.images, place.declared, users=place.users)
    if place.users is not None:
        linux |= {"uidMappings": place.users.to_oci(), "gidMappings": place.users.to_oci()}
        devices, bound = security.bound_devices(devices, config.devices)
        made += [mounts.of_device(path, source) for path, source in bound.items()]
    linux["resources"]["devices"] = rules
    if devices:
        linux["devices"] = devices
    if (profile := security.seccomp(context, capabilities["bounding"])) is not None:
        linux["seccomp"] = profile
    if spread := mounts.propagation(config):
        linux["rootfsPropagation"] = spread
    masked = [*place.masked] if context.privileged else [*context.masked_paths, *place.masked]
    if masked or not context.privileged:
        linux["maskedPaths"] = masked
    if place.labels.mount:
        linux["mountLabel"] = place.labels.mount
    if not context.privileged:
        linux["readonlyPaths"] = list(context.readonly_paths)
    return {
        "ociVersion": "1.0.2",
        "root": {"path": place.rootfs, "readonly": context.readonly_rootfs},
        "process": _process(config, image, user, place, machine) | {"capabilities": capabilities},
        "mounts": made,
        "annotations": {"io.kubernetes.cri.container-name": config.metadata.name},
        "linux": linux,
    }


def _devices(
    config: pb.ContainerConfig, context: pb.LinuxContainerSecurityContext
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """linux.devices, and the rules for opening devices."""
    devices, permissions = security.host_devices(config.devices)
    rules = security.device_rules(devices, permissions, context.privileged)
    if context.privileged:
        given = {one["path"] for one in devices}
        devices = [one for one in security.all_devices() if one["path"] not in given] + devices
    return devices, rules


def _process(
    config: pb.ContainerConfig, image: Execution, user: User, place: Place, machine: Machine
) -> dict[str, Any]:
    context = config.linux.security_context
    process = {
        "terminal": config.tty,
        "user": {"uid": user.uid, "gid": user.gid, "additionalGids": list(user.groups)},
        "args": arguments(config, image),
        "env": environment(config, image, place.hostname, user),
        "cwd": config.working_dir or image.working_dir or "/",
        "noNewPrivileges": context.no_new_privs,
        "oomScoreAdj": max(config.linux.resources.oom_score_adj, machine.lowest_oom_score_adj),
    }
    if profile := security.apparmor(context, machine.apparmor, security.loaded_profiles):
        process["apparmorProfile"] = profile
    if place.labels.process and not context.privileged:
        process["selinuxLabel"] = place.labels.process
    if config.tty:
        process["consoleSize"] = {"height": 24, "width": 80}
    return process


def arguments(config: pb.ContainerConfig, image: Execution) -> list[str]:
    """The command line: CRI's command replaces the image's entrypoint and arguments. Raises BadContainer."""
    command, given = list(config.command), list(config.args)
    if not command:
        command = list(image.entrypoint or ())
        if not given:
            given = list(image.cmd or ())
    if not command and not given:
        raise BadContainer("no command specified: neither the container nor its image has one")
    return command + given


def environment(config: pb.ContainerConfig, image: Execution, hostname: str, user: User) -> list[str]:
    """Environment variables: defaults, then the image's, then CRI's. A later value replaces an earlier one."""
    variables: dict[str, str] = {}
    defaults = [DEFAULT_PATH, *(["TERM=xterm"] if config.tty else []), f"HOSTNAME={hostname}", *(image.env or ())]
    for text in defaults:
        name, _, value = text.partition("=")
        variables[name] = value
    for variable in config.envs:
        variables[variable.key] = variable.value.decode(errors="replace")  # the specification is JSON
    variables.setdefault("HOME", user.home)
    return [f"{name}={value}" for name, value in variables.items()]


def cgroups_path(parent: str, id_: str, machine: Machine) -> str:
    """linux.cgroupsPath, in the cgroup driver's syntax."""
    if machine.systemd_cgroups:
        return f"{parent.rpartition('/')[2]}:nodevisor:{id_}"
    return f"{parent.rstrip('/')}/{id_}"


def resources(wanted: pb.LinuxContainerResources, *, hugetlb: bool) -> dict[str, Any]:
    """linux.resources, without devices; a value of 0 is left out."""
    cpu = {
        "shares": wanted.cpu_shares,
        "quota": wanted.cpu_quota,
        "period": wanted.cpu_period,
        "cpus": wanted.cpuset_cpus,
        "mems": wanted.cpuset_mems,
    }
    memory = {"limit": wanted.memory_limit_in_bytes, "swap": wanted.memory_swap_limit_in_bytes}
    result: dict[str, Any] = {}
    if chosen := {key: value for key, value in cpu.items() if value}:
        result["cpu"] = chosen
    if limits := {key: value for key, value in memory.items() if value}:
        result["memory"] = limits
    if hugetlb and (pages := [{"pageSize": limit.page_size, "limit": limit.limit} for limit in wanted.hugepage_limits]):
        result["hugepageLimits"] = pages
    if wanted.unified:
        result["unified"] = dict(wanted.unified)
    return result


def exec_process(process: Mapping[str, Any], command: Sequence[str], *, tty: bool) -> dict[str, Any]:
    """The process of an exec: the container's process with another command, and the same user, limits and directory."""
    result = {**process, "args": list(command), "terminal": tty}
    if tty and not any(one.startswith("TERM=") for one in process["env"]):
        result["env"] = [*process["env"], "TERM=xterm"]
    return result

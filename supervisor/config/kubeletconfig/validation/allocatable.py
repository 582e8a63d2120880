"""Rules of Node Allocatable: reserved CPUs, their cgroups, and the enforcement.

Source: https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/

`check_runtime_cgroups` is for a flag without a field.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from supervisor.config.kubeletconfig.cpuset import CpusetError, parse_cpuset
from supervisor.config.kubeletconfig.problems import Problem
from supervisor.config.kubeletconfig.typed.types import KubeletConfiguration

_FIELD = "enforceNodeAllocatable"
_CGROUP_FIELDS = {
    "system-reserved": "systemReservedCgroup",
    "system-reserved-compressible": "systemReservedCgroup",
    "kube-reserved": "kubeReservedCgroup",
    "kube-reserved-compressible": "kubeReservedCgroup",
}
_OPTIONS = ("none", "pods", *_CGROUP_FIELDS)


def rules(config: KubeletConfiguration) -> Iterator[Problem]:
    """Violations in the fields of Node Allocatable."""
    yield from _enforced(config)
    yield from _reserved_cpus(config)
    if config.system_cgroups and not config.cgroup_root:
        yield Problem("systemCgroups", "was specified and cgroupRoot was not; set cgroupRoot, for example to /")
    if reason := _bad_cgroup(config.system_cgroups):
        yield Problem("systemCgroups", reason)


def check_runtime_cgroups(text: str) -> list[Problem]:
    """Errors of --runtime-cgroups. The root is taken, as by the kubelet; its figures are those of the node."""
    reason = _bad_cgroup(text) if text.strip("/") else ""
    return [Problem("", reason, "--runtime-cgroups")] if reason else []


def _bad_cgroup(text: str) -> str:
    """The reason why a text names no single cgroup below the root; empty when it does, or is empty."""
    name = f"/{text.strip('/')}"
    if text and (name == "/" or "\0" in name or os.path.normpath(name) != name):
        return f"must be a cgroup below the root, such as /system.slice, without // . and .., not {text[:60]!r}"
    return ""


def warnings(config: KubeletConfiguration) -> Iterator[Problem]:
    """A warning of systemCgroups: the kubelet moves all processes there that are in no cgroup."""
    if config.system_cgroups:
        yield Problem("systemCgroups", "is only measured: processes of others are never moved to another cgroup")


def _enforced(config: KubeletConfiguration) -> Iterator[Problem]:
    options = config.enforce_node_allocatable or ()
    cgroups = {
        "systemReservedCgroup": config.system_reserved_cgroup,
        "kubeReservedCgroup": config.kube_reserved_cgroup,
    }
    for name in ("system-reserved", "kube-reserved"):
        if name in options and f"{name}-compressible" in options:
            yield Problem(_FIELD, f"{name} and {name}-compressible cannot be specified together; keep one")
    for index, option in enumerate(options):
        path = f"{_FIELD}[{index}]"
        if option in options[:index]:
            yield Problem(path, f"{option[:60]} is there twice; remove one")
        elif option not in _OPTIONS:
            yield Problem(path, f"must be one of {', '.join(_OPTIONS)}, not {option[:60]!r}")
        elif option == "none":
            if len(options) > 1:
                yield Problem(path, "none may not have other enforcements beside it")
        else:
            if option in _CGROUP_FIELDS and not cgroups[_CGROUP_FIELDS[option]]:
                yield Problem(path, f"{option} needs {_CGROUP_FIELDS[option]}")
            if not config.cgroups_per_qos:
                yield Problem(
                    path, f"{option} needs cgroupsPerQOS: true; without it write enforceNodeAllocatable: [none]"
                )


def _reserved_cpus(config: KubeletConfiguration) -> Iterator[Problem]:
    if not config.reserved_system_cpus:
        return
    if config.system_reserved_cgroup or config.kube_reserved_cgroup:
        problem = "cannot be used together with systemReservedCgroup or kubeReservedCgroup"
        yield Problem("reservedSystemCPUs", problem)
    try:
        parse_cpuset(config.reserved_system_cpus)
    except CpusetError as error:
        yield Problem("reservedSystemCPUs", str(error))

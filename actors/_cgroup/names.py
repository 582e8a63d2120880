"""Names the cgroups of pods and QoS classes, for the drivers cgroupfs and systemd. Pure.

A name is the path below each controller's mount, with a leading slash. For a pod it is also CRI's cgroup_parent.
Source: https://kubernetes.io/docs/setup/production-environment/container-runtimes/#cgroup-drivers and
pkg/kubelet/cm (pod_container_manager_linux.go, cgroup_manager_linux.go).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actors._cgroup.quantities.qos import QosClass  # loads the API types, which `supervisor start` does not need

ROOT = "kubepods"
POD_PREFIX = "pod"
QOS_CLASSES: tuple[QosClass, ...] = ("Guaranteed", "Burstable", "BestEffort")


def pod_cgroup(driver: str, root: str, per_qos: bool, qos: QosClass, uid: str) -> str:
    """Return the pod's cgroup: `/kubepods/burstable/podUID`, or with the systemd driver
    `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID_WITH_UNDERSCORES.slice`.

    `driver` is `cgroupfs` or `systemd`, `root` Settings.cgroup_root. Empty without `per_qos`: the runtime chooses then.
    """
    return _name(driver, [*_above(root, qos), POD_PREFIX + uid]) if per_qos else ""


def qos_cgroup(driver: str, root: str, qos: QosClass) -> str:
    """Return the parent cgroup of the pods of one class. Guaranteed pods are directly below `kubepods`."""
    return _name(driver, _above(root, qos))


def pod_uid(driver: str, name: str) -> str:
    """Return the UID of the pod with the cgroup directory `name` (one component); empty for other directories.

    Names of the systemd driver have underscores in place of dashes. UIDs have no underscores of their own: those of
    static pods are a hash, all others have dashes.
    """
    if driver != "systemd":
        return name[len(POD_PREFIX) :] if name.startswith(POD_PREFIX) else ""
    last = name.removesuffix(".slice").rpartition("-")[2]
    if not name.endswith(".slice") or not last.startswith(POD_PREFIX) or last == POD_PREFIX:
        return ""
    return last[len(POD_PREFIX) :].replace("_", "-")


def _above(root: str, qos: QosClass) -> list[str]:
    parts = [*(part for part in root.split("/") if part), ROOT]
    return parts if qos == "Guaranteed" else [*parts, qos.lower()]


def _name(driver: str, parts: list[str]) -> str:
    if driver != "systemd":
        return "/" + "/".join(parts)
    # A slice's name is its path joined by dashes, so systemd reads a dash inside a part as one more level.
    escaped = [part.removesuffix(".slice").replace("-", "_") for part in parts]
    return "".join(f"/{'-'.join(escaped[: depth + 1])}.slice" for depth in range(len(escaped)))

"""Finds pods that run outside their cgroup: at their start the driver, cgroupRoot or cgroupsPerQOS was another one.

Their resources count nowhere. The kubelet ends such pods and starts them in the present hierarchy: syncPod of
pkg/kubelet/kubelet.go. Doubt finds nothing.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from actors._cgroup import fs
from actors._cgroup.hierarchy import Hierarchy, hierarchy, own_cgroups
from actors._cgroup.names import POD_PREFIX, QOS_CLASSES, pod_cgroup, qos_cgroup
from actors._cgroup.quantities.qos import QosClass, qos_class
from actors._cgroup.quantities.resources import PodLimits
from proto.agent.settings import Settings
from proto.v1 import Pod


def lacks_cgroup(pod: Pod, settings: Settings, tree: Hierarchy | None = None) -> bool:
    """Return True when the pod has to have a cgroup, and has none in any controller."""
    return _lacks_all(pod, settings, (qos_class(pod),), tree)


def must_move(pod: Pod, settings: Settings, pids: Mapping[str, int], tree: Hierarchy | None = None) -> bool:
    """Return True when the pod has to end, and can start again in its cgroup: see `runs_elsewhere`.

    Raises OSError when no cgroup can be made there, as under a wrong cgroupRoot. No pod would start again.
    """
    if not runs_elsewhere(pod, settings, pids, tree):
        return False
    above = qos_cgroup(settings.cgroup_driver, settings.cgroup_root, qos_class(pod))
    fs.ensure(above, PodLimits(), settings.cgroup_driver, tree or hierarchy())
    return True


def runs_elsewhere(pod: Pod, settings: Settings, pids: Mapping[str, int], tree: Hierarchy | None = None) -> bool:
    """Return True when a process of the pod runs in the cgroup that it has by other settings, and not in the pod's.

    `pids`: the first process of each running container, by ID; 0 when not known. The end of a pod follows, so a place
    counts only if it is sure. A process that its runtime or its container has put elsewhere stays: to start again would
    not move it. So does one whose cgroup is not in our mounts, as for an agent in a container.
    """
    if not _lacks_all(pod, settings, QOS_CLASSES, tree):
        return False
    try:
        tree = tree or hierarchy()
        return any(pid and _is_placed(pid, identity, pod, settings, tree) for identity, pid in pids.items())
    except (OSError, ValueError):
        return False  # it has ended


def _is_placed(pid: int, identity: str, pod: Pod, settings: Settings, tree: Hierarchy) -> bool:
    """True when the process is in a cgroup as we ask for by some settings. Raises OSError, ValueError."""
    for controller, name in own_cgroups(f"/proc/{pid}/cgroup").items():
        mount, place = tree.mounts.get(controller), _place(name, identity, pod.metadata.uid)
        if mount is None or not place or ".." in place.split("/"):
            continue
        # The name of a slice has all its parents. Elsewhere it is that of a runtime that does not know slices.
        names = [_named(pod, settings, qos) for qos in QOS_CLASSES] if place.endswith(".slice") else []
        if _exists(f"{mount}{place}/cgroup.procs") and os.path.basename(place) not in map(os.path.basename, names):
            return True
    return False


def _place(name: str, identity: str, uid: str) -> str:
    """The part of `name` that ends with the pod's cgroup, or with the container's if the runtime chose it; else empty.

    Containers make cgroups below theirs, which may look the same.
    """
    slice_end = f"-{POD_PREFIX}{uid.replace('-', '_')}.slice"
    parts = name.split("/")
    for depth, part in enumerate(parts):
        of_pod = part == POD_PREFIX + uid or part.endswith(slice_end)
        if of_pod or part == identity or part.endswith((f"-{identity}.scope", f"-{identity}")):
            return "/".join(parts[: depth + 1])
    return ""


def _named(pod: Pod, settings: Settings, qos: QosClass) -> str:
    return pod_cgroup(settings.cgroup_driver, settings.cgroup_root, True, qos, pod.metadata.uid)


def _lacks_all(pod: Pod, settings: Settings, classes: Collection[QosClass], tree: Hierarchy | None) -> bool:
    """True when the pod has no cgroup as one of these classes. Its class follows gates, too, which may have changed."""
    if not settings.cgroups_per_qos:
        return False
    try:
        tree = tree or hierarchy()
        for mount in tree.paths(""):
            os.stat(f"{mount}/cgroup.procs")  # else nothing is mounted here, and nothing is below it
        names = [_named(pod, settings, qos) for qos in classes]
        return not any(_exists(path) for name in names for path in tree.paths(name))
    except OSError:
        return False


def _exists(path: str) -> bool:
    """Raises OSError when that is not known."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True

"""Where things are under the root and log directories: the kubelet's layout, which log shippers and CSI drivers know.

Covers paths, as strings. Creates nothing. Raises ValueError for a UID or a name that is no part of a path. `root` is
Settings.root_dir, `uid` a pod's UID, `plugin` a volume plugin's directory name (`kubernetes.io~empty-dir`). Source:
pkg/kubelet/kubelet_getters.go and pkg/kubelet/kuberuntime/helpers.go of Kubernetes 1.36.
"""

import os

from proto.common.safe_text import component

MAX_SYMLINK_NAME = 251
"""Bytes of a log symlink's name before its suffix: NAME_MAX of 255 less `.log`."""


SUBPATHS = "volume-subpaths"
"""In a pod's directory: what containers mount of a part of a volume, by volume, container and mount."""


VOLUME_DEVICES = "volumeDevices"
"""In a pod's directory: links to raw block devices."""


def pods_dir(root: str) -> str:
    """All pods' directories."""
    return f"{root}/pods"


def pod_dir(root: str, uid: str) -> str:
    """All of one pod."""
    return f"{root}/pods/{component(uid)}"


def pod_volumes_dir(root: str, uid: str) -> str:
    """The pod's volumes, by plugin."""
    return f"{root}/pods/{component(uid)}/volumes"


def pod_devices_dir(root: str, uid: str) -> str:
    """Links to the pod's raw block devices, by plugin and volume."""
    return f"{root}/pods/{component(uid)}/{VOLUME_DEVICES}"


def pod_device(root: str, uid: str, plugin: str, name: str) -> str:
    """The link to one raw block device: what containers get."""
    return f"{root}/pods/{component(uid)}/{VOLUME_DEVICES}/{plugin}/{name}"


def volume_dir(root: str, uid: str, plugin: str, name: str) -> str:
    """One volume: what containers see."""
    return f"{root}/pods/{component(uid)}/volumes/{plugin}/{name}"


def pod_plugins_dir(root: str, uid: str) -> str:
    """What volume plugins keep about the pod's volumes, by plugin."""
    return f"{root}/pods/{component(uid)}/plugins"


def plugin_volume_dir(root: str, uid: str, plugin: str, name: str) -> str:
    """What one volume plugin keeps about one of the pod's volumes."""
    return f"{root}/pods/{component(uid)}/plugins/{plugin}/{name}"


def local_devices_dir(root: str) -> str:
    """Where disks of local PersistentVolumes are mounted for all pods, by volume."""
    return f"{root}/plugins/kubernetes.io/local-volume/mounts"


def subpaths_dir(root: str, uid: str) -> str:
    """The pod's sub paths, by volume."""
    return f"{root}/pods/{component(uid)}/{SUBPATHS}"


def pod_containers_dir(root: str, uid: str) -> str:
    """The pod's containers, by name."""
    return f"{root}/pods/{component(uid)}/containers"


def container_dir(root: str, uid: str, container: str) -> str:
    """One container's directory, with a file for the termination message of each of its lives."""
    return f"{root}/pods/{component(uid)}/containers/{component(container)}"


def etc_hosts_path(root: str, uid: str) -> str:
    """The pod's /etc/hosts."""
    return f"{root}/pods/{component(uid)}/etc-hosts"


def checkpoints_dir(root: str) -> str:
    """What our actors keep across restarts; the kubelet has nothing here."""
    return f"{root}/nodevisor"


def pod_log_dir(pod_logs_dir: str, namespace: str, name: str, uid: str) -> str:
    """All logs of one pod; CRI's log_directory."""
    return f"{pod_logs_dir}/" + component(f"{namespace}_{name}_{uid}")


def container_log_path(container: str, restart_count: int) -> str:
    """One container life's log, relative to the pod's log directory; CRI's log_path."""
    return f"{component(container)}/{restart_count}.log"


def log_symlink(container_logs_dir: str, pod_name: str, pod_namespace: str, container: str, container_id: str) -> str:
    """The link to a container's log that the kubelet keeps for log shippers, NAME_NAMESPACE_CONTAINER-ID.log.

    A name too long for a directory entry loses the end of what precedes `.log`, as in the kubelet.
    """
    name = f"{pod_name}_{pod_namespace}_{container}-{container_id}"
    return os.path.join(container_logs_dir, component(name[:MAX_SYMLINK_NAME]) + ".log")

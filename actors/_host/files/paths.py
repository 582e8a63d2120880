"""Builds the paths below the root and log directories: the kubelet's layout, which log shippers and CSI drivers expect.

Creates nothing. `root` is Settings.root_dir, `uid` a pod's UID, `plugin` a volume plugin's directory name
(`kubernetes.io~empty-dir`). Every function raises ValueError for a UID or name that is not a single path component.
Source: pkg/kubelet/kubelet_getters.go and pkg/kubelet/kuberuntime/helpers.go of Kubernetes 1.36.
"""

import os

from proto.common.safe_text import component

MAX_SYMLINK_NAME = 251
"""Bytes of a log symlink's name before its suffix: NAME_MAX of 255 less `.log`."""
SUBPATHS = "volume-subpaths"
"""Directory of a pod for subPath mounts, by volume, container and mount."""
VOLUME_DEVICES = "volumeDevices"
"""Directory of a pod for links to raw block devices."""
DEVICE_CHECKPOINT = "kubelet_internal_checkpoint"
"""File in the directory of device plugins."""


def pods_dir(root: str) -> str:
    """The directory with one directory per pod."""
    return f"{root}/pods"


def pod_dir(root: str, uid: str) -> str:
    """The directory of one pod."""
    return f"{root}/pods/{component(uid)}"


def pod_volumes_dir(root: str, uid: str) -> str:
    """The pod's volumes, by plugin."""
    return f"{pod_dir(root, uid)}/volumes"


def volume_dir(root: str, uid: str, plugin: str, name: str) -> str:
    """One volume, as containers see it."""
    return f"{pod_dir(root, uid)}/volumes/{plugin}/{name}"


def pod_devices_dir(root: str, uid: str) -> str:
    """Links to the pod's raw block devices, by plugin and volume."""
    return f"{pod_dir(root, uid)}/{VOLUME_DEVICES}"


def pod_device(root: str, uid: str, plugin: str, name: str) -> str:
    """The link to one raw block device that containers get."""
    return f"{pod_dir(root, uid)}/{VOLUME_DEVICES}/{plugin}/{name}"


def plugin_volume_dir(root: str, uid: str, plugin: str, name: str) -> str:
    """The private directory of a volume plugin for one volume of the pod."""
    return f"{pod_dir(root, uid)}/plugins/{plugin}/{name}"


def local_devices_dir(root: str) -> str:
    """Mounts of local PersistentVolumes' disks, shared by all pods, by volume."""
    return f"{root}/plugins/kubernetes.io/local-volume/mounts"


def subpaths_dir(root: str, uid: str) -> str:
    """The pod's subPath mounts, by volume."""
    return f"{pod_dir(root, uid)}/{SUBPATHS}"


def container_dir(root: str, uid: str, container: str) -> str:
    """One container's directory, with a termination message file for each restart count."""
    return f"{pod_dir(root, uid)}/containers/{component(container)}"


def etc_hosts_path(root: str, uid: str) -> str:
    """The pod's /etc/hosts."""
    return f"{pod_dir(root, uid)}/etc-hosts"


def device_plugins_dir(root: str) -> str:
    """Sockets of device plugins, and their checkpoint."""
    return f"{root}/device-plugins"


def device_checkpoint(root: str) -> str:
    """The checkpoint of device plugins. A root directory without one has had no plugin."""
    return f"{device_plugins_dir(root)}/{DEVICE_CHECKPOINT}"


def pod_resources_socket(root: str) -> str:
    """The socket of the pod resources API."""
    return f"{root}/pod-resources/kubelet.sock"


def shutdown_times(root: str) -> str:
    """The times of the machine's last graceful shutdown."""
    return f"{root}/graceful_node_shutdown_state"


def checkpoints_dir(root: str) -> str:
    """State that the actors keep across restarts. The kubelet has no such directory."""
    return f"{root}/nodevisor"


def url_pods(root: str) -> str:
    """The last good pods of the URL of static pods."""
    return f"{checkpoints_dir(root)}/config-url.json"


def pod_log_dir(pod_logs_dir: str, namespace: str, name: str, uid: str) -> str:
    """All logs of one pod; CRI's log_directory."""
    return f"{pod_logs_dir}/" + component(f"{namespace}_{name}_{uid}")


def container_log_path(container: str, restart_count: int) -> str:
    """The log of one restart count, relative to the pod's log directory; CRI's log_path."""
    return f"{component(container)}/{restart_count}.log"


def log_symlink(container_logs_dir: str, pod_name: str, pod_namespace: str, container: str, container_id: str) -> str:
    """The kubelet's link to a container's log for log shippers, NAME_NAMESPACE_CONTAINER-ID.log.

    A name that is too long loses its end before `.log`, as in the kubelet.
    """
    name = f"{pod_name}_{pod_namespace}_{container}-{container_id}"
    return os.path.join(container_logs_dir, component(name[:MAX_SYMLINK_NAME]) + ".log")


def current_certificate(cert_dir: str, prefix: str) -> str:
    """The link to the file with the certificate in use and its key: `kubelet-client` or `kubelet-server`."""
    return f"{cert_dir}/{prefix}-current.pem"

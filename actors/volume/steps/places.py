"""Directories of volumes on disk, in the kubelet's layout below ROOT_DIR. Pure."""

from __future__ import annotations

import hashlib

from actors._host.files import paths
from actors.volume.steps.codec import SetUp
from actors.volume.steps.csi import CsiMount
from actors.volume.steps.volumes import Block, EmptyDir, Files, HostPath, Local, Mount

EMPTY_DIR, CONFIG_MAP, SECRET = "kubernetes.io~empty-dir", "kubernetes.io~configmap", "kubernetes.io~secret"
DOWNWARD_API, PROJECTED = "kubernetes.io~downward-api", "kubernetes.io~projected"
LOCAL_VOLUME, NFS, CSI = "kubernetes.io~local-volume", "kubernetes.io~nfs", "kubernetes.io~csi"
"""Plugin directories below a pod's `volumes`."""

MOUNTED_PLUGINS = frozenset({LOCAL_VOLUME, NFS})
"""Plugins whose volumes are mounts of data that outlives the pod: unmounted when it goes, never emptied."""

_CSI_BLOCK = "plugins/kubernetes.io/csi/volumeDevices"


def host_path(root: str, step: SetUp) -> str:
    """Path of the volume on the host once the step is done."""
    match step:
        case EmptyDir() | Mount() | Local():
            return paths.volume_dir(root, step.uid, step.plugin, step.name)
        case Files():
            return host_path(root, step.directory)
        case HostPath():
            return step.path
        case Block():
            return paths.pod_device(root, step.uid, step.plugin, step.name)
        case CsiMount(volume) if volume.block:
            return paths.pod_device(root, volume.uid, CSI, file_name(volume.spec_name))
        case CsiMount():
            return f"{csi_volume_dir(root, step.volume.uid, step.volume.spec_name)}/mount"


def map_places(root: str, step: SetUp) -> tuple[str, dict[str, str]]:
    """Volume name and directories of a raw device, by the kubelet's names; empty for other volumes."""
    match step:
        case Block():
            uid, plugin, volume, shared = step.uid, step.plugin, step.name, local_block_dir(root, step.name)
        case CsiMount(one) if one.block:
            uid, plugin, volume = one.uid, CSI, one.spec_name
            shared = f"{csi_block_dir(root, one.spec_name)}/dev"
        case _:
            return "", {}
    return volume, {"globalMapPath": shared, "volumeMapPath": f"{paths.pod_devices_dir(root, uid)}/{plugin}"}


def local_block_dir(root: str, name: str) -> str:
    """Directory where the device of a local PersistentVolume is bound for its pods, by their UIDs."""
    return f"{root}/plugins/{LOCAL_VOLUME}/volumeDevices/{name}"


# CSI volumes


def file_name(spec_name: str) -> str:
    """A volume's name as one component of a path."""
    return spec_name.replace("/", "~")


def csi_block_dir(root: str, spec_name: str) -> str:
    """Directory of a raw device: `data` holds vol_data.json, `dev` a file for each pod, by its UID."""
    return f"{root}/{_CSI_BLOCK}/{file_name(spec_name)}"


def csi_block_volumes_dir(root: str) -> str:
    """Parent directory of all raw devices, by volume."""
    return f"{root}/{_CSI_BLOCK}"


def csi_block_staging_dir(root: str, spec_name: str) -> str:
    """Directory where a driver stages a raw device."""
    return f"{root}/{_CSI_BLOCK}/staging/{file_name(spec_name)}"


def csi_block_stagings_dir(root: str) -> str:
    """Parent directory of all staged raw devices, by volume."""
    return f"{root}/{_CSI_BLOCK}/staging"


def csi_block_target(root: str, spec_name: str, uid: str) -> str:
    """Path where a driver publishes a raw device for a pod; the driver creates it."""
    return f"{root}/{_CSI_BLOCK}/publish/{file_name(spec_name)}/{uid}"


def csi_volume_dir(root: str, uid: str, spec_name: str) -> str:
    """Directory of a pod's volume; the driver publishes to `mount` in it."""
    return f"{root}/pods/{uid}/volumes/{CSI}/{file_name(spec_name)}"


def csi_mark_dir(root: str, uid: str, spec_name: str) -> str:
    """Directory of the file `ready`, written once the volume is set up; the kubelet has nothing here."""
    return f"{root}/pods/{uid}/plugins/{CSI}/{file_name(spec_name)}"


def csi_stagings_dir(root: str) -> str:
    """Parent directory of the drivers' directories of staged volumes."""
    return f"{root}/plugins/kubernetes.io/csi"


def csi_staging_dir(root: str, driver: str, handle: str) -> str:
    """Directory of a staged volume; the driver stages to `globalmount` in it."""
    return f"{csi_stagings_dir(root)}/{driver}/{hashlib.sha256(handle.encode()).hexdigest()}"

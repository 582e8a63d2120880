"""Reconstructs the actual state at the start, from directories, marks and the mount table.

It touches no volume, so that a hanging volume cannot delay the start. It blocks on the root directory's disk only.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress

from actors._host.files import mounts, paths
from actors._host.files.listing import names
from actors._host.files.untrusted_files import read_regular
from actors._host.selinux import SECLABEL
from actors.volume.csi import disk
from actors.volume.ops import setup
from actors.volume.policy import Actual
from actors.volume.steps.errors import VolumeError
from actors.volume.steps.places import (
    CSI,
    EMPTY_DIR,
    LOCAL_VOLUME,
    csi_block_dir,
    csi_block_volumes_dir,
    csi_volume_dir,
)
from actors.volume.steps.removal_rules import LOCAL_PLUGINS, MEMORY_FILE_SYSTEMS

MOST_NAME_BYTES = 4096


def find_volumes(root: str) -> dict[str, dict[str, Actual]]:
    """Pods with volumes on disk, by UID, and their completely set up volumes, by name."""
    pods_dir = os.path.realpath(paths.pods_dir(root))
    uids = _names(pods_dir)
    if not uids:
        return {}
    table = mounts.mounts_under(pods_dir)
    mounted = {mount.mount_point: mount.fs_type for mount in table}
    labelled = {mount.mount_point for mount in table if SECLABEL in mount.options.split(",")}
    found: dict[str, dict[str, Actual]] = {}
    for uid in uids:
        inside = _names(f"{pods_dir}/{uid}")
        if not {"plugins", "volumes", paths.VOLUME_DEVICES, paths.SUBPATHS} & inside:
            continue
        found[uid] = {}
        marks = f"{pods_dir}/{uid}/plugins/{EMPTY_DIR}"
        marked = _names(marks)
        volumes = f"{pods_dir}/{uid}/volumes"
        found[uid].update(_published(f"{pods_dir}/{uid}", root, uid, mounted, labelled))
        for plugin in _names(volumes) & LOCAL_PLUGINS:
            for name in _names(f"{volumes}/{plugin}"):
                mark = setup.ready_name(plugin, name)
                fs_type = mounted.get(f"{volumes}/{plugin}/{name}", "")
                ours = not fs_type or fs_type in MEMORY_FILE_SYSTEMS
                if ours and mark in marked and setup.READY in _names(f"{marks}/{mark}"):
                    path = paths.volume_dir(root, uid, plugin, name)
                    found[uid][name] = Actual(mounted=True, medium=fs_type, path=path, relabel=True)
    return found


def _published(
    pod_dir: str, root: str, uid: str, mounted: Mapping[str, str], labelled: Collection[str]
) -> dict[str, Actual]:
    """CSI volumes that are marked as ready and still mounted, by name in the pod.

    `labelled`: mount points of file systems with an SELinux label for each file.

    A volume whose record is unreadable is to be published again, which writes the record anew.
    """
    found = {}
    for directory in _names(f"{pod_dir}/plugins/{CSI}"):
        with suppress(OSError):
            name = _name_in_pod(pod_dir, directory)
            place, device_place = f"{pod_dir}/volumes/{CSI}/{directory}", csi_block_dir(root, directory)
            if f"{place}/mount" in mounted:
                if not _is_readable(place):
                    continue
                relabel = f"{place}/mount" in labelled and not disk.label_of(place)
                path = f"{csi_volume_dir(root, uid, directory)}/mount"
                found[name] = Actual(mounted=True, path=path, relabel=relabel)
                continue
            # After a reboot the link is still there, but no device is bound.
            device = paths.pod_device(root, uid, CSI, directory)
            bound = os.path.islink(device) and mounts.type_at(f"{device_place}/dev/{uid}")
            if bound and _is_readable(f"{device_place}/data"):
                found[name] = Actual(mounted=True, path=device)
    return found


def _name_in_pod(pod_dir: str, directory: str) -> str:
    """The CSI volume's name in the pod. Raises OSError when it is not completely set up."""
    mark = f"{pod_dir}/plugins/{CSI}/{directory}/{setup.READY}"
    return read_regular(mark, MOST_NAME_BYTES).decode(errors="replace")


def find_labels(root: str) -> dict[tuple[str, str], tuple[tuple[str, str], str]]:
    """(driver, handle) and SELinux label of each CSI volume that pods have mounted, by UID and name in the pod.

    A volume that is not completely set up has a name that no volume has. After a reboot nothing is mounted, and no
    label of before holds: what the pods want may have changed with a setting, a CSIDriver or the policy.
    """
    found = {}
    top = os.path.realpath(paths.pods_dir(root))
    table = {mount.mount_point for mount in mounts.mounts_under(top)}
    for uid in _names(top):
        for one in disk.look(root, uid)[0]:
            place = csi_volume_dir(root, uid, one.spec_name)
            if one.block or f"{os.path.realpath(place)}/mount" not in table:
                continue
            name = f"{one.spec_name} on disk"
            with suppress(OSError):
                name = _name_in_pod(paths.pod_dir(root, uid), one.spec_name)
            found[uid, name] = (one.driver, one.handle), disk.label_of(place) or ""
    return found


def _is_readable(place: str) -> bool:
    try:
        disk.read_data(place)
    except VolumeError:
        return False
    return True


def find_devices(root: str) -> tuple[set[str], dict[str, set[str]]]:
    """Local PersistentVolumes with a global mount point, and the local volumes of each pod, by UID."""
    pods_dir = paths.pods_dir(root)
    by_pod = {uid: _names(f"{paths.pod_volumes_dir(root, uid)}/{LOCAL_VOLUME}") for uid in _names(pods_dir)}
    return _names(paths.local_devices_dir(root)), {uid: names for uid, names in by_pod.items() if names}


def find_persistent(root: str) -> dict[str, set[str]]:
    """The PersistentVolumes of CSI drivers that are mounted in each pod, by UID."""
    tops = (os.path.realpath(top) for top in (paths.pods_dir(root), csi_block_volumes_dir(root)))
    table = {mount.mount_point for top in tops for mount in mounts.mounts_under(top)}
    by_pod = {uid: disk.mounted(root, uid, table) for uid in _names(paths.pods_dir(root))}
    return {uid: names for uid, names in by_pod.items() if names}


def _names(directory: str) -> set[str]:
    return set(names(directory))

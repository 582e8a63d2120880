"""Mounts volumes whose data outlives the pod: directories and disks of the node, and NFS exports. Blocks.

Runs in a helper process. Every step can be repeated from any point. A disk is mounted once for the node, at the
volume's global path, and bound from there into each pod. Source: pkg/volume/local, pkg/volume/nfs, FormatAndMount of
k8s.io/mount-utils.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from actors._host.files import mounts, paths
from actors.volume.ops import block, commands, ownership, setup
from actors.volume.ops.commands import Failed, Progress
from actors.volume.ops.inside import opened
from actors.volume.ops.setup import DATA_MODE, make_dirs
from actors.volume.steps.errors import MOUNT_DEVICE_FAILED, VolumeError, go_text
from actors.volume.steps.places import LOCAL_VOLUME, host_path
from actors.volume.steps.volumes import Block, Local, Mount, ReleaseDevice

MOUNT_S = 60.0
FSCK_S = 3600.0
MKFS_S = 3600.0
"""An hour, since a disk must not be left half formatted or half repaired."""

_NOTHING_FOUND = 2
_CORRECTED, _UNCORRECTED = 1, 4


def global_path(root: str, name: str) -> str:
    """Path where a local disk is mounted for all pods."""
    return f"{paths.local_devices_dir(os.path.realpath(root))}/{name}"


def carry_out(root: str, step: Mount | Local | Block | ReleaseDevice, progress: Progress) -> str:
    """Carry out one step; returns a warning for the pod, or "". Raises VolumeError, OSError, ChildStuck."""
    match step:
        case Mount():
            set_up_mount(root, step, progress)
        case Local():
            return set_up_local(root, step, progress)
        case Block():
            block.set_up_local(root, step, progress)
        case ReleaseDevice():
            release(root, step.name, progress)
    return ""


def set_up_mount(root: str, volume: Mount, progress: Progress) -> None:
    """Mount a remote file system. Raises VolumeError, ChildStuck."""
    target = _target(root, volume)
    if not mounts.type_at(target):
        mount(volume.source, target, volume.fs_type, volume.options, progress)


def set_up_local(root: str, volume: Local, progress: Progress) -> str:
    """Bind a local volume into the pod. Raises VolumeError, OSError, ChildStuck.

    The first pod gives the files to its fsGroup. Returns a warning for later pods with another fsGroup, else "".
    """
    source = volume.path
    try:
        mode = os.stat(source).st_mode
    except OSError as error:
        raise VolumeError(f'path "{source}" does not exist') from error
    if stat.S_ISBLK(mode):
        try:
            source = _mount_device(root, volume, progress)
        except VolumeError as error:
            error.stage = MOUNT_DEVICE_FAILED
            raise
    elif not stat.S_ISDIR(mode):
        raise VolumeError(f"path {source} is neither a directory nor a block device")
    target = _target(root, volume)
    mark = setup.mount_mark(root, volume.uid, volume.name)
    if not mounts.type_at(target):
        with suppress(FileNotFoundError):
            os.unlink(mark)
        mount(source, target, "", tuple(sorted({"bind", *volume.options})), progress)
    warning = ""
    if volume.fs_group is not None and not os.path.exists(mark):
        make_dirs(os.path.dirname(mark))
        if all(_is_unfinished(root, uid, volume.name) for uid in _users(root, volume.name) - {volume.uid}):
            _give_to_group(volume, target, progress)
        else:
            warning = _other_group(volume, target)
        os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644))
    return warning


def _give_to_group(volume: Local, target: str, progress: Progress) -> None:
    assert volume.fs_group is not None
    with opened(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as directory:
        ownership.set_ownership(
            directory, volume.fs_group, read_only=False, policy=volume.fs_group_policy, progress=progress
        )


def _other_group(volume: Local, target: str) -> str:
    group = os.stat(target).st_gid
    if group == volume.fs_group:
        return ""
    return (
        f"The requested fsGroup is {volume.fs_group}, but the volume {volume.name} has GID {group}. "
        "The volume may not be shareable."
    )


def _is_unfinished(root: str, uid: str, name: str) -> bool:
    # True when a kill interrupted the change of group.
    mark = setup.mount_mark(root, uid, name)
    return os.path.isdir(os.path.dirname(mark)) and not os.path.exists(mark)


def _users(root: str, name: str) -> set[str]:
    """UIDs of the pods that have a local volume."""
    top = os.path.realpath(paths.pods_dir(root))
    end = f"/volumes/{LOCAL_VOLUME}/{name}"
    points = (one.mount_point for one in mounts.mounts_under(top))
    return {point[len(top) + 1 : -len(end)] for point in points if point.endswith(end)}


def mount(source: str, target: str, fs_type: str, options: tuple[str, ...], progress: Progress) -> None:
    """Start the mount program and wait for it. Raises VolumeError with the kubelet's message, ChildStuck."""
    flags = [*(("-t", fs_type) if fs_type else ()), *(("-o", ",".join(options)) if options else ())]
    try:
        commands.run(["mount", *flags, "--", source, target], MOUNT_S, progress)  # a source is never an option
    except Failed as failed:
        text = (
            f"mount failed: {failed}\nMounting command: mount\n"
            f"Mounting arguments: {' '.join((*flags, source, target))}\nOutput: {failed.output}"
        )
        with suppress(OSError):
            if not mounts.type_at(target):
                os.rmdir(target)
        raise VolumeError(text) from failed


def release(root: str, name: str, progress: Progress) -> None:
    """Unmount a local disk from its global path, unless a pod still has it. Raises VolumeError, ChildStuck."""
    path = global_path(root, name)
    if _users(root, name):
        return
    try:
        while mounts.type_at(path):
            commands.call(lambda: mounts.unmount(path), MOUNT_S, progress)
        with suppress(FileNotFoundError):
            os.rmdir(path)
    except OSError as error:
        raise VolumeError(go_text("unmount", path, error)) from error


def _target(root: str, volume: Mount | Local) -> str:
    path = host_path(root, volume)
    make_dirs(os.path.dirname(path))
    real = f"{os.path.realpath(os.path.dirname(path))}/{volume.name}"
    if not mounts.type_at(real):
        with suppress(FileExistsError):
            os.mkdir(real, DATA_MODE)
    return real


def _mount_device(root: str, volume: Local, progress: Progress) -> str:
    target = global_path(root, volume.name)
    if mounts.type_at(target):
        return target
    make_dirs(target)
    fs_type, read_only = volume.fs_type or "ext4", "ro" in volume.options
    has = _format_of(volume.path, progress)
    if not has and read_only:
        raise VolumeError(f"cannot mount unformatted disk {volume.path} as we are manipulating it in read-only mode")
    if not has:
        _make_file_system(volume.path, fs_type, progress)
    elif not read_only:
        _check_file_system(volume.path, progress)
    try:
        mount(volume.path, target, fs_type, tuple(sorted({"defaults", *volume.options})), progress)
    except VolumeError as error:
        if has and has != fs_type:
            text = f'failed to mount the volume as "{fs_type}", it already contains {has}. Mount error: {error}'
            mismatch = VolumeError(text)
            mismatch.mismatch = True
            raise mismatch from error
        raise
    return target


def _format_of(device: str, progress: Progress) -> str:
    """Type of the data on the disk; empty when blkid(8) finds none."""
    try:
        output = commands.run(["blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device], MOUNT_S, progress)
    except Failed as failed:
        if failed.code == _NOTHING_FOUND:
            return ""
        raise VolumeError(f"could not determine the format of disk {device}: {failed}: {failed.output}") from failed
    found = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    return found.get("TYPE") or ("unknown data, probably partitions" if found.get("PTTYPE") else "")


def _make_file_system(device: str, fs_type: str, progress: Progress) -> None:
    options = {"ext3": ["-F", "-m0"], "ext4": ["-F", "-m0"], "xfs": ["-f"]}.get(fs_type, [])
    try:
        # It survives the helper: half a file system would look like a valid one. mkfs opens the disk exclusively.
        commands.run([f"mkfs.{fs_type}", *options, device], MKFS_S, progress, dies_with_helper=False)
    except Failed as failed:
        text = (
            f'format of disk "{device}" failed: type:("{fs_type}") options:("{" ".join(options)}") '
            f"errcode:({failed}) output:({failed.output})"
        )
        raise VolumeError(text) from failed


def _check_file_system(device: str, progress: Progress) -> None:
    try:
        commands.run(["fsck", "-a", device], FSCK_S, progress, dies_with_helper=False)
    except Failed as failed:
        if failed.code == _UNCORRECTED:
            text = f"'fsck' found errors on device {device} but could not correct them: {failed.output}"
            raise VolumeError(text) from failed
        # Corrected, or not checkable: then the mount fails if the disk is bad.

"""hostPath, local and nfs: file systems that outlive the pod. The latter two are mounted into its directory.

Source: pkg/volume/hostpath, pkg/volume/local, pkg/volume/nfs.
"""

from __future__ import annotations

from typing import Literal

from actors.volume.plugins.base import CannotMount, Claimed, Context, PersistentPlugin, Plugin, fs_group
from actors.volume.steps.places import LOCAL_VOLUME, NFS
from actors.volume.steps.volumes import Block, HostPath, Local, Mount
from proto.v1 import NFSVolumeSource, Pod, Volume
from proto.v1.cluster import LocalVolumeSource


class HostPathPlugin(Plugin):
    """hostPath volumes, which have no directory in the pod's."""

    source = "host_path"

    def step(self, pod: Pod, volume: Volume, context: Context) -> HostPath:  # noqa: ARG002
        """See Plugin."""
        assert volume.host_path is not None
        return HostPath(volume.name, volume.host_path.path, volume.host_path.type or "")


class PersistentHostPath(PersistentPlugin):
    """hostPath PersistentVolumes."""

    source = "host_path"
    takes_mount_options = False

    def step(self, pod: Pod, claimed: Claimed, context: Context) -> HostPath:  # noqa: ARG002
        """See PersistentPlugin."""
        source = claimed.volume.spec.host_path
        assert source is not None
        return HostPath(claimed.name, source.path, source.type or "")


class LocalPlugin(PersistentPlugin):
    """Directories or block devices of the node; a device without a file system is formatted."""

    source = "local"

    def step(self, pod: Pod, claimed: Claimed, context: Context) -> Local:  # noqa: ARG002
        """See PersistentPlugin."""
        source = claimed.volume.spec.local
        assert source is not None
        return Local(
            uid=pod.metadata.uid,
            plugin=LOCAL_VOLUME,
            name=claimed.name,
            path=_local_path(source),
            volume_uid=claimed.volume.metadata.uid,
            fs_type=source.fs_type or "",
            options=_joined(claimed.mount_options, read_only=claimed.read_only),
            fs_group=None if claimed.read_only else fs_group(pod),
            fs_group_policy=_policy(pod),
        )

    def device(self, pod: Pod, claimed: Claimed, context: Context) -> Block:  # noqa: ARG002
        """See PersistentPlugin."""
        source = claimed.volume.spec.local
        assert source is not None
        return Block(pod.metadata.uid, LOCAL_VOLUME, claimed.name, _local_path(source))


class NfsPlugin(Plugin):
    """NFS exports, mounted by mount(8). The server decides about ownership; the pod's fsGroup has no effect."""

    source = "nfs"

    def step(self, pod: Pod, volume: Volume, context: Context) -> Mount:  # noqa: ARG002
        """See Plugin."""
        assert volume.nfs is not None
        return _nfs(pod, volume.name, volume.nfs, _joined((), read_only=bool(volume.nfs.read_only)))


class PersistentNfs(PersistentPlugin):
    """NFS PersistentVolumes."""

    source = "nfs"

    def step(self, pod: Pod, claimed: Claimed, context: Context) -> Mount:  # noqa: ARG002
        """See PersistentPlugin. Only the pod's read-only flag counts, not the volume's."""
        assert claimed.volume.spec.nfs is not None
        options = _joined(claimed.mount_options, read_only=claimed.read_only)
        return _nfs(pod, claimed.name, claimed.volume.spec.nfs, options)


def _local_path(source: LocalVolumeSource) -> str:
    if ".." in source.path.split("/"):
        raise CannotMount(f"invalid path: {source.path} must not contain '..'", retry=False)
    return source.path


def _nfs(pod: Pod, name: str, source: NFSVolumeSource, options: tuple[str, ...]) -> Mount:
    if source.server.startswith("-"):  # mount.nfs(8) would take it for an option, such as another fstab
        raise CannotMount(f"invalid NFS server {source.server!r}: it must be a host name or an address", retry=False)
    server = f"[{source.server}]" if ":" in source.server and "[" not in source.server else source.server
    return Mount(pod.metadata.uid, NFS, name, f"{server}:{source.path}", "nfs", options)


def _joined(options: tuple[str, ...], *, read_only: bool) -> tuple[str, ...]:
    # Sorted and unique, as in the kubelet.
    return tuple(sorted({*options, *(("ro",) if read_only else ())}))


def _policy(pod: Pod) -> Literal["Always", "OnRootMismatch"]:
    security = pod.spec.security_context
    return "OnRootMismatch" if security and security.fs_group_change_policy == "OnRootMismatch" else "Always"

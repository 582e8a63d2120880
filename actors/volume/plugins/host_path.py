"""hostPath: a path of the node, checked for its type. Source: pkg/volume/hostpath."""

from __future__ import annotations

from actors.volume.plugins.base import Claimed, Context, PersistentPlugin, Plugin
from actors.volume.steps.volumes import HostPath
from proto.v1 import Pod, Volume


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

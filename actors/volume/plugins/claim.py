"""persistentVolumeClaim and ephemeral: PersistentVolumes through a claim; another plugin serves the volume's source."""

from __future__ import annotations

from actors.volume.plugins import binding
from actors.volume.plugins.base import CannotMount, Claimed, Context, PersistentPlugin, Plugin
from actors.volume.plugins.csi import PersistentCsi
from actors.volume.plugins.host_path import PersistentHostPath
from actors.volume.plugins.mounted import LocalPlugin, PersistentNfs
from actors.volume.steps.codec import SetUp
from proto.pods.objects import GetToken, ObjectRef
from proto.v1 import Pod, Volume

PERSISTENT: dict[str, PersistentPlugin] = {
    plugin.source: plugin for plugin in (PersistentHostPath(), LocalPlugin(), PersistentNfs(), PersistentCsi())
}
"""Plugins of PersistentVolumes, by source."""


class ClaimPlugin(Plugin):
    """Volumes from a claim in the pod's namespace."""

    source = "persistent_volume_claim"

    def refs(self, pod: Pod, volume: Volume) -> tuple[ObjectRef, ...]:
        """Reference to the claim."""
        return (binding.claim_ref(pod, volume),)

    def further_refs(self, pod: Pod, volume: Volume, context: Context) -> tuple[ObjectRef, ...]:
        """References to the PersistentVolume and the objects that it uses."""
        refs = binding.volume_ref(context.objects.get(binding.claim_ref(pod, volume)))
        try:
            claimed = binding.resolve(pod, volume, context.objects)
            return (*refs, *_plugin(claimed).refs(pod, claimed, context))
        except CannotMount:
            return refs  # `claimed` raises it again, once all objects are read

    def tokens(self, pod: Pod, volume: Volume, context: Context) -> tuple[GetToken, ...]:
        """Tokens that the volume's driver requests."""
        try:
            claimed = binding.resolve(pod, volume, context.objects)
            return _plugin(claimed).tokens(pod, claimed, context)
        except CannotMount:
            return ()

    def claimed(self, pod: Pod, volume: Volume, context: Context) -> Claimed:
        """See Plugin. Raises CannotMount also for a volume that this node cannot reach."""
        claimed = binding.resolve(pod, volume, context.objects)
        binding.check_node(claimed, context.labels)
        return claimed

    def step(self, pod: Pod, volume: Volume, context: Context) -> SetUp:
        """See Plugin."""
        claimed = self.claimed(pod, volume, context)
        plugin = _plugin(claimed)
        if claimed.mount_options and not claimed.is_block and not plugin.takes_mount_options:
            stage = "MountVolume.MountOptionSupport check failed"
            text = "mount options are not supported for this volume type"
            raise CannotMount(text, stage=stage, volume=claimed.name)
        try:
            return (plugin.device if claimed.is_block else plugin.step)(pod, claimed, context)
        except CannotMount as error:
            error.volume = error.volume or claimed.name
            raise


class EphemeralPlugin(ClaimPlugin):
    """Volumes from a claim that a controller created for the pod."""

    source = "ephemeral"


def _plugin(claimed: Claimed) -> PersistentPlugin:
    spec = claimed.volume.spec
    plugin = next((plugin for source, plugin in PERSISTENT.items() if getattr(spec, source) is not None), None)
    if plugin is None:
        served_by = ", ".join(claimed.sources) or "nothing"
        text = f"this agent does not support PersistentVolumes of type `{served_by}`"
        raise CannotMount(text, retry=False, volume=claimed.name)
    return plugin

"""persistentVolumeClaim and ephemeral: a PersistentVolume by way of a claim. What serves it has a plugin of its own."""

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
"""By source."""


class ClaimPlugin(Plugin):
    """A claim of the pod's namespace."""

    source = "persistent_volume_claim"

    def refs(self, pod: Pod, volume: Volume) -> tuple[ObjectRef, ...]:
        """The claim."""
        return (binding.claim_ref(pod, volume),)

    def further_refs(self, pod: Pod, volume: Volume, context: Context) -> tuple[ObjectRef, ...]:
        """The volume, and what that needs."""
        refs = binding.volume_ref(context.objects.get(binding.claim_ref(pod, volume)))
        try:
            claimed = binding.resolve(pod, volume, context.objects)
            return (*refs, *_plugin(claimed).refs(pod, claimed, context))
        except CannotMount:
            return refs  # said by `claimed`, once all that can be found is

    def tokens(self, pod: Pod, volume: Volume, context: Context) -> tuple[GetToken, ...]:
        """What serves it needs."""
        try:
            claimed = binding.resolve(pod, volume, context.objects)
            return _plugin(claimed).tokens(pod, claimed, context)
        except CannotMount:
            return ()

    def claimed(self, pod: Pod, volume: Volume, context: Context) -> Claimed:
        """See Plugin. It can be reached from this node."""
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
    """A claim that was made for the pod, by whoever makes claims."""

    source = "ephemeral"


def _plugin(claimed: Claimed) -> PersistentPlugin:
    spec = claimed.volume.spec
    plugin = next((plugin for source, plugin in PERSISTENT.items() if getattr(spec, source) is not None), None)
    if plugin is None:
        served_by = ", ".join(claimed.sources) or "nothing"
        text = f"this agent does not support PersistentVolumes of type `{served_by}`"
        raise CannotMount(text, retry=False, volume=claimed.name)
    return plugin

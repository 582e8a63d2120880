"""PersistentVolumes: through a claim (persistentVolumeClaim, ephemeral), or made of a pod's volume by CSI migration.

Another plugin serves the volume's source. In-tree types are translated to their CSI driver's source first (KEP-625).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from actors.volume.plugins import binding
from actors.volume.plugins.base import (
    CannotMount,
    Claimed,
    Context,
    CredentialRequest,
    PersistentPlugin,
    Plugin,
    not_supported,
)
from actors.volume.plugins.csi import PersistentCsi
from actors.volume.plugins.mounted import LocalPlugin, PersistentHostPath, PersistentNfs
from actors.volume.steps.codec import SetUp
from actors.volume.steps.places import CSI
from actors.volume.translation import translate
from actors.volume.translation.sources import NotTranslated
from proto.pods.objects import ObjectRef
from proto.v1 import Pod, Volume
from proto.v1.cluster import PersistentVolumeClaim
from proto.v1.scalars.base import json_name
from proto.v1.volumes.migrated import MIGRATED

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
            claimed = _resolve(pod, volume, context)
            return (*refs, *_plugin(claimed).refs(pod, claimed, context))
        except CannotMount:
            return refs  # `claimed` raises it again, once all objects are read

    def credentials(self, pod: Pod, volume: Volume, context: Context) -> tuple[CredentialRequest, ...]:
        """Tokens that the volume's driver requests."""
        try:
            claimed = _resolve(pod, volume, context)
            return _plugin(claimed).credentials(pod, claimed, context)
        except CannotMount:
            return ()

    def claimed(self, pod: Pod, volume: Volume, context: Context) -> Claimed:
        """See Plugin. Raises CannotMount also for a volume that this node cannot reach."""
        claimed = _resolve(pod, volume, context)
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
        return _named(claimed, partial(plugin.device if claimed.is_block else plugin.step, pod, claimed, context))


class EphemeralPlugin(ClaimPlugin):
    """Volumes from a claim that a controller created for the pod."""

    source = "ephemeral"


class MigratedPlugin(Plugin):
    """Volumes of one in-tree type in the pod's spec; `source`: a key of MIGRATED. Each is a PersistentVolume here."""

    directory = CSI

    def __init__(self, source: str) -> None:
        self.source = source
        self._persistent = PersistentCsi()

    def refs(self, pod: Pod, volume: Volume) -> tuple[ObjectRef, ...]:  # noqa: ARG002
        """Reference to the CSIDriver."""
        return (ObjectRef(kind="CSIDriver", name=MIGRATED[self.source].driver),)

    def further_refs(self, pod: Pod, volume: Volume, context: Context) -> tuple[ObjectRef, ...]:
        """References to the VolumeAttachment and the Secret."""
        try:
            return self._persistent.refs(pod, self.claimed(pod, volume, context), context)
        except CannotMount:
            return ()  # `claimed` raises it again

    def credentials(self, pod: Pod, volume: Volume, context: Context) -> tuple[CredentialRequest, ...]:
        """The tokens that the CSIDriver requests."""
        try:
            return self._persistent.credentials(pod, self.claimed(pod, volume, context), context)
        except CannotMount:
            return ()

    def claimed(self, pod: Pod, volume: Volume, context: Context) -> Claimed:  # noqa: ARG002
        """The volume as a PersistentVolume with an empty claim. Raises CannotMount."""
        try:
            persistent = translate.inline(volume, pod.metadata.namespace)
        except NotTranslated as problem:
            raise CannotMount(translate.message(problem), stage="", retry=False) from None
        source = persistent.spec.csi
        asked = source is not None and bool(source.read_only)  # by the pod: it is a field of its own volume
        return Claimed(persistent, PersistentVolumeClaim(), (json_name(self.source),), read_only=asked)

    def step(self, pod: Pod, volume: Volume, context: Context) -> SetUp:
        """See Plugin."""
        claimed = self.claimed(pod, volume, context)
        return _named(claimed, partial(self._persistent.step, pod, claimed, context))


def _named(claimed: Claimed, make: Callable[[], SetUp]) -> SetUp:
    try:
        return make()
    except CannotMount as error:
        error.volume = error.volume or claimed.name
        raise


def _resolve(pod: Pod, volume: Volume, context: Context) -> Claimed:
    claimed = binding.resolve(pod, volume, context.objects)
    if not translate.migrated_type(claimed.volume.spec):
        return claimed
    try:
        return replace(claimed, volume=translate.persistent(claimed.volume))
    except NotTranslated as problem:
        raise CannotMount(translate.message(problem), stage="") from None


def _plugin(claimed: Claimed) -> PersistentPlugin:
    spec = claimed.volume.spec
    plugin = next((plugin for source, plugin in PERSISTENT.items() if getattr(spec, source) is not None), None)
    if plugin is None:
        served_by = ", ".join(claimed.sources) or "nothing"
        raise CannotMount(not_supported("PersistentVolumes", served_by), retry=False, volume=claimed.name)
    return plugin

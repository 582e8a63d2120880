"""configMap and secret: the keys of one object as files. Source: pkg/volume/configmap, pkg/volume/secret."""

from __future__ import annotations

from actors.volume.plugins import payload
from actors.volume.plugins.base import CannotMount, Context, Plugin
from actors.volume.plugins.empty_dir import directory
from actors.volume.plugins.payload import Payload
from actors.volume.steps.places import CONFIG_MAP, SECRET
from actors.volume.steps.volumes import Files
from proto.pods.objects import ObjectRef
from proto.v1 import KeyToPath, Pod, Volume

NO_KEY = {
    "ConfigMap": "configmap references non-existent config key: {}",
    "Secret": "references non-existent secret key: {}",
}


def object_files(
    ref: ObjectRef, items: tuple[KeyToPath, ...], default_mode: int | None, context: Context, *, optional: bool
) -> Payload:
    """Files from one object; none from a missing optional object. Raises CannotMount."""
    found = context.objects.get(ref)
    if found is None and not optional:
        raise CannotMount(f'{ref.kind.lower()} "{ref.name}" not found')
    data = found.data if found is not None else {}
    return payload.of_keys(data, items, default_mode, NO_KEY[ref.kind], optional=optional)


class ConfigMapPlugin(Plugin):
    """ConfigMaps, on disk as in the kubelet."""

    source = "config_map"
    directory = CONFIG_MAP
    refreshes = True

    def refs(self, pod: Pod, volume: Volume) -> tuple[ObjectRef, ...]:
        """The one object."""
        assert volume.config_map is not None
        return (ObjectRef(kind="ConfigMap", namespace=pod.metadata.namespace, name=volume.config_map.name),)

    def step(self, pod: Pod, volume: Volume, context: Context) -> Files:
        """See Plugin."""
        source = volume.config_map
        assert source is not None
        (ref,) = self.refs(pod, volume)
        files = object_files(ref, source.items, source.default_mode, context, optional=bool(source.optional))
        return payload.files_step(directory(pod, volume.name, self.directory, context), files, context)


class SecretPlugin(Plugin):
    """Secrets, in memory: a Secret is never on a disk."""

    source = "secret"
    directory = SECRET
    refreshes = True

    def refs(self, pod: Pod, volume: Volume) -> tuple[ObjectRef, ...]:
        """The one object."""
        assert volume.secret is not None
        return (ObjectRef(kind="Secret", namespace=pod.metadata.namespace, name=volume.secret.secret_name or ""),)

    def step(self, pod: Pod, volume: Volume, context: Context) -> Files:
        """See Plugin."""
        source = volume.secret
        assert source is not None
        (ref,) = self.refs(pod, volume)
        files = object_files(ref, source.items, source.default_mode, context, optional=bool(source.optional))
        return payload.files_step(directory(pod, volume.name, self.directory, context, "Memory"), files, context)

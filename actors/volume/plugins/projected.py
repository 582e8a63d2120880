"""downwardAPI, and projected: several sources in one directory, in memory.

Covers the parts of a projected volume that come from ConfigMaps, Secrets and the pod itself. Source:
pkg/volume/downwardapi, pkg/volume/projected.
"""

from __future__ import annotations

from collections.abc import Iterable

from actors.volume import payload
from actors.volume.payload import Payload
from actors.volume.plugins import CannotMount, Context, Plugin
from actors.volume.plugins.empty_dir import directory
from actors.volume.plugins.objects import object_files
from actors.volume.steps import Files
from proto.objects import ObjectRef
from proto.v1 import Pod, Volume, VolumeProjection
from proto.v1.base import json_name


class DownwardApiPlugin(Plugin):
    """Fields of the pod and resources of its containers."""

    source = "downward_api"
    directory = "kubernetes.io~downward-api"
    refreshes = True

    def step(self, pod: Pod, volume: Volume, context: Context) -> Files:
        """See Plugin."""
        source = volume.downward_api
        assert source is not None
        files = payload.of_fields(pod, source.items, source.default_mode, context.facts)
        return Files(directory(pod, volume.name, self.directory, context, "Memory"), payload.ordered(files))


class ProjectedPlugin(Plugin):
    """Every source that fails is named; a path two sources have is the later one's."""

    source = "projected"
    directory = "kubernetes.io~projected"
    refreshes = True

    def refs(self, pod: Pod, volume: Volume) -> tuple[ObjectRef, ...]:
        """Those of all sources."""
        assert volume.projected is not None
        found = (_ref(pod, one) for one in volume.projected.sources)
        return tuple(ref for ref in found if ref is not None)

    def step(self, pod: Pod, volume: Volume, context: Context) -> Files:
        """See Plugin."""
        source = volume.projected
        assert source is not None
        files: Payload = {}
        errors: list[CannotMount] = []
        for one in source.sources:
            try:
                files |= _files(pod, one, source.default_mode, context)
            except CannotMount as error:
                errors.append(error)
        if errors:
            raise CannotMount(_aggregate(map(str, errors)), retry=any(error.retry for error in errors))
        return Files(directory(pod, volume.name, self.directory, context, "Memory"), payload.ordered(files))


def _ref(pod: Pod, one: VolumeProjection) -> ObjectRef | None:
    namespace = pod.metadata.namespace
    if one.config_map is not None:
        return ObjectRef(kind="ConfigMap", namespace=namespace, name=one.config_map.name)
    if one.secret is not None:
        return ObjectRef(kind="Secret", namespace=namespace, name=one.secret.name)
    return None


def _files(pod: Pod, one: VolumeProjection, default_mode: int | None, context: Context) -> Payload:
    ref, part = _ref(pod, one), one.config_map or one.secret
    if ref is not None and part is not None:
        return object_files(ref, part.items, default_mode, context, optional=bool(part.optional))
    if one.downward_api is not None:
        return payload.of_fields(pod, one.downward_api.items, default_mode, context.facts)
    if one.service_account_token is not None:
        problem = "cannot use TokenManager when kubelet is in standalone mode"
        raise CannotMount(f"failed to fetch token: {problem}", retry=False)
    if one.cluster_trust_bundle is not None:
        raise CannotMount("ClusterTrustBundle projection is not supported in static kubelet mode", retry=False)
    kind = next((name for name in one.__struct_fields__ if getattr(one, name) is not None), "")
    raise CannotMount(f"this agent does not support projected sources of type `{json_name(kind)}`", retry=False)


def _aggregate(errors: Iterable[str]) -> str:
    """As Go prints an aggregate: each error once, in brackets when there are several."""
    texts = list(dict.fromkeys(errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"

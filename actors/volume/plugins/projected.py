"""downwardAPI, and projected: files from several sources in one directory, in memory.

Sources are ConfigMaps, Secrets, fields of the pod, service account tokens, ClusterTrustBundles and pod certificates.
Source: pkg/volume/downwardapi, pkg/volume/projected.
"""

from __future__ import annotations

from collections.abc import Iterable

from actors.volume.plugins import payload, pod_certificates, trust_bundles
from actors.volume.plugins.base import (
    CannotMount,
    Context,
    CredentialRequest,
    Plugin,
    fs_group,
    fs_user,
    token_of,
    token_request,
)
from actors.volume.plugins.empty_dir import directory
from actors.volume.plugins.objects import object_files
from actors.volume.plugins.payload import Payload
from actors.volume.steps.places import DOWNWARD_API, PROJECTED
from actors.volume.steps.volumes import File, Files
from proto.pods.objects import GetToken, ObjectRef
from proto.v1 import Pod, Volume, VolumeProjection
from proto.v1.volumes.projected import ClusterTrustBundleProjection, ServiceAccountTokenProjection

OWN_MODE = 0o600


class DownwardApiPlugin(Plugin):
    """Fields of the pod and resources of its containers."""

    source = "downward_api"
    directory = DOWNWARD_API
    refreshes = True

    def step(self, pod: Pod, volume: Volume, context: Context) -> Files:
        """See Plugin."""
        source = volume.downward_api
        assert source is not None
        files = payload.of_fields(pod, source.items, source.default_mode, context.facts)
        return payload.files_step(directory(pod, volume.name, self.directory, context, "Memory"), files, context)


class ProjectedPlugin(Plugin):
    """Projected volumes. The error names every failed source; a later source overrides a path of an earlier one."""

    source = "projected"
    directory = PROJECTED
    refreshes = True

    def refs(self, pod: Pod, volume: Volume) -> tuple[ObjectRef, ...]:
        """References of all sources."""
        assert volume.projected is not None
        found = (_ref(pod, one) for one in volume.projected.sources)
        bundles = (one.cluster_trust_bundle for one in volume.projected.sources)
        return (
            *(ref for ref in found if ref is not None),
            *(trust_bundles.ref(one) for one in bundles if one is not None),
        )

    def credentials(self, pod: Pod, volume: Volume, context: Context) -> tuple[CredentialRequest, ...]:
        """Tokens and certificates of all sources."""
        sources = volume.projected.sources if volume.projected is not None else ()
        found = (one.service_account_token for one in sources)
        tokens = (_token_request(pod, one) for one in found if one is not None)
        return (*tokens, *(pod_certificates.requests(pod, volume) if context.pod_certificates else ()))

    def step(self, pod: Pod, volume: Volume, context: Context) -> Files:
        """See Plugin."""
        source = volume.projected
        assert source is not None
        files: Payload = {}
        errors: list[CannotMount] = []
        size = 0
        for index in range(len(source.sources)):
            try:
                more = _files(pod, volume, index, context)
                size = payload.added(size, *more.values())
                files |= more
            except payload.TooLarge:
                raise  # at once: each further source could be as large
            except CannotMount as error:
                errors.append(error)
        if errors:
            raise CannotMount(
                _aggregate(map(str, errors)),
                retry=any(error.retry for error in errors),
                soon=any(error.soon for error in errors),
            )
        return payload.files_step(directory(pod, volume.name, self.directory, context, "Memory"), files, context)


def _ref(pod: Pod, one: VolumeProjection) -> ObjectRef | None:
    namespace = pod.metadata.namespace
    if one.config_map is not None:
        return ObjectRef(kind="ConfigMap", namespace=namespace, name=one.config_map.name)
    if one.secret is not None:
        return ObjectRef(kind="Secret", namespace=namespace, name=one.secret.name)
    return None


def _files(pod: Pod, volume: Volume, index: int, context: Context) -> Payload:
    assert volume.projected is not None
    one, default_mode = volume.projected.sources[index], volume.projected.default_mode
    ref, part = _ref(pod, one), one.config_map or one.secret
    if ref is not None and part is not None:
        return object_files(ref, part.items, default_mode, context, optional=bool(part.optional))
    if one.downward_api is not None:
        return payload.of_fields(pod, one.downward_api.items, default_mode, context.facts)
    if one.service_account_token is not None:
        return _token_file(pod, one.service_account_token, default_mode, context)
    if one.cluster_trust_bundle is not None:
        return _trust_file(pod, one.cluster_trust_bundle, default_mode, context)
    if one.pod_certificate is not None:
        wanted = pod_certificates.request(pod, volume, index, one.pod_certificate)
        files = pod_certificates.files(one.pod_certificate, wanted, context)
        return _own_files(pod, files, default_mode)
    return {}  # a source without a type: Kubernetes accepts it, and its kubelet adds no file


def _token_file(
    pod: Pod, source: ServiceAccountTokenProjection, default_mode: int | None, context: Context
) -> Payload:  # fmt: skip
    token = token_of(_token_request(pod, source), context).token
    return _own_files(pod, [(source.path, token.encode())], default_mode)


def _trust_file(
    pod: Pod, source: ClusterTrustBundleProjection, default_mode: int | None, context: Context
) -> Payload:  # fmt: skip
    if context.standalone or not context.trust_bundles:
        raise CannotMount(trust_bundles.NOT_SUPPORTED, retry=False)
    return _own_files(pod, [(source.path, trust_bundles.anchors(source, context.objects))], default_mode)


def _own_files(pod: Pod, files: Iterable[tuple[str, bytes]], default_mode: int | None) -> Payload:
    # Readable by its user only. With an fsGroup, which reads all files of the volume, by that group too.
    user = fs_user(pod)
    mode = payload.DEFAULT_MODE if default_mode is None else default_mode
    if user is not None or fs_group(pod) is not None:
        mode = OWN_MODE
    return payload.payload(File(path, data, mode, user) for path, data in files)


def _token_request(pod: Pod, source: ServiceAccountTokenProjection) -> GetToken:
    return token_request(pod, source.audience or "", source.expiration_seconds)


def _aggregate(errors: Iterable[str]) -> str:
    # As Go prints an aggregate: each error once, several ones in brackets.
    texts = list(dict.fromkeys(errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"

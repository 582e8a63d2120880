"""Writes pod certificates as files of a projected volume: the source podCertificate (KEP-4317). Pure.

Source: pkg/volume/projected of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator

from actors._pki import pem
from actors.volume.plugins.base import CannotMount, Context
from proto.pods.objects import GetPodCertificate, PodCertificate
from proto.v1 import Pod, Volume
from proto.v1.volumes.projected import PodCertificateProjection

GATE_OFF = (
    "cannot project a pod certificate: the feature gate PodCertificateRequest is off; switch it on in featureGates"
)
STANDALONE = "cannot project a pod certificate: there is no API server; give the agent a kubeconfig"


def requests(pod: Pod, volume: Volume) -> Iterator[GetPodCertificate]:
    """The request of each podCertificate source of the volume, in their order."""
    sources = volume.projected.sources if volume.projected is not None else ()
    for index, one in enumerate(sources):
        if one.pod_certificate is not None:
            yield request(pod, volume, index, one.pod_certificate)


def request(pod: Pod, volume: Volume, index: int, source: PodCertificateProjection) -> GetPodCertificate:
    """The request of the source with this index."""
    return GetPodCertificate(
        namespace=pod.metadata.namespace,
        service_account=pod.spec.service_account_name or "default",
        pod_name=pod.metadata.name,
        pod_uid=pod.metadata.uid,
        volume=volume.name,
        source=index,
        signer_name=source.signer_name or "",
        key_type=source.key_type or "",
        max_expiration_s=source.max_expiration_seconds,
        user_annotations=tuple(sorted(source.user_annotations.items())),
    )


def files(source: PodCertificateProjection, wanted: GetPodCertificate, context: Context) -> Iterator[tuple[str, bytes]]:
    """The path in the volume and the content of each file. Raises CannotMount."""
    if not context.pod_certificates or context.standalone:
        raise CannotMount(STANDALONE if context.standalone else GATE_OFF, retry=False)
    found = context.credentials.get(wanted, "cannot project a pod certificate: it was not requested")
    if isinstance(found, str):
        raise CannotMount(found, soon=True)
    assert isinstance(found, PodCertificate)
    chain = pem.encoded(pem.blocks(found.chain))
    if source.credential_bundle_path:
        yield source.credential_bundle_path, (found.key + chain).encode()
    if source.key_path:
        yield source.key_path, found.key.encode()
    if source.certificate_chain_path:
        yield source.certificate_chain_path, chain.encode()

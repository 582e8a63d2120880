"""Lists the API objects that a pod refers to. They need not exist. Pure.

Covers the kinds of the objects actor: Secrets, ConfigMaps, Services, RuntimeClasses, ResourceClaims, ServiceAccounts of
pods with certificates, and claims with their volumes.
"""

from __future__ import annotations

from collections.abc import Iterator

from actors.pod_workers.environment.service_env import MASTER_NAMESPACE, MASTER_SERVICES
from proto.pods.objects import ObjectRef
from proto.v1 import Container, Pod, Volume
from proto.v1.volumes.migrated import MIGRATED


def pod_references(pod: Pod, *, cluster: bool = False) -> frozenset[ObjectRef]:
    """Objects whose change concerns a pod that starts or runs. Services do not: variables never change later.

    `cluster`: the objects are an API server's, where a node may read only the objects that its pods name. Then only the
    claim is named, and the volume actor follows it.
    """
    spec, namespace = pod.spec, pod.metadata.namespace
    found: set[ObjectRef] = set()
    for container in (*spec.init_containers, *spec.containers, *spec.ephemeral_containers):
        found.update(variable_references(pod, container))
    for volume in spec.volumes:
        found.update(_of_volume(namespace, pod.metadata.name, volume, cluster))
        if volume.projected is not None and any(one.pod_certificate for one in volume.projected.sources):
            found.add(service_account(pod))
    found.update(pull_secrets(pod))
    if spec.runtime_class_name:
        found.add(runtime_class(spec.runtime_class_name))
    found.update(_resource_claims(pod))
    return frozenset(found)


def variable_references(pod: Pod, container: Container) -> frozenset[ObjectRef]:
    """Secrets and ConfigMaps of the container's variables."""
    namespace = pod.metadata.namespace
    found: set[ObjectRef] = set()
    for source in container.env_from:
        if source.config_map_ref is not None:
            found.add(config_map(namespace, source.config_map_ref.name))
        if source.secret_ref is not None:
            found.add(secret(namespace, source.secret_ref.name))
    for variable in container.env:
        value_from = variable.value_from
        if value_from is not None and value_from.config_map_key_ref is not None:
            found.add(config_map(namespace, value_from.config_map_key_ref.name))
        if value_from is not None and value_from.secret_key_ref is not None:
            found.add(secret(namespace, value_from.secret_key_ref.name))
    return frozenset(ref for ref in found if ref.name)


def services(pod: Pod) -> tuple[ObjectRef, ...]:
    """The Services that give variables to the pod's containers."""
    master = tuple(ObjectRef(kind="Service", namespace=MASTER_NAMESPACE, name=name) for name in sorted(MASTER_SERVICES))
    if pod.spec.enable_service_links is False:
        return master
    return (*master, ObjectRef(kind="Service", namespace=pod.metadata.namespace))


def pull_secrets(pod: Pod) -> tuple[ObjectRef, ...]:
    """ImagePullSecrets in their order. The API allows empty names, which are left out."""
    return tuple(secret(pod.metadata.namespace, one.name) for one in pod.spec.image_pull_secrets if one.name)


def service_account(pod: Pod) -> ObjectRef:
    """The pod's service account, which its certificates are for."""
    name = pod.spec.service_account_name or "default"
    return ObjectRef(kind="ServiceAccount", namespace=pod.metadata.namespace, name=name)


def config_map(namespace: str, name: str) -> ObjectRef:
    """A ConfigMap."""
    return ObjectRef(kind="ConfigMap", namespace=namespace, name=name)


def secret(namespace: str, name: str) -> ObjectRef:
    """A Secret."""
    return ObjectRef(kind="Secret", namespace=namespace, name=name)


def runtime_class(name: str) -> ObjectRef:
    """A RuntimeClass."""
    return ObjectRef(kind="RuntimeClass", name=name)


def claim(namespace: str, name: str, cluster: bool) -> tuple[ObjectRef, ...]:
    """A claim. With a directory of objects also all volumes, drivers and attachments, since any may belong to it."""
    own = ObjectRef(kind="PersistentVolumeClaim", namespace=namespace, name=name)
    if cluster:
        return (own,)
    return (
        own,
        ObjectRef(kind="PersistentVolume"),
        ObjectRef(kind="CSIDriver"),
        ObjectRef(kind="VolumeAttachment"),
    )


def _resource_claims(pod: Pod) -> Iterator[ObjectRef]:
    named = (one.resource_claim_name for one in pod.spec.resource_claims)
    made = (one.resource_claim_name for one in pod.status.resource_claim_statuses)
    for name in (*named, *made):
        if name:
            yield ObjectRef(kind="ResourceClaim", namespace=pod.metadata.namespace, name=name)


def _of_volume(namespace: str, pod_name: str, volume: Volume, cluster: bool) -> Iterator[ObjectRef]:
    if volume.config_map is not None and volume.config_map.name:
        yield config_map(namespace, volume.config_map.name)
    if volume.secret is not None and volume.secret.secret_name:
        yield secret(namespace, volume.secret.secret_name)
    if volume.persistent_volume_claim is not None:
        name = volume.persistent_volume_claim.claim_name
        yield from claim(namespace, name, cluster)
    if volume.ephemeral is not None:
        yield from claim(namespace, f"{pod_name}-{volume.name}", cluster)
    if volume.csi is not None:
        yield ObjectRef(kind="CSIDriver", name=volume.csi.driver)
    if volume.csi is not None and volume.csi.node_publish_secret_ref is not None:
        yield secret(namespace, volume.csi.node_publish_secret_ref.name)
    yield from _migrated(namespace, volume, cluster)
    for part in volume.projected.sources if volume.projected is not None else ():
        if part.config_map is not None and part.config_map.name:
            yield config_map(namespace, part.config_map.name)
        if part.secret is not None and part.secret.name:
            yield secret(namespace, part.secret.name)
        if part.cluster_trust_bundle is not None:
            yield ObjectRef(kind="ClusterTrustBundle", name=part.cluster_trust_bundle.name or "")


def _migrated(namespace: str, volume: Volume, cluster: bool) -> Iterator[ObjectRef]:
    driver = next((one.driver for source, one in MIGRATED.items() if getattr(volume, source) is not None), "")
    if driver:
        yield ObjectRef(kind="CSIDriver", name=driver)
    if driver and not cluster:
        yield ObjectRef(kind="VolumeAttachment")
    if volume.azure_file is not None:
        yield secret(namespace, volume.azure_file.secret_name)

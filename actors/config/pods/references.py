"""Finds references to API objects, which static pods may not have: the API server could change or withhold the objects.

Covers the references that the kubelet refuses with the gate PreventStaticPodAPIReferences (on by default since
Kubernetes 1.34), with its resource names. Kinds that come from a directory of this node (--objects-dir) are allowed, as
the reason does not hold for them.
"""

from collections.abc import Iterator

from actors.config.validation.problems import Violation
from proto.schema.fieldpath import Path
from proto.v1 import Container, Pod, Volume
from proto.v1.scalars.base import json_name

# By attribute of Volume: sources that refer to an object. `_WITH_SECRET` ones may do so in `secret_ref`.
_SOURCES = {
    "config_map": "configmaps (via configmap volumes)",
    "secret": "secrets",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistent_volume_claim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azure_file": "secrets",
}
_WITH_SECRET = ("cephfs", "cinder", "flex_volume", "rbd", "scale_io", "iscsi", "storageos")
_PROJECTIONS = {
    "config_map": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "service_account_token": "serviceaccounts (via projected volumes)",
    "cluster_trust_bundle": "clustertrustbundles",
    "pod_certificate": "podcertificates",
}
_OF_A_DIRECTORY = ("configmaps", "secrets", "persistentvolumeclaims", "csidrivers", "resourceclaims")
"""Prefixes of the resource names whose objects --objects-dir can have."""


def api_references(pod: Pod, *, objects_dir: bool = False) -> tuple[Violation, ...]:
    """Return a violation for each reference to an API object. `objects_dir`: this node has a directory of objects."""
    return tuple(
        Violation(path, f"static pods may not reference {resource}")
        for path, resource in _references(pod)
        if not (objects_dir and resource.startswith(_OF_A_DIRECTORY))
    )


def _references(pod: Pod) -> Iterator[tuple[Path, str]]:
    spec = pod.spec
    if spec.service_account_name:
        yield ("spec", "serviceAccountName"), "serviceaccounts"
    for index, secret in enumerate(spec.image_pull_secrets):
        if secret.name:
            yield ("spec", "imagePullSecrets", index), "secrets"
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers):
            yield from _of_container(("spec", field, index), container)
    for index, volume in enumerate(spec.volumes):
        yield from _of_volume(("spec", "volumes", index), volume)
    if spec.resource_claims:
        yield ("spec", "resourceClaims"), "resourceclaims"


def _of_container(path: Path, container: Container) -> Iterator[tuple[Path, str]]:
    for index, source in enumerate(container.env_from):
        if source.secret_ref is not None:
            yield (*path, "envFrom", index, "secretRef"), "secrets"
        if source.config_map_ref is not None:
            yield (*path, "envFrom", index, "configMapRef"), "configmaps"
    for index, variable in enumerate(container.env):
        value_from = variable.value_from
        if value_from is not None and value_from.secret_key_ref is not None:
            yield (*path, "env", index, "valueFrom", "secretKeyRef"), "secrets"
        if value_from is not None and value_from.config_map_key_ref is not None:
            yield (*path, "env", index, "valueFrom", "configMapKeyRef"), "configmaps"


def _of_volume(path: Path, volume: Volume) -> Iterator[tuple[Path, str]]:
    for attribute, resource in _SOURCES.items():
        if getattr(volume, attribute) is not None:
            yield (*path, json_name(attribute)), resource
    for attribute in _WITH_SECRET:
        source = getattr(volume, attribute)
        if source is not None and source.secret_ref is not None:
            yield (*path, json_name(attribute), "secretRef"), "secrets"
    for index, projection in enumerate(volume.projected.sources if volume.projected is not None else ()):
        for attribute, resource in _PROJECTIONS.items():
            if getattr(projection, attribute) is not None:
                yield (*path, "projected", "sources", index, json_name(attribute)), resource

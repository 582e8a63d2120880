"""Finds the PersistentVolume of a pod's claim, and checks that the pod may use it on this node. Pure.

With an API server controllers bind claims, and their work is checked as in the kubelet. Objects of a directory have no
UIDs and no controllers. There a claim and a volume are bound when one of them names the other and they fit by the rules
of the binding controller (`fit_problem`). Source: getPVCExtractPV and getPVSpec of the kubelet's populator,
k8s.io/component-helpers/storage and pkg/controller/volume/persistentvolume.
"""

from __future__ import annotations

from collections.abc import Mapping

from actors._host.node import selector
from actors.volume.plugins.base import AFFINITY_FAILED, CannotMount, Claimed
from proto.pods.objects import ApiObject, ObjectRef, document_of
from proto.v1 import Pod, Volume
from proto.v1.cluster import PersistentVolume, PersistentVolumeClaim
from proto.v1.scalars.quantity import value

Objects = Mapping[ObjectRef, ApiObject]

EVERY_VOLUME = ObjectRef(kind="PersistentVolume")
PROTECTION = "kubernetes.io/pvc-protection"
"""Finalizer that keeps a deleted claim as long as a pod uses it."""

_NO_SOURCE = frozenset(
    {
        "capacity",
        "accessModes",
        "claimRef",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "mountOptions",
        "volumeMode",
        "nodeAffinity",
        "volumeAttributesClassName",
    }
)
"""Fields of a PersistentVolume's spec other than its source."""


class NotBound(Exception):
    """A claim cannot be used; the message is the kubelet's."""


def claim_ref(pod: Pod, volume: Volume) -> ObjectRef:
    """Reference to the volume's claim. The claim of a generic ephemeral volume is named after pod and volume."""
    if volume.persistent_volume_claim is not None:
        name = volume.persistent_volume_claim.claim_name
    else:
        name = f"{pod.metadata.name}-{volume.name}"
    return ObjectRef(kind="PersistentVolumeClaim", namespace=pod.metadata.namespace, name=name)


def claim_name(pod: Pod, volume: Volume) -> str:
    """NAMESPACE/NAME of a volume's claim; empty for a volume without a claim."""
    if volume.persistent_volume_claim is None and volume.ephemeral is None:
        return ""
    ref = claim_ref(pod, volume)
    return f"{ref.namespace}/{ref.name}"


def volume_ref(claim: ApiObject | None) -> tuple[ObjectRef, ...]:
    """References that lead to the claim's volume: the one it names; without controllers, all PersistentVolumes."""
    if claim is None:
        return ()
    found = _claim(claim)
    if found.spec.volume_name:
        return (ObjectRef(kind="PersistentVolume", name=found.spec.volume_name),)
    return () if found.metadata.uid else (EVERY_VOLUME,)


def resolve(pod: Pod, volume: Volume, objects: Objects) -> Claimed:
    """The PersistentVolume of a pod's volume. Raises CannotMount."""
    ref = claim_ref(pod, volume)
    try:
        try:
            claim = _claim_of(ref, objects)
            found = _volume_of(claim, ref, objects)
        except NotBound as problem:
            raise NotBound(f"error processing PVC {ref.namespace}/{ref.name}: {problem}") from None
        if volume.ephemeral is not None:
            _check_owner(pod, claim, ref)
        persistent: PersistentVolume = document_of(found, PersistentVolume)
        _check_mode(pod, volume, persistent)
    except NotBound as problem:
        raise CannotMount(str(problem), stage="") from None
    sources = tuple(sorted(found.document.get("spec", {}).keys() - _NO_SOURCE))
    source = volume.persistent_volume_claim
    return Claimed(persistent, claim, sources, read_only=source is not None and bool(source.read_only))


def check_node(claimed: Claimed, labels: Mapping[str, str]) -> None:
    """Raises CannotMount when the volume's node affinity excludes a node with these labels."""
    affinity = claimed.volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return
    if not selector.matches_selector(affinity.required, labels, ""):
        raise CannotMount("no matching NodeSelectorTerms", stage=AFFINITY_FAILED, volume=claimed.name)


def _claim(found: ApiObject) -> PersistentVolumeClaim:
    claim: PersistentVolumeClaim = document_of(found, PersistentVolumeClaim)
    return claim


def _claim_of(ref: ObjectRef, objects: Objects) -> PersistentVolumeClaim:
    found = objects.get(ref)
    if found is None:
        raise NotBound(f'failed to fetch PVC from API server: persistentvolumeclaims "{ref.name}" not found')
    claim = _claim(found)
    if claim.metadata.deletion_timestamp and PROTECTION not in claim.metadata.finalizers:
        raise NotBound("PVC is being deleted")
    if claim.metadata.uid and claim.status.phase != "Bound":
        raise NotBound("PVC is not bound")
    if claim.metadata.uid and not claim.spec.volume_name:
        raise NotBound("PVC has empty pvc.Spec.VolumeName")
    return claim


def _volume_of(claim: PersistentVolumeClaim, ref: ObjectRef, objects: Objects) -> ApiObject:
    name = claim.spec.volume_name or _volume_that_names(ref, objects)
    found = objects.get(ObjectRef(kind="PersistentVolume", name=name))
    if found is None:
        raise NotBound(f'failed to fetch PV {name} from API server: persistentvolumes "{name}" not found')
    volume: PersistentVolume = document_of(found, PersistentVolume)
    claimed_by = volume.spec.claim_ref
    if claim.metadata.uid:
        if claimed_by is None:
            problem = "but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
            raise NotBound(f"found PV object {name} {problem}")
        if claimed_by.uid != claim.metadata.uid:
            problem = f"pv.Spec.ClaimRef.UID {claimed_by.uid or ''} does not point to claim.UID {claim.metadata.uid}"
            raise NotBound(f"found PV object {name} but its {problem}")
        return found
    if claimed_by is not None and not _names(volume, ref):
        other = f"{claimed_by.namespace or ''}/{claimed_by.name or ''}"
        raise NotBound(f"PVC is not bound: the claimRef of PersistentVolume {name} names the claim {other}")
    problem = fit_problem(claim, volume)
    if problem:
        raise NotBound(f"PVC is not bound: {problem}")
    return found


def _volume_that_names(ref: ObjectRef, objects: Objects) -> str:
    names = sorted(
        one.ref.name
        for one in objects.values()
        if one.ref.kind == "PersistentVolume" and _names(document_of(one, PersistentVolume), ref)
    )
    if not names:
        raise NotBound("PVC is not bound: it has no volumeName, and no PersistentVolume has a claimRef that names it")
    if len(names) > 1:
        raise NotBound(f"PVC is not bound: several PersistentVolumes have a claimRef that names it: {', '.join(names)}")
    return names[0]


def _names(volume: PersistentVolume, claim: ObjectRef) -> bool:
    by = volume.spec.claim_ref
    return by is not None and (by.namespace or "default", by.name) == (claim.namespace, claim.name)


def fit_problem(claim: PersistentVolumeClaim, volume: PersistentVolume) -> str:
    """Reason why a claim does not fit a volume, in the binding controller's words; empty when it fits."""
    asked = claim.spec.resources.requests.get("storage", 0)
    if value(volume.spec.capacity.get("storage", 0)) < value(asked):
        return "requested PV is too small"
    if (volume.spec.storage_class_name or "") != (claim.spec.storage_class_name or ""):
        return "storageClassName does not match"
    if (volume.spec.volume_mode or "Filesystem") != (claim.spec.volume_mode or "Filesystem"):
        return "incompatible volumeMode"
    if set(claim.spec.access_modes) - set(volume.spec.access_modes):
        return "incompatible accessMode"
    return ""


def _check_owner(pod: Pod, claim: PersistentVolumeClaim, ref: ObjectRef) -> None:
    # A claim of that name may belong to something else than the pod.
    meta = pod.metadata
    for owner in claim.metadata.owner_references:
        # Objects of a directory are written without UIDs.
        same = owner.uid == meta.uid if claim.metadata.uid or owner.uid else owner.name == meta.name
        if owner.controller and owner.kind == "Pod" and same:
            return
    pod_name = f"{meta.namespace}/{meta.name}"
    raise NotBound(f"PVC {ref.namespace}/{ref.name} was not created for pod {pod_name} (pod is not owner)")


def _check_mode(pod: Pod, volume: Volume, persistent: PersistentVolume) -> None:
    mode, spec = persistent.spec.volume_mode or "Filesystem", pod.spec
    containers = (*spec.init_containers, *spec.containers, *spec.ephemeral_containers)
    text = f"volume {volume.name} has volumeMode {mode}, but is specified in"
    if mode != "Filesystem" and any(one.name == volume.name for c in containers for one in c.volume_mounts):
        raise NotBound(f"{text} volumeMounts")
    if mode != "Block" and any(one.name == volume.name for c in containers for one in c.volume_devices):
        raise NotBound(f"{text} volumeDevices")

"""Tables of claims with their persistent volumes, and of refusals."""

from __future__ import annotations

from typing import Any

import pytest

from actors.volume import policy
from actors.volume.plugins.base import CannotMount, Context
from actors.volume.plugins.binding import PROTECTION
from actors.volume.steps.codec import SetUp
from actors.volume.steps.volumes import HostPath
from proto import v1
from proto.pods.objects import ApiObject, ObjectRef
from proto.v1 import Pod

API = {"uid": "c1"}
BOUND = {"phase": "Bound"}
PATH = {"hostPath": {"path": "/data"}}


def pod(**volume: Any) -> Pod:
    """A pod `ns/p` that mounts the one volume `v`."""
    use = volume.pop("use", {"volumeMounts": [{"name": "v", "mountPath": "/v"}]})
    spec = {"containers": [{"name": "c", **use}], "volumes": [{"name": "v", **volume}]}
    return v1.from_dict(Pod, {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec})


def claim(name: str = "data", spec: Any = None, status: Any = None, **metadata: Any) -> ApiObject:
    ref = ObjectRef(kind="PersistentVolumeClaim", namespace="ns", name=name)
    document = {"metadata": {"name": name, **metadata}, "spec": spec or {}, "status": status or {}}
    return ApiObject(ref=ref, resource_version="1", document=document)


def volume(name: str = "pv", by: Any = ("ns", "data", None), **spec: Any) -> ApiObject:
    ref = ObjectRef(kind="PersistentVolume", name=name)
    claimed = {"claimRef": dict(zip(("namespace", "name", "uid"), by, strict=True))} if by else {}
    metadata = {"name": name, "annotations": spec.pop("annotations", {})}
    source = {} if spec.keys() & {"nfs", "rbd"} else PATH
    return ApiObject(ref=ref, resource_version="1", document={"metadata": metadata, "spec": source | claimed | spec})


def step(*objects: ApiObject, labels: dict[str, str] | None = None, spec: Pod | None = None) -> SetUp:
    spec = spec or pod(persistentVolumeClaim={"claimName": "data"})
    (wanted,) = policy.wanted_volumes(spec).values()
    context = Context(labels=labels or {}, objects={one.ref: one for one in objects})
    wanted.plugin.claimed(spec, wanted.volume, context)
    return wanted.plugin.step(spec, wanted.volume, context)


def refused(*objects: ApiObject, **rest: Any) -> str:
    with pytest.raises(CannotMount) as caught:
        step(*objects, **rest)
    return policy.failure_message("v", policy.failed(policy.NEW, caught.value, 0.0))


@pytest.mark.parametrize(
    "objects",
    [
        (claim(spec={"volumeName": "pv"}, status=BOUND, **API), volume(by=("ns", "data", "c1"))),
        (claim(), volume()),
        (claim(), volume("other", by=("ns", "theirs", None)), volume(), volume("free", by=None)),
        (claim(spec={"volumeName": "pv"}), volume()),
        (claim(spec={"volumeName": "pv"}), volume(by=None)),
        (claim(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=[PROTECTION]), volume()),
        (
            claim(spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}),
            volume(accessModes=["ReadWriteOnce", "ReadOnlyMany"], capacity={"storage": "1Gi"}),
        ),
    ],
)
def test_a_claim_leads_to_its_volume(objects: tuple[ApiObject, ...]) -> None:
    assert step(*objects) == HostPath("pv", "/data")


NAMES_IT = {"volumeName": "pv"}


@pytest.mark.parametrize(
    ("objects", "problem"),
    [
        ((), 'failed to fetch PVC from API server: persistentvolumeclaims "data" not found'),
        ((claim(deletionTimestamp="2026-01-01T00:00:00Z"), volume()), "PVC is being deleted"),
        ((claim(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["mine/x"]), volume()), "PVC is being deleted"),
        ((claim(status={"phase": "Pending"}, **API), volume()), "PVC is not bound"),
        ((claim(status=BOUND, **API), volume()), "PVC has empty pvc.Spec.VolumeName"),
        (
            (claim(spec=NAMES_IT, status=BOUND, **API),),
            'failed to fetch PV pv from API server: persistentvolumes "pv" not found',
        ),
        (
            (claim(spec=NAMES_IT, status=BOUND, **API), volume(by=None)),
            "found PV object pv but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim",
        ),
        (
            (claim(spec=NAMES_IT, status=BOUND, **API), volume(by=("ns", "data", "c0"))),
            "found PV object pv but its pv.Spec.ClaimRef.UID c0 does not point to claim.UID c1",
        ),
        ((claim(),), "PVC is not bound: it has no volumeName, and no PersistentVolume has a claimRef that names it"),
        (
            (claim(), volume("b"), volume("a")),
            "PVC is not bound: several PersistentVolumes have a claimRef that names it: a, b",
        ),
        (
            (claim(spec=NAMES_IT), volume(by=("ns", "other", None))),
            "PVC is not bound: the claimRef of PersistentVolume pv names the claim ns/other",
        ),
        (
            (claim(spec={"resources": {"requests": {"storage": "2Gi"}}}), volume(capacity={"storage": "1Gi"})),
            "PVC is not bound: requested PV is too small",
        ),
        ((claim(spec={"storageClassName": "fast"}), volume()), "PVC is not bound: storageClassName does not match"),
        ((claim(spec={"volumeMode": "Block"}), volume()), "PVC is not bound: incompatible volumeMode"),
        (
            (claim(spec={"accessModes": ["ReadWriteMany"]}), volume(accessModes=["ReadWriteOnce"])),
            "PVC is not bound: incompatible accessMode",
        ),
    ],
)
def test_a_claim_that_is_not_bound_is_refused(objects: tuple[ApiObject, ...], problem: str) -> None:
    assert refused(*objects) == (
        "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], "
        f"failed to process volumes=[v]: error processing PVC ns/data: {problem}"
    )


def test_volume_mode_must_match_the_containers_use() -> None:
    block = (claim(spec={"volumeMode": "Block"}), volume(volumeMode="Block"))
    assert refused(*block).endswith(": volume v has volumeMode Block, but is specified in volumeMounts")
    device = {"volumeDevices": [{"name": "v", "devicePath": "/d"}]}
    spec = pod(persistentVolumeClaim={"claimName": "data"}, use=device)
    assert refused(claim(), volume(), spec=spec).endswith(
        ": volume v has volumeMode Filesystem, but is specified in volumeDevices"
    )
    assert refused(*block, spec=spec) == (
        'MapVolume.FindMapperPluginBySpec failed for volume "pv" : '
        "BlockVolume mapper plugin is nil: this type of volume has no volumeMode Block"
    )
    rbd = refused(claim(), volume(rbd={"image": "i"}))
    assert rbd == (
        'MountVolume.SetUp failed for volume "pv" : this agent does not support PersistentVolumes of type `rbd`: '
        "Kubernetes has removed it; use a CSI driver"
    )
    for options in ({"mountOptions": ["ro"]}, {"annotations": {"volume.beta.kubernetes.io/mount-options": "ro"}}):
        assert refused(claim(), volume(**options)) == (
            'MountVolume.MountOptionSupport check failed for volume "pv" : '
            "mount options are not supported for this volume type"
        )


def test_a_volume_of_another_node_is_refused() -> None:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["here"]}]}
    bound = (claim(), volume(nodeAffinity={"required": {"nodeSelectorTerms": [term]}}))
    assert step(*bound, labels={"kubernetes.io/hostname": "here"}) == HostPath("pv", "/data")
    assert refused(*bound, labels={"kubernetes.io/hostname": "there"}) == (
        'MountVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms'
    )


@pytest.mark.parametrize(
    ("owner", "works"),
    [
        ({"kind": "Pod", "name": "p", "controller": True}, True),
        ({"kind": "Pod", "name": "p", "uid": "u", "controller": True}, True),
        ({"kind": "Pod", "name": "p", "uid": "earlier", "controller": True}, False),
        ({"kind": "Pod", "name": "p"}, False),
        ({"kind": "Job", "name": "p", "controller": True}, False),
        (None, False),
    ],
)
def test_ephemeral_claim_must_be_owned_by_the_pod(owner: Any, works: bool) -> None:
    spec = pod(ephemeral={"volumeClaimTemplate": {"spec": {}}})
    owned = claim("p-v", ownerReferences=[owner] if owner else [])
    found = volume(by=("ns", "p-v", None))
    if works:
        assert step(owned, found, spec=spec) == HostPath("pv", "/data")
    else:
        assert refused(owned, found, spec=spec).endswith(": PVC ns/p-v was not created for pod ns/p (pod is not owner)")
    assert refused(spec=spec).endswith(
        ': error processing PVC ns/p-v: failed to fetch PVC from API server: persistentvolumeclaims "p-v" not found'
    )


def test_the_objects_are_read_in_turn() -> None:
    spec = pod(persistentVolumeClaim={"claimName": "data"})
    (wanted,) = policy.wanted_volumes(spec).values()
    every, one = ObjectRef(kind="PersistentVolume"), ObjectRef(kind="PersistentVolume", name="pv")

    def further(*objects: ApiObject) -> tuple[ObjectRef, ...]:
        return wanted.plugin.further_refs(spec, wanted.volume, Context(objects={one.ref: one for one in objects}))

    assert further() == ()
    assert further(claim()) == (every,)
    assert further(claim(spec=NAMES_IT)) == (one,)
    assert further(claim(**API)) == (), "a node may not list the volumes of a cluster"

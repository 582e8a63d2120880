"""The step of a CSI volume has each field of the volume, its CSIDriver and its Secrets."""

from typing import Any

import pytest

from actors.volume import policy
from actors.volume.csi.policy import owned_by
from actors.volume.plugins.base import CannotMount, Claimed, Context
from actors.volume.plugins.csi import PersistentCsi
from actors.volume.steps.csi import CsiMount, FsGroup
from proto import v1
from proto.pods.objects import ApiObject, ObjectRef
from proto.v1 import Pod
from proto.v1.cluster import PersistentVolume, PersistentVolumeClaim

DRIVER = {
    "attachRequired": False,
    "fsGroupPolicy": "File",
    "podInfoOnMount": True,
    "requiresRepublish": True,
    "volumeLifecycleModes": ["Persistent", "Ephemeral"],
}
FOR_NODE = {
    "nodeStageSecretRef": {"name": "Stage", "namespace": "ns"},
    "nodePublishSecretRef": {"name": "Publish", "namespace": "ns"},
    "nodeExpandSecretRef": {"name": "Expand", "namespace": "ns"},
}
CALLS = ("Stage", "Publish", "Expand")
"""Also the names of the Secrets."""
VOLUME = {"driver": "d", "volumeHandle": "h", "fsType": "ext4", "readOnly": True, "volumeAttributes": {"a": "b"}}


def step(volume: dict[str, Any], secrets: tuple[str, ...] = CALLS, **persistent: Any) -> CsiMount:
    security = {"fsGroup": 7, "fsGroupChangePolicy": "OnRootMismatch"}
    container = {"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    spec = {"containers": [container], "volumes": [{"name": "v", **volume}], "securityContext": security}
    pod = v1.from_dict(Pod, {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec})
    documents: dict[tuple[str, str, str], dict[str, Any]] = {
        ("CSIDriver", "", "d"): {"spec": DRIVER},
        ("PersistentVolumeClaim", "ns", "data"): {"spec": {"volumeName": "pv"}},
        ("PersistentVolume", "", "pv"): {"spec": persistent},
    }
    refs = {ObjectRef(kind=kind, namespace=space, name=name): one for (kind, space, name), one in documents.items()}
    objects = {ref: ApiObject(ref=ref, resource_version="1", document=one) for ref, one in refs.items()}
    for call in secrets:
        ref = ObjectRef(kind="Secret", namespace="ns", name=call)
        objects[ref] = ApiObject(ref=ref, resource_version="1", data={"k": call.encode()})
    (wanted,) = policy.wanted_volumes(pod).values()
    context = Context(objects=objects, node_name="n", endpoint=lambda driver: f"/{driver}.sock")
    made = wanted.plugin.step(pod, wanted.volume, context)
    assert isinstance(made, CsiMount)
    return made


def test_persistent_volume_brings_its_fields_and_secrets() -> None:
    made = step({"persistentVolumeClaim": {"claimName": "data"}}, csi=VOLUME | FOR_NODE, mountOptions=["noatime"])
    assert (made.volume.handle, made.fs_type, made.read_only, made.context) == ("h", "ext4", False, {"a": "b"})
    assert made.mount_options == ("noatime",)
    assert (made.secrets.stage, made.secrets.publish, made.secrets.expand) == (
        {"k": "Stage"},
        {"k": "Publish"},
        {"k": "Expand"},
    )


def test_missing_secrets_of_stage_and_growth_are_left_to_their_calls() -> None:
    made = step({"persistentVolumeClaim": {"claimName": "data"}}, ("Publish",), csi=VOLUME | FOR_NODE).secrets
    assert (made.stage, made.publish, made.expand) == ({}, {"k": "Publish"}, {})
    assert made.stage_error == 'fetching NodeStageSecretRef ns/Stage failed: secrets "Stage" not found'
    assert made.expand_error == 'fetching NodeExpandSecretRef ns/Expand failed: secrets "Expand" not found'
    whole = step({"persistentVolumeClaim": {"claimName": "data"}}, csi=VOLUME | FOR_NODE).secrets
    assert (whole.stage_error, whole.expand_error) == ("", "")


@pytest.mark.parametrize(
    "volume",
    [
        {"persistentVolumeClaim": {"claimName": "data"}},
        {"csi": {"driver": "d", "nodePublishSecretRef": {"name": "Publish"}}},
    ],
)
def test_missing_secret_of_the_publication_fails_every_mount(volume: dict[str, Any]) -> None:
    with pytest.raises(CannotMount) as caught:
        step(volume, ("Stage", "Expand"), csi=VOLUME | FOR_NODE)
    assert str(caught.value) == 'fetching NodePublishSecretRef ns/Publish failed: secrets "Publish" not found'


def test_pods_volume_brings_its_fields_and_secret() -> None:
    source = {"driver": "d", "fsType": "xfs", "readOnly": True, "volumeAttributes": {"a": "b"}}
    made = step({"csi": source | {"nodePublishSecretRef": {"name": "Publish"}}})
    assert (made.ephemeral, made.fs_type, made.read_only, made.context) == (True, "xfs", True, {"a": "b"})
    assert (made.secrets.stage, made.secrets.publish) == ({}, {"k": "Publish"})


def test_group_policies_and_pod_info_are_the_drivers_and_pods() -> None:
    made = step({"csi": {"driver": "d"}})
    assert made.fs_group == FsGroup(7, "OnRootMismatch", "File")
    assert made.pod_info["csi.storage.k8s.io/pod.name"] == "p"
    assert made.republish


@pytest.mark.parametrize("attached", [False, True])
@pytest.mark.parametrize("mounted", [False, True])
def test_only_the_pods_claim_makes_the_mount_read_only(attached: bool, mounted: bool) -> None:
    """The PersistentVolume's readOnly is for its attachment."""
    claimed = {"persistentVolumeClaim": {"claimName": "data", "readOnly": mounted}}
    made = step(claimed, csi=VOLUME | {"readOnly": attached})
    assert made.read_only == mounted
    assert (owned_by(made, ()) is None) == mounted, "else the files get the fsGroup"


@pytest.mark.parametrize(("attach", "wanted"), [(False, 0), (True, 1), (None, 1)])
def test_attachment_is_read_only_if_the_driver_needs_one(attach: bool | None, wanted: int) -> None:
    spec = {"csi": {"driver": "d", "volumeHandle": "h"}}
    claimed = Claimed(
        v1.from_dict(PersistentVolume, {"metadata": {"name": "pv"}, "spec": spec}), PersistentVolumeClaim(), ()
    )
    driver = ObjectRef(kind="CSIDriver", name="d")
    document = {"spec": {"attachRequired": attach}}
    found = {driver: ApiObject(ref=driver, resource_version="1", document=document)} if attach is not None else {}

    def attachments(context: Context) -> list[ObjectRef]:
        return [ref for ref in PersistentCsi().refs(Pod(), claimed, context) if ref.kind == "VolumeAttachment"]

    assert attachments(Context()) == [], "the driver is not known yet"
    assert len(attachments(Context(objects=found, asked=frozenset({driver})))) == wanted

"""Tables of in-tree volumes and the CSI volumes that csi-translation-lib makes of them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.volume import policy
from actors.volume.plugins.base import CannotMount, Context
from actors.volume.steps.csi import CsiMount
from actors.volume.translation import translate
from actors.volume.translation.sources import NotTranslated
from proto import v1
from proto.pods.objects import ApiObject, ObjectRef
from proto.v1 import Pod, Volume
from proto.v1.cluster import PersistentVolume
from proto.v1.scalars.base import json_name
from proto.v1.volumes.migrated import MIGRATED

EBS, GCE, CINDER = "ebs.csi.aws.com", "pd.csi.storage.gke.io", "cinder.csi.openstack.org"
DISK, FILE = "disk.csi.azure.com", "file.csi.azure.com"
PX, VSPHERE = "pxd.portworx.com", "csi.vsphere.vmware.com"
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
URI = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d1"
SHARE = {"shareName": "share", "secretName": "azure-storage-account-acct-secret"}
STAGE = {"name": "azure-storage-account-acct-secret"}
MANAGED = {"kind": "Managed", "csi-migration": "true"}


def csi(driver: str, handle: str, attributes: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    found = {"driver": driver, "volumeHandle": handle, **fields}
    return found | ({"volumeAttributes": attributes} if attributes else {})


def persistent(spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    volume = v1.from_dict(PersistentVolume, {"metadata": {"name": "pv", **metadata}, "spec": spec})
    return v1.to_dict(translate.persistent(volume))["spec"]  # type: ignore[no-any-return]


def affinity(*terms: dict[str, list[str]]) -> dict[str, Any]:
    def requirement(key: str, values: list[str]) -> dict[str, Any]:
        return {"key": key, "operator": "In", "values": values}

    made = [{"matchExpressions": [requirement(*one) for one in term.items()]} for term in terms]
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": made}}}


@pytest.mark.parametrize(
    ("source", "name", "expected", "mode"),
    [
        ({"awsElasticBlockStore": {"volumeID": "vol-1", "fsType": "ext4", "partition": 1, "readOnly": True}},
         f"{EBS}-vol-1", csi(EBS, "vol-1", {"partition": "1"}, fsType="ext4", readOnly=True), "ReadWriteOnce"),
        ({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-1"}},
         f"{EBS}-vol-1", csi(EBS, "vol-1", {"partition": "0"}), "ReadWriteOnce"),
        ({"awsElasticBlockStore": {"volumeID": "aws:///vol-1"}},
         f"{EBS}-vol-1", csi(EBS, "vol-1", {"partition": "0"}), "ReadWriteOnce"),
        ({"azureDisk": {"diskName": "d1", "diskURI": URI}},
         f"{DISK}-d1", csi(DISK, URI, MANAGED), "ReadWriteOnce"),
        ({"azureDisk": {"diskName": "d1", "diskURI": URI, "kind": "Dedicated", "cachingMode": "ReadOnly",
                        "fsType": "xfs", "readOnly": True}},
         f"{DISK}-d1",
         csi(DISK, URI, {"kind": "Dedicated", "csi-migration": "true", "cachingMode": "ReadOnly", "fsType": "xfs"},
             fsType="xfs", readOnly=True), "ReadWriteOnce"),
        ({"azureFile": SHARE | {"readOnly": True}}, "#acct#share#v#ns",
         csi(FILE, "#acct#share#v#ns", {"sharename": "share"}, readOnly=True,
             nodeStageSecretRef=STAGE | {"namespace": "ns"}), "ReadWriteMany"),
        ({"azureFile": {"shareName": "share", "secretName": "own"}}, "#own#share#v#ns",
         csi(FILE, "#own#share#v#ns", {"sharename": "share"},
             nodeStageSecretRef={"name": "own", "namespace": "ns"}), "ReadWriteMany"),
        ({"cinder": {"volumeID": "c1", "fsType": "ext4", "secretRef": {"name": "s"}}},
         f"{CINDER}-c1", csi(CINDER, "c1", fsType="ext4"), "ReadWriteOnce"),
        ({"gcePersistentDisk": {"pdName": "pd", "fsType": "ext4", "partition": 2}},
         f"{GCE}-pd", csi(GCE, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/pd", {"partition": "2"}, fsType="ext4"),
         "ReadWriteOnce"),
        ({"gcePersistentDisk": {"pdName": "pd", "readOnly": True}},
         f"{GCE}-pd", csi(GCE, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/pd", {"partition": ""}, readOnly=True),
         "ReadOnlyMany"),
        ({"portworxVolume": {"volumeID": "ID", "fsType": "type"}},
         f"{PX}-ID", csi(PX, "ID", fsType="type"), "ReadWriteOnce"),
        ({"portworxVolume": {"volumeID": "ID", "readOnly": True}},
         f"{PX}-ID", csi(PX, "ID", readOnly=True), "ReadOnlyMany"),
        ({"vsphereVolume": {"volumePath": "[ds] kubevols/d.vmdk", "fsType": "ext4", "storagePolicyName": "gold"}},
         f"{VSPHERE}-[ds] kubevols/d.vmdk",
         csi(VSPHERE, "[ds] kubevols/d.vmdk", {"storagepolicyname": "gold"}, fsType="ext4"), "ReadWriteOnce"),
    ],
)  # fmt: skip
def test_volume_of_a_pod(source: dict[str, Any], name: str, expected: dict[str, Any], mode: str) -> None:
    made = translate.inline(v1.from_dict(Volume, {"name": "v", **source}), "ns")
    assert made.metadata.name == name
    assert v1.to_dict(made)["spec"] == {"csi": expected, "accessModes": [mode], "volumeMode": "Filesystem"}


@pytest.mark.parametrize(
    ("source", "metadata", "expected"),
    [
        ({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-1", "partition": 3, "readOnly": True}}, {},
         csi(EBS, "vol-1", {"partition": "3"}, readOnly=True)),
        ({"azureDisk": {"diskName": "d1", "diskURI": URI, "readOnly": True, "fsType": "ext4"}}, {},
         csi(DISK, URI, MANAGED | {"fsType": "ext4"}, fsType="ext4", readOnly=True)),
        ({"azureFile": SHARE | {"secretNamespace": "own"}}, {},
         csi(FILE, "#acct#share#pv#own", {"sharename": "share"}, nodeStageSecretRef=STAGE | {"namespace": "own"})),
        ({"azureFile": SHARE, "claimRef": {"namespace": "ns", "name": "c"}},
         {"annotations": {"kubernetes.io/azure-file-resource-group": "rg"}},
         csi(FILE, "rg#acct#share#pv#ns", {"sharename": "share"}, nodeStageSecretRef=STAGE | {"namespace": "ns"})),
        ({"cinder": {"volumeID": "c1", "readOnly": True, "secretRef": {"name": "s", "namespace": "n"}}}, {},
         csi(CINDER, "c1", readOnly=True)),
        ({"gcePersistentDisk": {"pdName": "pd"}}, {},
         csi(GCE, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/pd", {"partition": ""})),
        ({"gcePersistentDisk": {"pdName": "pd"}}, {"labels": {BETA_ZONE: "us-east1-a"}},
         csi(GCE, "projects/UNSPECIFIED/zones/us-east1-a/disks/pd", {"partition": ""})),
        ({"gcePersistentDisk": {"pdName": "pd"}}, {"labels": {ZONE: "us-east1-a__us-east1-c"}},
         csi(GCE, "projects/UNSPECIFIED/regions/us-east1/disks/pd", {"partition": ""})),
        ({"portworxVolume": {"volumeID": "ID", "fsType": "type"}}, {}, csi(PX, "ID", fsType="type")),
        ({"portworxVolume": {"volumeID": "ID"}},
         {"annotations": {"openstorage.io/auth-secret-name": "s", "openstorage.io/auth-secret-namespace": "n"}},
         csi(PX, "ID", **{f"{call}SecretRef": {"name": "s", "namespace": "n"} for call in (
             "controllerPublish", "nodeStage", "nodePublish", "controllerExpand", "nodeExpand")})),
        ({"portworxVolume": {"volumeID": "ID"}}, {"annotations": {"openstorage.io/auth-secret-name": "s"}},
         csi(PX, "ID")),
        ({"vsphereVolume": {"volumePath": "[ds] d.vmdk", "storagePolicyName": "gold"}}, {},
         csi(VSPHERE, "[ds] d.vmdk", {"storagepolicyname": "gold"})),
    ],
)  # fmt: skip
def test_persistent_volume(source: dict[str, Any], metadata: dict[str, Any], expected: dict[str, Any]) -> None:
    made = persistent({"mountOptions": ["noatime"], **source}, **metadata)
    assert made["csi"] == expected
    assert made["mountOptions"] == ["noatime"]
    assert not set(made) & set(source) - {"claimRef"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["ReadWriteOnce"], ["ReadWriteOnce"]),
        (["ReadWriteMany"], ["ReadWriteOnce"]),
        (["ReadOnlyMany"], ["ReadOnlyMany"]),
        (["ReadOnlyMany", "ReadWriteOnce"], ["ReadWriteOnce"]),
        (["ReadOnlyMany", "ReadWriteMany"], ["ReadWriteOnce"]),
        ([], None),
    ],
)
def test_gce_disk_gets_an_access_mode_that_it_can_have(before: list[str], after: list[str] | None) -> None:
    spec = {"gcePersistentDisk": {"pdName": "pd"}, "accessModes": before}
    assert persistent(spec).get("accessModes") == after


EBS_ZONE, CINDER_ZONE = "topology.ebs.csi.aws.com/zone", "topology.cinder.csi.openstack.org/zone"


@pytest.mark.parametrize("source", [
    ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, EBS_ZONE),
    ({"cinder": {"volumeID": "c1"}}, CINDER_ZONE),
    ({"gcePersistentDisk": {"pdName": "pd"}}, "topology.gke.io/zone"),
])  # fmt: skip
@pytest.mark.parametrize(
    ("terms", "labels", "expected"),
    [
        ((), {}, ()),
        ((), {ZONE: "us-a-1"}, ({"CSI": ["us-a-1"]},)),
        ((), {BETA_ZONE: "us-a-1", BETA_REGION: "us-a"}, ({"CSI": ["us-a-1"]},)),
        ((), {ZONE: "us-a-2__us-a-1"}, ({"CSI": ["us-a-1", "us-a-2"]},)),
        ((), {ZONE: ""}, ()),
        (({ZONE: ["us-a-1"], REGION: ["us-a"]},), {}, ({"CSI": ["us-a-1"], REGION: ["us-a"]},)),
        (({BETA_ZONE: ["us-a-1"], BETA_REGION: ["us-a"]},), {}, ({"CSI": ["us-a-1"], REGION: ["us-a"]},)),
        (({ZONE: ["us-a-1"]}, {"host": ["h"]}), {}, ({"CSI": ["us-a-1"]}, {"host": ["h"]})),
        (({"host": ["h"]}, {"host": ["i"]}), {ZONE: "us-a-1"},
         ({"host": ["h"], "CSI": ["us-a-1"]}, {"host": ["i"], "CSI": ["us-a-1"]})),
        (({ZONE: ["us-a-1"]},), {ZONE: "us-a-2"}, ({"CSI": ["us-a-1"]},)),
    ],
)  # fmt: skip
def test_zones_get_the_drivers_key(
    source: tuple[dict[str, Any], str],
    terms: tuple[dict[str, list[str]], ...],
    labels: dict[str, str],
    expected: tuple[dict[str, list[str]], ...],
) -> None:
    spec, key = source
    wanted = [{key if name == "CSI" else name: values for name, values in term.items()} for term in expected]
    made = persistent(spec | (affinity(*terms) if terms else {}), labels=labels)
    assert made.get("nodeAffinity") == (affinity(*wanted)["nodeAffinity"] if wanted else None)


@pytest.mark.parametrize(
    ("terms", "labels", "expected"),
    [
        ((), {ZONE: "z", REGION: "r"}, ({"zone": ["z"], "region": ["r"]},)),
        ((), {BETA_ZONE: "z", BETA_REGION: "r"}, ({"zone": ["z"], "region": ["r"]},)),
        (({ZONE: ["z"], REGION: ["r"]},), {}, ({"zone": ["z"], "region": ["r"]},)),
        ((), {ZONE: "z__y"}, ({"zone": ["z__y"]},)),
        ((), {}, ()),
    ],
)
def test_vsphere_volume_keeps_its_region(
    terms: tuple[dict[str, list[str]], ...], labels: dict[str, str], expected: tuple[dict[str, list[str]], ...]
) -> None:
    made = persistent({"vsphereVolume": {"volumePath": "p"}} | (affinity(*terms) if terms else {}), labels=labels)
    wanted = [{f"topology.csi.vmware.com/{name}": values for name, values in term.items()} for term in expected]
    assert made.get("nodeAffinity") == (affinity(*wanted)["nodeAffinity"] if wanted else None)


@pytest.mark.parametrize(
    ("spec", "metadata", "message"),
    [
        ({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/disk"}}, {}, "Invalid format for AWS volume"),
        ({"awsElasticBlockStore": {"volumeID": "aws://[/vol-1"}}, {}, "Invalid disk name"),
        ({"awsElasticBlockStore": {"volumeID": ""}}, {}, "volume handle '' for driver ebs.csi.aws.com is invalid"),
        ({"cinder": {"volumeID": "a\0b"}}, {}, "is invalid"),
        ({"azureFile": SHARE}, {}, "could not find a secret namespace"),
        ({"gcePersistentDisk": {"pdName": "d"}}, {"labels": {ZONE: "a__b"}}, "zone in unexpected format"),
        ({"gcePersistentDisk": {"pdName": "d"}}, {"labels": {ZONE: "us-a-1__us-b-1"}}, "got: us-a us-b"),
    ],
)
def test_invalid_volume_is_not_translated(spec: dict[str, Any], metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(NotTranslated, match=message.replace("[", r"\[")):
        persistent(spec, **metadata)


TEXT = st.text(max_size=40) | st.sampled_from(["aws://", "aws://z/vol-1", "..", "a__b", "us-a-1__us-a-2"])


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(MIGRATED)), st.data())
def test_any_text_is_translated_or_refused(kind: str, data: st.DataObject) -> None:
    fields = ("volumeID", "diskName", "diskURI", "secretName", "shareName", "pdName", "volumePath", "fsType")
    name = json_name(kind)
    source = {field: data.draw(TEXT) for field in fields}
    meta = {"name": "pv", "labels": {data.draw(st.sampled_from([ZONE, BETA_ZONE, REGION])): data.draw(TEXT)}}
    claim = {"namespace": data.draw(TEXT), "name": "c"}
    volume = v1.from_dict(PersistentVolume, {"metadata": meta, "spec": {name: source, "claimRef": claim}})
    inline = v1.from_dict(Volume, {"name": "v", name: source})
    for translated in (lambda: translate.persistent(volume), lambda: translate.inline(inline, "ns")):
        with suppress(NotTranslated):
            made = translated()
            assert made.spec.csi is not None
            assert made.spec.csi.driver == MIGRATED[kind].driver
            assert "\0" not in made.metadata.name + made.spec.csi.volume_handle
            assert made.metadata.name not in ("", ".", "..")
            assert not translate.migrated_type(made.spec)


# The step of a migrated volume


def step(source: dict[str, Any], endpoint: str = "/d.sock", volume: dict[str, Any] | None = None) -> CsiMount:
    container = {"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    spec = {"containers": [container], "volumes": [{"name": "v", **source}]}
    pod = v1.from_dict(Pod, {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec})
    refs = {
        ObjectRef(kind="CSIDriver", name=FILE): {"spec": {"attachRequired": False}},
        ObjectRef(kind="CSIDriver", name=EBS): {"spec": {"attachRequired": False}},
        ObjectRef(kind="PersistentVolumeClaim", namespace="ns", name="data"): {"spec": {"volumeName": "pv"}},
        ObjectRef(kind="PersistentVolume", name="pv"): volume or {},
    }
    objects = {ref: ApiObject(ref=ref, resource_version="1", document=one) for ref, one in refs.items()}
    secret = ObjectRef(kind="Secret", namespace="ns", name=STAGE["name"])
    objects[secret] = ApiObject(ref=secret, resource_version="1", data={"key": b"k"})
    (wanted,) = policy.wanted_volumes(pod).values()
    labels = {EBS_ZONE: "us-a-1"}
    context = Context(objects=objects, node_name="n", endpoint=lambda _: endpoint, labels=labels)
    named = {*wanted.refs, *wanted.plugin.further_refs(pod, wanted.volume, context)}
    assert {ref for ref in named if ref.kind == "Secret"} <= objects.keys()
    made = wanted.plugin.step(pod, wanted.volume, context)
    assert isinstance(made, CsiMount)
    return made


def test_share_of_a_pod_is_staged_with_its_secret() -> None:
    made = step({"azureFile": SHARE | {"readOnly": True}})
    assert (made.volume.driver, made.volume.handle, made.volume.spec_name) == (
        FILE,
        "#acct#share#v#ns",
        "#acct#share#v#ns",
    )
    assert (made.secrets.stage, made.read_only, made.ephemeral) == ({"key": "k"}, True, False)
    assert made.access_modes == ("ReadWriteMany",)


def test_claimed_volume_has_its_mount_options_and_zone() -> None:
    spec = {"awsElasticBlockStore": {"volumeID": "vol-1", "partition": 1, "fsType": "xfs"}, "mountOptions": ["ro"]}
    volume = {"metadata": {"name": "pv", "labels": {ZONE: "us-a-1"}}, "spec": spec}
    made = step({"persistentVolumeClaim": {"claimName": "data"}}, volume=volume)
    assert (made.volume.driver, made.volume.handle, made.volume.spec_name) == (EBS, "vol-1", "pv")
    assert (made.fs_type, made.mount_options, made.context) == ("xfs", ("ro",), {"partition": "1"})
    volume["metadata"]["labels"] = {ZONE: "us-a-2"}  # type: ignore[index]
    with pytest.raises(CannotMount, match="no matching NodeSelectorTerms"):
        step({"persistentVolumeClaim": {"claimName": "data"}}, volume=volume)


@pytest.mark.parametrize("mounted", [False, True])
def test_only_the_pods_claim_makes_a_claimed_volume_read_only(mounted: bool) -> None:
    spec = {"awsElasticBlockStore": {"volumeID": "vol-1", "readOnly": True}}
    source = {"persistentVolumeClaim": {"claimName": "data", "readOnly": mounted}}
    assert step(source, volume={"metadata": {"name": "pv"}, "spec": spec}).read_only == mounted


@pytest.mark.parametrize("source", [{"cinder": {"volumeID": "c1"}}, {"azureFile": SHARE}])
def test_driver_that_is_not_registered_is_named(source: dict[str, Any]) -> None:
    driver = MIGRATED["cinder" if "cinder" in source else "azure_file"].driver
    with pytest.raises(CannotMount) as caught:
        step(source, endpoint="")
    assert str(caught.value) == (
        "kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: "
        f"driver name {driver} not found in the list of registered CSI drivers"
    )
    assert caught.value.retry


def test_pods_volume_that_is_invalid_is_refused_for_good() -> None:
    with pytest.raises(CannotMount, match="failed to translate in-tree pv to CSI: ") as caught:
        step({"awsElasticBlockStore": {"volumeID": "aws://z/x"}})
    assert not caught.value.retry

"""Volumes of in-tree types through the volume process, mounted by the tests' CSI driver under the migrated name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actors._host.files.mounts import mounts_under
from proto import v1
from proto.agent.actor import Describe
from proto.node.node import SetVolumesInUse
from proto.pods.objects import ApiObject, GetObjects, ObjectRef, Objects
from proto.pods.pod_workers import VolumesMounted
from proto.pods.volume import MountPod, UnmountPod
from proto.v1 import Volume
from proto.v1.scalars.base import json_name
from proto.v1.volumes.migrated import MIGRATED
from tests.harness import ActorProcess, wait_for
from tests.volume.csi.csi_driver import Driver
from tests.volume.csi.test_csi_actor import (
    actor,
    claim,
    in_default,
    new_driver,
    refused,
    registered,
    retry_forbidden,
)
from tests.volume.test_actor import UID
from tests.volume.test_with_server import Server, server

__all__ = ["actor", "server"]
EBS, FILE = MIGRATED["aws_elastic_block_store"].driver, MIGRATED["azure_file"].driver

SOURCES: dict[str, tuple[dict[str, Any], str]] = {
    "aws_elastic_block_store": ({"volumeID": "vol-1", "partition": 1}, "vol-1"),
    "azure_disk": ({"diskName": "d", "diskURI": "disk-1"}, "disk-1"),
    "azure_file": ({"shareName": "share", "secretName": "s"}, "#s#share#v#default"),
    "cinder": ({"volumeID": "c-1"}, "c-1"),
    "gce_persistent_disk": ({"pdName": "pd"}, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/pd"),
    "portworx_volume": ({"volumeID": "px"}, "px"),
    "vsphere_volume": ({"volumePath": "[ds] dir/d.vmdk"}, "[ds] dir/d.vmdk"),
}


def volume(kind: str, name: str = "v", **fields: Any) -> Volume:
    source = SOURCES[kind][0] | fields
    return v1.from_dict(Volume, {"name": name, json_name(kind): source})


class Cluster:
    """CSIDrivers of all migrated types that need no attachments, a Secret, and one claim of an in-tree volume."""

    def __init__(self, process: ActorProcess) -> None:
        self.zoned: set[str] = set()
        """PersistentVolumes with a label of their zone, zone-1."""
        process.peers["objects"].answers[GetObjects] = self.objects

    def objects(self, request: GetObjects) -> Objects:
        found = tuple(one for ref in request.refs if (one := self._object(ref)) is not None)
        has = {one.ref for one in found}
        return Objects(found=found, missing=tuple(ref for ref in request.refs if ref not in has))

    def _object(self, ref: ObjectRef) -> ApiObject | None:
        if ref.kind == "Secret":
            return ApiObject(ref=ref, resource_version="1", data={"key": b"secret-canary"})
        spec = {
            "CSIDriver": {"attachRequired": False},
            "PersistentVolumeClaim": {"volumeName": "pv-ebs"},
            "PersistentVolume": {
                "awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-9", "partition": 2},
                "mountOptions": ["noatime"],
            },
        }.get(ref.kind)
        labels = {"topology.kubernetes.io/zone": "zone-1"} if ref.name in self.zoned else {}
        if spec is None:
            return None
        document = {"metadata": {"name": ref.name, "labels": labels}, "spec": spec}
        return ApiObject(ref=ref, resource_version="1", document=document)


@pytest.fixture
def cluster(actor: ActorProcess) -> Cluster:
    return Cluster(actor)


@pytest.mark.parametrize("kind", MIGRATED)
@pytest.mark.needs("mounts")
@pytest.mark.usefixtures("cluster")
def test_volume_of_each_type_is_mounted_by_its_driver(actor: ActorProcess, kind: str) -> None:
    driver = new_driver(actor, MIGRATED[kind].driver).start()
    try:
        registered(actor, driver)
        spec = in_default(volume(kind))
        path = retry_forbidden(actor, MountPod(pod=spec)).host_paths["v"]
        (stage,), (publish,) = driver.of("NodeStageVolume"), driver.of("NodePublishVolume")
        assert stage.volume_id == publish.volume_id == SOURCES[kind][1]
        assert dict(stage.secrets) == ({"key": "secret-canary"} if kind == "azure_file" else {})
        assert path.startswith(f"{actor.settings.root_dir}/pods/{UID}/volumes/kubernetes.io~csi/")
        assert Path(path).name == "mount"
        Path(path, "file").write_text("x")
        assert (driver.data / SOURCES[kind][1] / "file").read_text() == "x"
        actor.restart()
        registered(actor, driver)
        assert retry_forbidden(actor, MountPod(pod=spec)).host_paths["v"] == path
        assert len(driver.of("NodePublishVolume")) == 1, "what is there is found, and left alone"
        retry_forbidden(actor, UnmountPod(pod_uid=UID))
        assert driver.names()[-2:] == ["NodeUnpublishVolume", "NodeUnstageVolume"]
        assert mounts_under(actor.dir) == []
    finally:
        driver.close()


@pytest.mark.needs("mounts")
@pytest.mark.usefixtures("cluster")
def test_claim_of_an_in_tree_volume_is_mounted_by_its_driver(actor: ActorProcess) -> None:
    driver = new_driver(actor, EBS).start()
    try:
        registered(actor, driver)
        path = retry_forbidden(actor, MountPod(pod=in_default(claim()))).host_paths["v"]
        assert path.endswith("/pv-ebs/mount")
        (publish,) = driver.of("NodePublishVolume")
        assert (publish.volume_id, dict(publish.volume_context)) == ("vol-9", {"partition": "2"})
        assert list(publish.volume_capability.mount.mount_flags) == ["noatime"]
        retry_forbidden(actor, UnmountPod(pod_uid=UID))
    finally:
        driver.close()


@pytest.mark.needs("mounts")
def test_volume_of_another_zone_is_refused_without_a_cluster_too(actor: ActorProcess, cluster: Cluster) -> None:
    cluster.zoned.add("pv-ebs")
    driver = new_driver(actor, EBS, topology={"topology.ebs.csi.aws.com/zone": "zone-2"}).start()
    try:
        registered(actor, driver)
        message = refused(actor, MountPod(pod=in_default(claim())))
        assert message.endswith("no matching NodeSelectorTerms")
        driver.stop()
        wait_for(lambda: EBS not in actor.ask(Describe()).state["csi"]["drivers"], 20, "the driver has gone")
        driver.topology = {"topology.ebs.csi.aws.com/zone": "zone-1"}
        driver.start()
        registered(actor, driver)
        retry_forbidden(actor, MountPod(pod=in_default(claim())))
        retry_forbidden(actor, UnmountPod(pod_uid=UID))
    finally:
        driver.close()


@pytest.mark.needs("mounts")
@pytest.mark.usefixtures("cluster")
def test_volume_waits_for_its_driver_and_names_it(actor: ActorProcess) -> None:
    spec = in_default(volume("azure_file", readOnly=True))
    message = refused(actor, MountPod(pod=spec))
    assert message == (
        'MountVolume.MountDevice failed for volume "#s#share#v#default" : kubernetes.io/csi: attacher.MountDevice '
        f"failed to create newCsiDriverClient: driver name {FILE} not found in the list of registered CSI drivers"
    )
    driver = new_driver(actor, FILE).start()
    try:
        told = actor.peers["pod_workers"]
        wait_for(lambda: told.of(VolumesMounted) == [VolumesMounted(pod_uid=UID)], 20, "pod_workers hears of it")
        (publish,) = driver.of("NodePublishVolume")
        assert publish.readonly
        retry_forbidden(actor, UnmountPod(pod_uid=UID))
    finally:
        driver.close()


@pytest.mark.needs("mounts")
def test_disk_of_a_pod_waits_for_its_attachment(server: Server) -> None:
    actor = server.actor
    driver: Driver = new_driver(actor, EBS).start()
    try:
        registered(actor, driver)
        spec = in_default(volume("aws_elastic_block_store"))
        unique = f"kubernetes.io/csi/{EBS}^vol-1"
        assert "VolumesInUse" in refused(actor, MountPod(pod=spec))
        assert actor.peers["node"].of(SetVolumesInUse)[-1].volumes == (unique,)
        server.report()
        server.attached = True
        retry_forbidden(actor, MountPod(pod=spec))
        (publish,) = driver.of("NodePublishVolume")
        assert dict(publish.publish_context) == {"device": "/dev/x"}
        retry_forbidden(actor, UnmountPod(pod_uid=UID))
        wait_for(lambda: server.in_use()[-1] == (), 20, "it is in use no more")
    finally:
        driver.close()

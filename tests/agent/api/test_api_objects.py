"""Secrets, ConfigMaps, Services and tokens of API pods, as their containers and no others see them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors.volume.csi.policy import attachment_name
from tests.agent.agent import Agent, container
from tests.agent.api.canary import holding, tap
from tests.agent.changing import files
from tests.containerd import ContainerdInstance
from tests.controlplane import ControlPlane
from tests.harness import wait_for
from tests.volume.csi.csi_driver import ALL, Driver

pytestmark = pytest.mark.timeout(300)

NODE = NAMESPACE = "referrer"
CANARY = "c4n4ry-of-the-cluster"
HOLDERS = ("objects", "volume", "pod_workers", "config", "status")
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


class Cluster:
    """A namespace of its own, and a node in it."""

    def __init__(self, server: ControlPlane, agent: Agent) -> None:
        self.server, self.agent = server, agent

    def path(self, plural: str, name: str = "") -> str:
        return f"/api/v1/namespaces/{NAMESPACE}/{plural}" + (f"/{name}" if name else "")

    def create(self, plural: str, name: str, **content: Any) -> Any:
        return self.server.call("POST", self.path(plural), {"metadata": {"name": name}, **content})

    def replace(self, plural: str, name: str, **content: Any) -> Any:
        return self.server.call("PUT", self.path(plural, name), {"metadata": {"name": name}, **content})

    def pod(self, name: str, *containers: dict[str, Any], **spec: Any) -> str:
        """Its UID."""
        spec = {"nodeName": NODE, "serviceAccountName": "default", "terminationGracePeriodSeconds": 1, **spec}
        created = self.create("pods", name, spec={**spec, "containers": list(containers)})
        uid: str = created["metadata"]["uid"]
        return uid

    def phase(self, name: str) -> str:
        found = self.server.get(self.path("pods", name))
        return (found or {}).get("status", {}).get("phase", "")

    def waiting(self, name: str) -> str:
        """Why its container does not run."""
        found = (self.server.get(self.path("pods", name)) or {}).get("status", {}).get("containerStatuses") or ()
        return next((one["state"].get("waiting", {}).get("message", "") for one in found), "")

    def delete(self, name: str) -> None:
        self.server.call("DELETE", self.path("pods", name))
        wait_for(lambda: self.server.get(self.path("pods", name)) is None, 60, f"{name} is gone")

    def volume(self, uid: str, plugin: str, name: str) -> Path:
        return self.agent.root_dir / "pods" / uid / "volumes" / f"kubernetes.io~{plugin}" / name


@pytest.fixture(scope="module")
def cluster(containerd: ContainerdInstance, control_plane: ControlPlane) -> Iterator[Cluster]:
    with closing(Agent(containerd, NODE)) as agent:
        control_plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        one = Cluster(control_plane, agent)
        one.create("serviceaccounts", "default")
        one.create("configmaps", "settings", data={"colour": "green"})
        one.create("secrets", "login", stringData={"password": CANARY})
        one.create("services", "web", spec={"ports": [{"port": 80}], "selector": {"a": "b"}})
        settings = yaml.safe_load(agent.config.read_text()) | {"syncFrequency": "2s"}
        agent.config.write_text(yaml.safe_dump(settings))
        agent.start("--kubeconfig", str(control_plane.kubeconfig(NODE)), wait=False)
        wait_for(agent.all_ready, 40, f"every actor is ready; log: {agent.log}")
        yield one
        for pod in control_plane.call("GET", one.path("pods"))["items"]:
            one.delete(pod["metadata"]["name"])


def token_volume() -> dict[str, Any]:
    """The volume that the API server's admission adds to every pod."""
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources = [token, {"configMap": {"name": "settings"}}, {"downwardAPI": {"items": [namespace]}}]
    return {"name": "account", "projected": {"sources": sources, "defaultMode": 420}}


def referring(script: str = "sleep 1000") -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A container and volumes with all of it."""
    env = [
        {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "colour"}}},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}},
    ]
    mounts = [
        {"name": "settings", "mountPath": "/settings"},
        {"name": "login", "mountPath": "/login"},
        {"name": "account", "mountPath": ACCOUNT},
    ]
    volumes = [
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "login", "secret": {"secretName": "login"}},
        token_volume(),
    ]
    return container("c", script, env=env, volumeMounts=mounts), volumes


def test_containers_get_what_their_pod_refers_to(cluster: Cluster) -> None:
    # By hash: a pod's command is no secret, and recordings have it.
    is_canary = f"canary() {{ [ $(sha256sum | cut -d' ' -f1) = {hashlib.sha256(CANARY.encode()).hexdigest()} ]; }}"
    script = (
        f"{is_canary}; [ $COLOUR = green ] && [ $(cat /settings/colour) = green ] && printf %s $PASSWORD | canary && "
        f"canary </login/password && [ $(cat {ACCOUNT}/namespace) = {NAMESPACE} ] && "
        f"[ -n $WEB_SERVICE_HOST ] && [ $KUBERNETES_SERVICE_HOST = 10.96.0.1 ] && [ $(wc -c <{ACCOUNT}/token) -gt 500 ]"
    )
    main, volumes = referring(script)
    cluster.pod("reads", main, volumes=volumes, restartPolicy="Never")
    wait_for(lambda: cluster.phase("reads") in ("Succeeded", "Failed"), 60, "it has looked")
    assert cluster.phase("reads") == "Succeeded"
    cluster.delete("reads")


def test_a_change_reaches_the_mounted_files_within_a_second(cluster: Cluster) -> None:
    cluster.create("configmaps", "changing", data={"a": "0", "b": "0"})
    mounts = [{"name": "v", "mountPath": "/v"}]
    volume = {"name": "v", "configMap": {"name": "changing"}}
    uid = cluster.pod("follows", container("c", volumeMounts=mounts), volumes=[volume])
    files = cluster.volume(uid, "configmap", "v")
    wait_for(lambda: cluster.phase("follows") == "Running", 60, "it runs")
    took = []
    for number in map(str, range(1, 21)):
        began = time.monotonic()
        cluster.replace("configmaps", "changing", data={"a": number, "b": number})

        def seen(number: str = number) -> bool:
            try:
                now = os.open(files / "..data", os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                return False  # the directory that the link led to has been removed within this look
            try:
                a, b = (Path(f"/proc/self/fd/{now}/{key}").read_text() for key in "ab")
            except FileNotFoundError:
                return False  # the directory it was has been removed since
            finally:
                os.close(now)
            assert a == b, "never torn"
            return a == number

        wait_for(seen, 10, f"change {number} is in the files")
        took.append(time.monotonic() - began)
    assert sorted(took)[len(took) // 2] < 1.0, took
    cluster.delete("follows")


def test_missing_objects_are_waited_for(cluster: Cluster) -> None:
    env = [{"name": "LATE", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "k"}}}]
    cluster.pod("waits", container("c", "sleep 1000", env=env))
    wait_for(lambda: cluster.waiting("waits") == 'configmap "late" not found', 60, "what is missing is said")
    cluster.create("configmaps", "late", data={"k": "v"})
    wait_for(lambda: cluster.phase("waits") == "Running", 20, "it runs as soon as it has come")
    cluster.delete("waits")


def test_a_secret_and_a_token_are_nowhere_but_where_they_belong(cluster: Cluster) -> None:
    agent = cluster.agent
    taps = [tap(agent, name) for name in HOLDERS]
    main, volumes = referring()
    uid = cluster.pod("holder", main, volumes=volumes)
    wait_for(lambda: cluster.phase("holder") == "Running", 60, "it runs with the Secret")
    token = (cluster.volume(uid, "projected", "account") / "token").read_text()
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["kubernetes.io"]["pod"] == {"name": "holder", "uid": uid}
    said = "".join(agent.command("describe", name).stdout for name in HOLDERS)
    agent.kill_actors(*HOLDERS, number=signal.SIGABRT)
    wait_for(agent.all_ready, 40, "every actor is back")
    for one in taps:
        one.terminate()
        said += one.communicate()[0]
    commands = (("objects", "-o", "json"), ("pods", "-o", "json"), ("events", "-o", "json"), ("ps", "-o", "json"))
    said += "".join(agent.command(*command).stdout for command in commands)
    assert "GetObjects" in said
    there = [path for path in files(agent.dir) if on_disk(path, agent.dir)]
    assert agent.log in there
    assert any(path.parent.name == "deaths" for path in there)
    for secret in (CANARY, base64.b64encode(CANARY.encode()).decode(), token, token.rpartition(".")[2]):
        assert secret not in said
        assert holding(there, secret.encode()) == []
    assert (cluster.volume(uid, "secret", "login") / "password").read_text() == CANARY
    cluster.delete("holder")


def on_disk(path: Path, directory: Path) -> bool:
    """Return True when it is in the directory's own file system, not in a pod's tmpfs."""
    try:
        return path.stat().st_dev == directory.stat().st_dev
    except FileNotFoundError:
        return False


def test_a_volume_of_a_driver_by_way_of_a_claim(cluster: Cluster) -> None:
    server, agent = cluster.server, cluster.agent
    storage, persistent = "/apis/storage.k8s.io/v1", "/api/v1/persistentvolumes"
    unique = "kubernetes.io/csi/csi.referrer^vol-1"
    wants = {"attachRequired": True, "podInfoOnMount": True}
    server.call("POST", f"{storage}/csidrivers", {"metadata": {"name": "csi.referrer"}, "spec": wants})
    modes, size = ["ReadWriteOnce"], {"storage": "1Gi"}
    claim_spec = {"accessModes": modes, "volumeName": "referrer-1", "storageClassName": "slow"}
    claim = cluster.create("persistentvolumeclaims", "data", spec={**claim_spec, "resources": {"requests": size}})
    bound = {"phase": "Bound", "capacity": size, "accessModes": modes}
    server.call("PUT", cluster.path("persistentvolumeclaims", "data/status"), claim | {"status": bound})
    by = {"namespace": NAMESPACE, "name": "data", "uid": claim["metadata"]["uid"]}
    source = {"driver": "csi.referrer", "volumeHandle": "vol-1", "volumeAttributes": {"x": "y"}}
    volume = {"capacity": size, "accessModes": modes, "storageClassName": "slow", "claimRef": by, "csi": source}
    server.call("POST", persistent, {"metadata": {"name": "referrer-1"}, "spec": volume})

    def in_use() -> list[str]:
        found: list[str] = server.call("GET", f"/api/v1/nodes/{NODE}")["status"].get("volumesInUse") or []
        return found

    registry, data = agent.root_dir / "plugins_registry", agent.dir / "data"
    with closing(Driver(registry, data, "csi.referrer", capabilities=ALL).start()) as driver:
        wait_for(lambda: csi_drivers(cluster) == {"csi.referrer"}, 60, "the CSINode has the driver")
        script = "echo kept > /v/file && sleep 1000"
        main = container("c", script, volumeMounts=[{"name": "v", "mountPath": "/v"}])
        cluster.pod("stores", main, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
        wait_for(lambda: in_use() == [unique], 60, "the Node says what is in use before it is there")
        attachment = attachment_name("vol-1", "csi.referrer", NODE)
        wanted = {"attacher": "csi.referrer", "nodeName": NODE, "source": {"persistentVolumeName": "referrer-1"}}
        server.call("POST", f"{storage}/volumeattachments", {"metadata": {"name": attachment}, "spec": wanted})
        merge = "application/merge-patch+json"
        path = f"{storage}/volumeattachments/{attachment}"
        server.call("PATCH", f"{path}/status", {"status": {"attached": True}}, merge)
        listed = {"status": {"volumesAttached": [{"name": unique, "devicePath": ""}]}}
        server.call("PATCH", f"/api/v1/nodes/{NODE}/status", listed, merge)
        wait_for(lambda: cluster.phase("stores") == "Running", 60, "it is attached, mounted, used")
        wait_for((data / "vol-1/file").exists, 30, "the container has written")
        said = driver.of("NodePublishVolume")[0].volume_context
        assert (said["x"], said["csi.storage.k8s.io/pod.name"]) == ("y", "stores")
        server.call("PATCH", f"{persistent}/referrer-1", {"spec": {"capacity": {"storage": "2Gi"}}}, merge)

        def told() -> str:
            status = server.call("GET", cluster.path("persistentvolumeclaims", "data"))["status"]
            return str(status["capacity"]["storage"])

        wait_for(lambda: told() == "2Gi", 60, "the claim says that it has grown")
        assert [one.capacity_range.required_bytes for one in driver.of("NodeExpandVolume")] == [2 << 30]
        cluster.delete("stores")
        wait_for(lambda: in_use() == [], 30, "it is in use no more")
        assert len(driver.of("NodeUnstageVolume")) == 1
    wait_for(lambda: csi_drivers(cluster) == set(), 60, "and the driver has gone")


def test_in_tree_volumes_are_mounted_by_their_csi_drivers(cluster: Cluster) -> None:
    server, agent = cluster.server, cluster.agent
    ebs, share = "ebs.csi.aws.com", "file.csi.azure.com"
    for name in (ebs, share):
        wants = {"attachRequired": False, "podInfoOnMount": True}
        server.call("POST", "/apis/storage.k8s.io/v1/csidrivers", {"metadata": {"name": name}, "spec": wants})
    modes, size = ["ReadWriteOnce"], {"storage": "1Gi"}
    claim_spec = {"accessModes": modes, "volumeName": "in-tree-1", "storageClassName": "slow"}
    claim = cluster.create("persistentvolumeclaims", "disk", spec={**claim_spec, "resources": {"requests": size}})
    bound = {"phase": "Bound", "capacity": size, "accessModes": modes}
    server.call("PUT", cluster.path("persistentvolumeclaims", "disk/status"), claim | {"status": bound})
    by = {"namespace": NAMESPACE, "name": "disk", "uid": claim["metadata"]["uid"]}
    source = {"volumeID": "aws://zone-1/vol-7", "partition": 1}
    volume = {"capacity": size, "accessModes": modes, "storageClassName": "slow", "claimRef": by}
    labels = {"topology.kubernetes.io/zone": "zone-1"}
    document = {"metadata": {"name": "in-tree-1", "labels": labels}, "spec": volume | {"awsElasticBlockStore": source}}
    server.call("POST", "/api/v1/persistentvolumes", document)
    cluster.create("secrets", "account", stringData={"azurestorageaccountname": "acct"})
    registry, data = agent.root_dir / "plugins_registry", agent.dir / "data"
    zone = {"topology.ebs.csi.aws.com/zone": "zone-1"}
    with (
        closing(Driver(registry, data, ebs, capabilities=ALL, topology=zone).start()) as disks,
        closing(Driver(registry, data, share, capabilities=ALL, topology={}).start()) as shares,
    ):
        wait_for(lambda: csi_drivers(cluster) == {ebs, share}, 60, "the CSINode has the drivers")
        notes = server.call("GET", f"/apis/storage.k8s.io/v1/csinodes/{NODE}")["metadata"]["annotations"]
        announced = notes["storage.alpha.kubernetes.io/migrated-plugins"].split(",")
        assert {"kubernetes.io/aws-ebs", "kubernetes.io/azure-file"} <= set(announced)
        places = [{"name": "disk", "mountPath": "/d"}, {"name": "share", "mountPath": "/s"}]
        main = container("c", "echo kept > /d/file && cat /s/given > /d/copy && sleep 1000", volumeMounts=places)
        (data / "#account#given#share#referrer").mkdir(parents=True)
        (data / "#account#given#share#referrer/given").write_text("shared")
        volumes = [
            {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}},
            {"name": "share", "azureFile": {"secretName": "account", "shareName": "given", "readOnly": True}},
        ]
        cluster.pod("migrated", main, volumes=volumes)
        wait_for(lambda: cluster.phase("migrated") == "Running", 60, "it has both volumes")
        wait_for((data / "vol-7/copy").exists, 30, "the container has written")
        assert dict(disks.of("NodePublishVolume")[0].volume_context)["partition"] == "1"
        assert dict(shares.of("NodeStageVolume")[0].secrets) == {"azurestorageaccountname": "acct"}
        assert shares.of("NodePublishVolume")[0].readonly
        cluster.delete("migrated")
        wait_for(lambda: len(disks.of("NodeUnstageVolume")) == 1, 30, "the disk is unstaged")
        wait_for(lambda: len(shares.of("NodeUnstageVolume")) == 1, 30, "the share is unstaged")
    wait_for(lambda: csi_drivers(cluster) == set(), 60, "and the drivers have gone")


def csi_drivers(cluster: Cluster) -> set[str]:
    found = cluster.server.get(f"/apis/storage.k8s.io/v1/csinodes/{NODE}") or {"spec": {}}
    return {one["name"] for one in found["spec"].get("drivers") or ()}

"""CSI volumes as containers see them: through a driver that really mounts, with kills of driver and volume actor."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors._host.files.mounts import mounts_under
from actors.volume.csi import staged
from proto.agent.actor import Describe
from tests.agent.agent import Agent, container, pod
from tests.agent.faults import Eye
from tests.containerd import ContainerdInstance
from tests.harness import wait_for
from tests.volume.csi.csi_driver import Driver, Fault
from tests.volume.devices import loop_device, loops_below

pytestmark = pytest.mark.timeout(300)

CANARY = "c4n4ry-of-the-csi-secret"


def objects() -> list[dict[str, Any]]:
    storage, secret = "storage.k8s.io/v1", {"name": "login", "namespace": "default"}
    driver = {"attachRequired": False, "fsGroupPolicy": "File", "volumeLifecycleModes": ["Persistent", "Ephemeral"]}
    source = {"driver": "csi.test", "volumeHandle": "vol-1", "nodeStageSecretRef": secret}
    size = {"storage": "1Gi"}
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": "slow"}
    raw = {**common, "volumeMode": "Block"}
    return [
        {"apiVersion": storage, "kind": "CSIDriver", "metadata": {"name": "csi.test"}, "spec": driver},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}, "stringData": {"password": CANARY}},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "pv-1"},
            "spec": {**common, "capacity": size, "csi": source},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data"},
            "spec": {**common, "volumeName": "pv-1", "resources": {"requests": size}},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "pv-raw"},
            "spec": {**raw, "capacity": size, "csi": {"driver": "csi.test", "volumeHandle": "raw"}},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "raw"},
            "spec": {**raw, "volumeName": "pv-raw", "resources": {"requests": size}},
        },
    ]


@pytest.fixture(scope="module")
def eye(containerd: ContainerdInstance) -> Iterator[Eye]:
    with closing(Agent(containerd)) as agent:
        directory = agent.dir / "objects"
        directory.mkdir()
        (directory / "all.yaml").write_text(yaml.safe_dump_all(objects()))
        agent.start("--objects-dir", str(directory))
        eye = Eye(agent)
        with closing(eye.client):
            yield eye


@pytest.fixture
def driver(eye: Eye) -> Iterator[Driver]:
    one = Driver(eye.agent.root_dir / "plugins_registry", eye.agent.dir / "data").start()
    registered(eye)
    yield one
    one.close()
    wait_for(lambda: not drivers(eye), 30, "it is known to be gone, and is not taken for the next test's")


def drivers(eye: Eye) -> Any:
    return eye.client.ask("volume", Describe(), 5).state["csi"]["drivers"]


def registered(eye: Eye) -> None:
    wait_for(lambda: drivers(eye), 30, "the driver is registered")


def with_claim(name: str, script: str, **spec: Any) -> dict[str, Any]:
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "data", **spec.pop("claim", {})}}
    inline = {"name": "i", "csi": {"driver": "csi.test", "volumeAttributes": {"a": "b"}}}
    mounts = [
        {"name": "v", "mountPath": "/v"},
        {"name": "v", "mountPath": "/part", "subPath": "part"},
        {"name": "i", "mountPath": "/i"},
    ]
    main = container("c", script, volumeMounts=spec.pop("mounts", mounts))
    return pod(name, main, volumes=[claim, inline], restartPolicy="Never", **spec)


def phase(eye: Eye, name: str) -> str:
    found = eye.pods().get(name)
    return (found.status.phase or "") if found is not None and found.status is not None else ""


def gone(eye: Eye, *names: str) -> None:
    for name in names:
        (eye.agent.manifests / f"{name}.yaml").unlink()
    wait_for(lambda: not set(names) & set(eye.pods()), 60, f"{names} are gone")
    unstaged(eye)


def unstaged(eye: Eye) -> None:
    """Wait for the records, which outlive the mounts: until the driver has answered, the actor repeats the call."""
    wait_for(lambda: not staged.find(str(eye.agent.root_dir)).volumes, 30, "nothing is staged any more")


def test_pods_write_and_read_what_a_driver_serves(eye: Eye, driver: Driver) -> None:
    writes = "id -g; touch /i/own && echo x > /v/file && echo y > /part/file && sleep 1000"
    user = {"securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 4321}}
    eye.agent.write("writer", with_claim("writer", writes, **user))
    wait_for((driver.data / "vol-1/part/file").exists, 60, "the pod has written")
    assert (driver.data / "vol-1/file").read_text() == "x\n"
    assert (driver.data / "vol-1/file").stat().st_uid == 1000
    assert (driver.data / "vol-1").stat().st_gid == 4321
    reads = "[ $(cat /v/file) = x ] && [ $(cat /v/part/file) = y ] && ! touch /v/new"
    mounts = [{"name": "v", "mountPath": "/v"}]
    eye.agent.write("reader", with_claim("reader", reads, mounts=mounts, claim={"readOnly": True}))
    wait_for(lambda: phase(eye, "reader") == "Succeeded", 60, "another pod has read, and could not write")
    assert len(driver.of("NodeStageVolume")) == 1, "one volume, two pods"
    assert dict(driver.of("NodeStageVolume")[0].secrets) == {"password": CANARY}
    gone(eye, "writer", "reader")
    assert driver.names()[-1] in ("NodeUnstageVolume", "NodeUnpublishVolume")
    assert len(driver.of("NodeUnstageVolume")) == 1
    assert (driver.data / "vol-1/file").read_text() == "x\n"
    assert CANARY not in eye.agent.log.read_text()


def test_a_pod_writes_to_the_raw_device_of_a_driver(eye: Eye, driver: Driver, tmp_path: Path) -> None:
    with loop_device(tmp_path / "disk") as device:
        driver.devices["raw"] = device
        claim = {"name": "v", "persistentVolumeClaim": {"claimName": "raw"}}
        script = "echo of-the-pod > /dev/xvda && sync && sleep 1000"
        main = container("c", script, volumeDevices=[{"name": "v", "devicePath": "/dev/xvda"}])
        eye.agent.write("raw", pod("raw", main, volumes=[claim]))
        wait_for(lambda: Path(device).read_bytes()[:10] == b"of-the-pod", 60, "the pod has written")
        wait_for(lambda: phase(eye, "raw") == "Running", 30, "and is shown to run")
        eye.agent.kill_actors("volume")
        assert phase(eye, "raw") == "Running"
        assert driver.names() == ["NodeStageVolume", "NodePublishVolume"]
        gone(eye, "raw")
        ends = ["NodeUnpublishVolume", "NodeUnstageVolume"]
        wait_for(lambda: driver.names()[2:] == ends, 30, "it is unstaged, for which its pod does not wait")
        wait_for(lambda: loops_below(eye.agent.root_dir) == {}, 20, "no loop device is left")


def test_kills_of_the_actor_and_restarts_of_the_driver(eye: Eye, driver: Driver) -> None:
    driver.faults["NodePublishVolume"] = Fault(hang=True)
    mounts = [{"name": "v", "mountPath": "/v"}]
    eye.agent.write("killed", with_claim("killed", "cat /v/kept && sleep 1000", mounts=mounts))
    Path(driver.data, "vol-1").mkdir(parents=True, exist_ok=True)
    Path(driver.data, "vol-1/kept").write_text("x")
    wait_for(lambda: driver.of("NodePublishVolume"), 60, "it is staged, and about to be published")
    driver.faults.clear()  # first: the next incarnation may ask at once
    eye.signal("volume", signal.SIGKILL)
    wait_for(lambda: phase(eye, "killed") == "Running", 90, "the next incarnation publishes it")
    driver.stop()
    eye.agent.kill_actors("volume")
    assert phase(eye, "killed") == "Running", "a pod that has its volume does without the driver"
    (eye.agent.manifests / "killed.yaml").unlink()
    wait_for(lambda: not eye.agent.running(), 60, "its container ends")
    assert mounts_under(f"{eye.agent.root_dir}/pods"), "the volume waits for its driver"
    driver.start()
    wait_for(lambda: "killed" not in eye.pods(), 90, "it is gone once the driver is back")
    unstaged(eye)
    assert Path(driver.data, "vol-1/kept").read_text() == "x"

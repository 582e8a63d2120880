"""CSI through the volume process: volumes come, change and go; drivers hang; the process is killed in between."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors._host.files.mounts import mounts_under
from actors.volume.csi import staged
from actors.volume.steps.csi import Staged
from proto.agent.actor import Describe
from proto.pods.events import RecordEvent
from proto.pods.objects import ApiObject, GetObjects, ObjectRef, Objects
from proto.pods.pod_workers import VolumesMounted
from proto.pods.volume import GetVolumeUsages, MountPod, ObjectsChanged, UnmountPod
from proto.v1 import CSIVolumeSource, PersistentVolumeClaimVolumeSource, Pod, Volume
from proto.wire.errors import ActorError, Refused
from tests.harness import ActorProcess, Stalls, wait_for
from tests.volume.csi.csi_driver import ALL, Driver, Fault, bound
from tests.volume.test_actor import UID, empty, pod

QUICK = (
    "import grpc; from proto.plugins import csi_pb2; from actors.volume import csi; "
    "from actors.volume.csi import driver, registration; from actors.volume.reconcile import mounter, publisher; "
    "from actors.volume.drivers import registry; registry.CONNECT_S = 60.0; "
    "mounter.PATIENCE_S = 5.0; registration.MEET_S = 3.0; "
    "driver.Plugin.node.__defaults__ = driver.Plugin.capabilities.__defaults__ = (30.0,); publisher.REPUBLISH_S = 0.5; "
    "from actors.volume import actor; actor.SCAN_S = 60.0\n"
)
"""Shorter deadlines, longer than a busy machine's pauses; the one of a connection is longer. The forkserver has loaded
the imports for every actor."""

DOCUMENTS: dict[tuple[str, str], dict[str, Any]] = {
    ("CSIDriver", "csi.test"): {
        "spec": {
            "attachRequired": False,
            "podInfoOnMount": True,
            "volumeLifecycleModes": ["Persistent", "Ephemeral"],
        }
    },
    ("CSIDriver", "csi.again"): {"spec": {"attachRequired": False, "requiresRepublish": True}},
    ("CSIDriver", "csi.tokens"): {"spec": {"attachRequired": False, "tokenRequests": [{"audience": "a"}]}},
    ("PersistentVolumeClaim", "data"): {"spec": {"volumeName": "pv-1"}},
    ("PersistentVolumeClaim", "once"): {"spec": {"volumeName": "pv-once"}},
    ("PersistentVolumeClaim", "again"): {"spec": {"volumeName": "pv-again"}},
    ("PersistentVolumeClaim", "attached"): {"spec": {"volumeName": "pv-attached"}},
    ("PersistentVolumeClaim", "tokens"): {"spec": {"volumeName": "pv-tokens"}},
    ("PersistentVolume", "pv-1"): {
        "spec": {
            "csi": {
                "driver": "csi.test",
                "volumeHandle": "vol-1",
                "volumeAttributes": {"a": "b"},
                "nodeStageSecretRef": {"name": "s", "namespace": "default"},
            }
        }
    },
    ("PersistentVolume", "pv-once"): {
        "spec": {"accessModes": ["ReadWriteOncePod"], "csi": {"driver": "csi.test", "volumeHandle": "vol-2"}}
    },
    ("PersistentVolume", "pv-again"): {
        "spec": {
            "csi": {
                "driver": "csi.again",
                "volumeHandle": "vol-1",
                "nodePublishSecretRef": {"name": "s", "namespace": "default"},
            }
        }
    },
    ("PersistentVolume", "pv-attached"): {"spec": {"csi": {"driver": "csi.attached", "volumeHandle": "vol-1"}}},
    ("PersistentVolume", "pv-tokens"): {"spec": {"csi": {"driver": "csi.tokens", "volumeHandle": "vol-1"}}},
}


def objects(request: GetObjects) -> Objects:
    found, missing = [], []
    for ref in request.refs:
        if ref.kind == "Secret":
            found.append(ApiObject(ref=ref, resource_version="1", data={"key": b"secret-canary"}))
        elif (ref.kind, ref.name) in DOCUMENTS:
            document = {"metadata": {"name": ref.name}, **DOCUMENTS[ref.kind, ref.name]}
            found.append(ApiObject(ref=ref, resource_version="1", document=document))
        elif ref.name:
            missing.append(ref)
    return Objects(found=tuple(found), missing=tuple(missing))


@pytest.fixture
def actor() -> Iterator[ActorProcess]:
    peers = ("pod_workers", "objects", "events")
    with ActorProcess("volume", None, peers, prelude=QUICK, objects_dir="/objects") as process:
        process.peers["objects"].answers[GetObjects] = objects
        yield process
        assert mounts_under(process.dir) == []


def new_driver(actor: ActorProcess, name: str = "csi.test", **fields: Any) -> Driver:
    root = Path(actor.settings.root_dir)
    return Driver(root / "plugins_registry", Path(actor.dir) / "data", name, **fields)


@pytest.fixture
def driver(actor: ActorProcess) -> Iterator[Driver]:
    one = new_driver(actor).start()
    registered(actor, one)
    yield one
    one.close()


def described(actor: ActorProcess) -> dict[str, Any]:
    state: dict[str, Any] = actor.ask(Describe()).state["csi"]
    return state


def registered(actor: ActorProcess, driver: Driver) -> None:
    wait_for(lambda: driver.name in described(actor)["drivers"], 20, f"{driver.name} is registered")


def claim(name: str = "data", volume: str = "v", **fields: Any) -> Volume:
    return Volume(name=volume, persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name=name, **fields))


def in_default(*volumes: Volume, uid: str = UID) -> Pod:
    one = pod(*volumes, uid=uid)
    from msgspec.structs import replace  # noqa: PLC0415

    return replace(one, metadata=replace(one.metadata, name="p", namespace="default"))


def inline(name: str = "i", **fields: Any) -> Volume:
    return Volume(name=name, csi=CSIVolumeSource(driver="csi.test", **fields))


def retry_forbidden(actor: ActorProcess, request: Any) -> Any:
    """Repeats the request until it succeeds, as pod_workers does, and waits until no unused volume is staged."""

    def done() -> Any:
        try:
            return (actor.ask(request),)
        except ActorError:
            time.sleep(0.05)
            return None

    (answer,) = wait_for(done, 40, f"{type(request).__name__}")
    if isinstance(request, UnmountPod):
        wait_for(lambda: unused(actor) == (), 20, "its volumes are unstaged")
    return answer


def unused(actor: ActorProcess) -> tuple[Staged, ...]:
    root = actor.settings.root_dir
    return staged.unused(root, staged.find(root).volumes)


def refused(actor: ActorProcess, request: Any) -> str:
    with pytest.raises(Refused) as caught:
        actor.ask(request)
    return caught.value.message


@pytest.mark.needs("mounts")
def test_claims_and_inline_volumes_come_and_go(actor: ActorProcess, driver: Driver) -> None:
    driver.capabilities = (*driver.capabilities, "GET_VOLUME_STATS")
    spec = in_default(claim(), inline(volume_attributes={"x": "y"}), empty("e"))
    paths = retry_forbidden(actor, MountPod(pod=spec)).host_paths
    base = f"{actor.settings.root_dir}/pods/{UID}/volumes/kubernetes.io~csi"
    assert (paths["v"], paths["i"]) == (f"{base}/pv-1/mount", f"{base}/i/mount")
    Path(paths["v"], "file").write_text("x")
    assert (driver.data / "vol-1/file").read_text() == "x"
    (stage,) = driver.of("NodeStageVolume")
    assert (dict(stage.secrets), dict(stage.volume_context)) == ({"key": "secret-canary"}, {"a": "b"})
    publications = {request.volume_id: dict(request.volume_context) for request in driver.of("NodePublishVolume")}
    ephemeral = next(context for handle, context in publications.items() if handle.startswith("csi-"))
    assert publications["vol-1"]["csi.storage.k8s.io/pod.name"] == "p"
    assert publications["vol-1"]["csi.storage.k8s.io/ephemeral"] == "false"
    assert (ephemeral["csi.storage.k8s.io/ephemeral"], ephemeral["x"]) == ("true", "y")
    (usage,) = actor.ask(GetVolumeUsages(), 25).pods  # a niced helper for each driver's volume
    assert {one.name: one.capacity_bytes for one in usage.volumes} == {"v": 1000, "i": 1000, "e": 0}
    actor.restart()
    registered(actor, driver)
    before = len(driver.calls)
    assert retry_forbidden(actor, MountPod(pod=spec)).host_paths == paths
    assert driver.names()[before:] == [], "what is there is found, and left alone"
    assert "NodePublishVolume" not in [name for name, _ in driver.calls[before:]]
    retry_forbidden(actor, UnmountPod(pod_uid=UID))
    assert driver.names().count("NodeUnpublishVolume") == 2
    assert driver.names().count("NodeUnstageVolume") == 1
    assert (driver.data / "vol-1/file").read_text() == "x"
    assert list(Path(actor.settings.root_dir, "pods", UID).iterdir()) == []


@pytest.mark.parametrize("record", ["whole", "damaged"])
@pytest.mark.needs("mounts")
def test_a_volume_for_one_pod_stays_its_own_after_a_kill(actor: ActorProcess, driver: Driver, record: str) -> None:
    spec, others = in_default(claim("once")), in_default(claim("once"), uid="other")
    path = retry_forbidden(actor, MountPod(pod=spec)).host_paths["v"]
    if record == "damaged":
        Path(path).with_name("vol_data.json").write_text("{")
    for _ in range(2):
        actor.restart()
        registered(actor, driver)
        assert "uses the ReadWriteOncePod access mode and is already in use" in refused(actor, MountPod(pod=others))
        assert retry_forbidden(actor, MountPod(pod=spec)).host_paths == {"v": path}
    retry_forbidden(actor, UnmountPod(pod_uid=UID))
    assert bound(retry_forbidden(actor, MountPod(pod=others)).host_paths["v"])
    retry_forbidden(actor, UnmountPod(pod_uid="other"))


@pytest.mark.needs("mounts")
def test_inline_volume_does_not_hold_a_volume_of_its_name(actor: ActorProcess, driver: Driver) -> None:
    retry_forbidden(actor, MountPod(pod=in_default(inline("pv-once"))))
    actor.restart()
    registered(actor, driver)
    retry_forbidden(actor, MountPod(pod=in_default(claim("once"), uid="other")))
    for uid in (UID, "other"):
        retry_forbidden(actor, UnmountPod(pod_uid=uid))


@pytest.mark.parametrize("rpc", ["NodeStageVolume", "NodePublishVolume"])
@pytest.mark.needs("mounts")
def test_kill_between_csi_calls_is_continued_or_undone(actor: ActorProcess, driver: Driver, rpc: str) -> None:
    driver.faults[rpc] = Fault(hang=True)
    for goes_on in (True, False):
        calls = len(driver.of(rpc))
        actor.tell(MountPod(pod=in_default(claim())))
        wait_for(lambda calls=calls: len(driver.of(rpc)) > calls, what=f"{rpc} is under way")
        actor.restart()
        registered(actor, driver)
        if goes_on:
            driver.faults.clear()
            paths = retry_forbidden(actor, MountPod(pod=in_default(claim()))).host_paths
            assert bound(paths["v"])
            driver.faults[rpc] = Fault(hang=True)
        retry_forbidden(actor, UnmountPod(pod_uid=UID))
        assert mounts_under(actor.dir) == []
        assert list(Path(actor.settings.root_dir, "pods", UID).iterdir()) == []


@pytest.mark.needs("mounts")
def test_a_silent_driver_holds_up_its_own_volume_only(actor: ActorProcess, driver: Driver) -> None:
    driver.faults["NodePublishVolume"] = Fault(hang=True)
    message = refused(actor, MountPod(pod=in_default(claim(), empty("e"))))
    assert "unmounted volumes=[v]" in message
    assert 'volume "v" has not answered for ' in message
    assert events(actor) == [], "a slow driver is no failure yet"
    began = time.monotonic()
    with Stalls() as machine:
        actor.ask(MountPod(pod=in_default(empty("e"), uid="other")))
        actor.ask(UnmountPod(pod_uid="other"))
    assert time.monotonic() - began < 1.0 + machine.longest_s
    driver.faults.clear()
    driver.release.set()
    told = actor.peers["pod_workers"]
    wait_for(lambda: told.of(VolumesMounted), 30, "pod_workers hears that it is there")
    assert set(retry_forbidden(actor, MountPod(pod=in_default(claim(), empty("e")))).host_paths) == {"v", "e"}
    driver.faults["NodeUnpublishVolume"] = Fault("INTERNAL")
    assert "UnmountVolume.TearDown failed" in refused(actor, UnmountPod(pod_uid=UID))
    driver.faults.clear()
    retry_forbidden(actor, UnmountPod(pod_uid=UID))


@pytest.mark.needs("mounts")
def test_failing_unstage_does_not_hold_up_pods(actor: ActorProcess, driver: Driver) -> None:
    retry_forbidden(actor, MountPod(pod=in_default(claim())))
    driver.faults["NodeUnstageVolume"] = Fault("INVALID_ARGUMENT")
    actor.ask(UnmountPod(pod_uid=UID))
    assert list(Path(actor.settings.root_dir, "pods", UID).iterdir()) == []
    wait_for(lambda: len(driver.of("NodeUnstageVolume")) > 1, 20, "it is tried again and again")
    error = actor.ask(Describe()).state["unstaging"]["vol-1"]
    assert error == "rpc error: code = InvalidArgument desc = NodeUnstageVolume was told to fail"
    path = retry_forbidden(actor, MountPod(pod=in_default(claim(), uid="new"))).host_paths["v"]
    wait_for(lambda: actor.ask(Describe()).state["unstaging"] == {}, 20, "it is in use again")
    assert bound(path)
    assert driver.names()[-2:] == ["NodeStageVolume", "NodePublishVolume"]
    driver.faults.clear()
    retry_forbidden(actor, UnmountPod(pod_uid="new"))
    assert driver.names()[-2:] == ["NodeUnpublishVolume", "NodeUnstageVolume"]


@pytest.mark.needs("mounts")
def test_staged_volume_is_unstaged_after_a_kill(actor: ActorProcess, driver: Driver) -> None:
    retry_forbidden(actor, MountPod(pod=in_default(claim())))
    driver.faults["NodeUnstageVolume"] = Fault(hang=True)
    actor.ask(UnmountPod(pod_uid=UID))
    wait_for(lambda: driver.of("NodeUnstageVolume"), 20, "it is being unstaged")
    assert len(unused(actor)) == 1
    driver.stop()
    actor.restart()
    driver.faults.clear()
    driver.release.set()
    driver.start()
    wait_for(lambda: unused(actor) == (), 20, "it is unstaged once its driver is registered")
    assert driver.names()[-1] == "NodeUnstageVolume"


@pytest.mark.needs("mounts")
def test_volumes_of_one_name_in_a_pod_are_not_mixed_up(actor: ActorProcess, driver: Driver) -> None:
    message = refused(actor, MountPod(pod=in_default(claim(), inline("pv-1"))))
    assert 'volume "v" of the pod has the same name: pv-1' in message
    wait_for(lambda: driver.of("NodePublishVolume"), 20, "the first one is mounted")
    assert {one.volume_id for one in driver.of("NodePublishVolume")} == {"vol-1"}
    retry_forbidden(actor, UnmountPod(pod_uid=UID))
    assert driver.names()[-2:] == ["NodeUnpublishVolume", "NodeUnstageVolume"]


@pytest.mark.needs("mounts")
def test_endless_error_of_a_driver_is_cut(actor: ActorProcess, driver: Driver) -> None:
    driver.faults["NodeStageVolume"] = Fault(code="INVALID_ARGUMENT", message="e" * 4000 + "m" * 7000)
    said = refused(actor, MountPod(pod=in_default(claim())))
    assert "desc = eee" in said
    assert len(said) < 5000


@pytest.mark.needs("mounts")
def test_what_needs_an_api_server_is_refused_with_the_reason(actor: ActorProcess) -> None:
    drivers = [new_driver(actor, name).start() for name in ("csi.attached", "csi.tokens", "csi.again")]
    try:
        for one in drivers:
            registered(actor, one)
        message = refused(actor, MountPod(pod=in_default(claim("attached"))))
        assert 'MountVolume.WaitForAttach failed for volume "pv-attached" : volumeattachments.storage' in message
        assert "attachRequired: false" in message
        message = refused(actor, MountPod(pod=in_default(claim("tokens"), uid="tokens")))
        assert "requests service account tokens" in message
        retry_forbidden(actor, MountPod(pod=in_default(claim("again"), uid="again")))
        wait_for(lambda: len(drivers[2].of("NodePublishVolume")) > 2, 20, "it is published again and again")
        retry_forbidden(actor, UnmountPod(pod_uid="again"))
        asked = {ref for one in actor.peers["objects"].of(GetObjects) for ref in one.refs}
        assert ObjectRef(kind="CSIDriver", name="csi.attached") in asked
    finally:
        for one in drivers:
            one.close()


DRIVER, SECRET = ObjectRef(kind="CSIDriver", name="csi.again"), ObjectRef(kind="Secret", namespace="default", name="s")


def goes_on(driver: Driver, what: str) -> None:
    calls = len(driver.of("NodePublishVolume"))
    wait_for(lambda: len(driver.of("NodePublishVolume")) > calls + 1, 20, f"it is published again {what}")


@pytest.mark.needs("mounts")
def test_repeated_publication_goes_on_after_all_that_happens(actor: ActorProcess) -> None:
    spec, driver = in_default(claim("again")), new_driver(actor, "csi.again").start()
    try:
        registered(actor, driver)
        retry_forbidden(actor, MountPod(pod=spec))
        goes_on(driver, "and again")
        actor.tell(ObjectsChanged(full=True))
        goes_on(driver, "after a change")
        driver.faults["NodePublishVolume"] = Fault("INTERNAL")
        goes_on(driver, "after a failure")
        driver.faults.clear()
        wait_for(lambda: not actor.ask(Describe()).state["failed"], 20, "it succeeds again")
        goes_on(driver, "after its recovery")
        actor.restart()
        retry_forbidden(actor, MountPod(pod=spec))
        goes_on(driver, "after a restart, also before its driver has registered")
        wait_for(lambda: not actor.ask(Describe()).state["failed"], 20, "and there is no error left")
        retry_forbidden(actor, UnmountPod(pod_uid=UID))
    finally:
        driver.close()


@pytest.mark.parametrize("changed", [DRIVER, SECRET])
@pytest.mark.needs("mounts")
def test_changed_secret_or_driver_is_published_at_once(changed: ObjectRef) -> None:
    prelude = QUICK.replace("REPUBLISH_S = 0.5", "REPUBLISH_S = 3600.0")
    with ActorProcess("volume", None, ("pod_workers", "objects"), prelude=prelude, objects_dir="/objects") as actor:
        actor.peers["objects"].answers[GetObjects] = objects
        driver = new_driver(actor, "csi.again").start()
        try:
            registered(actor, driver)
            retry_forbidden(actor, MountPod(pod=in_default(claim("again"))))
            for calls in (1, 2):
                actor.tell(ObjectsChanged(refs=(changed,)))
                wait_for(lambda calls=calls: len(driver.of("NodePublishVolume")) > calls, 20, "it is published")
            retry_forbidden(actor, UnmountPod(pod_uid=UID))
        finally:
            driver.close()


@pytest.mark.needs("mounts")
def test_driver_that_begins_or_ends_to_want_publications_gets_them(actor: ActorProcess) -> None:
    wants = DOCUMENTS["CSIDriver", "csi.again"]["spec"]
    driver = new_driver(actor, "csi.again").start()
    try:
        registered(actor, driver)
        wants["requiresRepublish"] = False
        retry_forbidden(actor, MountPod(pod=in_default(claim("again"))))
        assert len(driver.of("NodePublishVolume")) == 1
        wants["requiresRepublish"] = True
        actor.tell(ObjectsChanged(refs=(DRIVER,)))
        goes_on(driver, "once its CSIDriver says so")
        wants["requiresRepublish"] = False
        actor.tell(ObjectsChanged(refs=(DRIVER,)))

        def quiet() -> bool:
            calls = len(driver.of("NodePublishVolume"))
            time.sleep(1.2)  # more than twice the period
            return len(driver.of("NodePublishVolume")) == calls

        wait_for(quiet, 20, "no call comes any more")
        retry_forbidden(actor, UnmountPod(pod_uid=UID))
    finally:
        wants["requiresRepublish"] = True
        driver.close()


GROWN = "FileSystemResizeSuccessful"


def events(actor: ActorProcess) -> list[RecordEvent]:
    return actor.peers["events"].of(RecordEvent)


@pytest.mark.needs("mounts")
def test_a_volume_that_grew_is_expanded_while_it_is_mounted(actor: ActorProcess, driver: Driver) -> None:
    driver.capabilities = ALL
    document = DOCUMENTS["PersistentVolume", "pv-1"]
    try:
        document["spec"]["capacity"] = {"storage": "1Ki"}
        retry_forbidden(actor, MountPod(pod=in_default(claim())))
        assert driver.of("NodeExpandVolume") == []
        document["spec"]["capacity"] = {"storage": "4Ki"}
        actor.tell(ObjectsChanged(refs=(ObjectRef(kind="PersistentVolume", name="pv-1"),)))
        (request,) = wait_for(lambda: driver.of("NodeExpandVolume"), 20, "it is expanded")
        assert request.capacity_range.required_bytes == 4096
        text = 'MountVolume.NodeExpandVolume succeeded for volume "pv-1" node'
        told = lambda: [(one.involved.kind, one.message) for one in events(actor) if one.reason == GROWN]  # noqa: E731
        wait_for(lambda: len(told()) == 2, 20, "pod and claim are told")
        assert told() == [("Pod", text), ("PersistentVolumeClaim", text)]
    finally:
        del document["spec"]["capacity"]
    retry_forbidden(actor, UnmountPod(pod_uid=UID))


@pytest.mark.needs("mounts")
def test_claim_in_the_objects_directory_grows_once(actor: ActorProcess, driver: Driver) -> None:
    driver.capabilities = ALL
    volume, document = DOCUMENTS["PersistentVolume", "pv-1"], DOCUMENTS["PersistentVolumeClaim", "data"]
    sizes = lambda: [one.capacity_range.required_bytes for one in driver.of("NodeExpandVolume")]  # noqa: E731
    told = lambda: len([one for one in events(actor) if one.reason == GROWN])  # noqa: E731

    def look() -> None:
        looks = len(actor.peers["objects"].of(GetObjects))
        actor.tell(ObjectsChanged(refs=(ObjectRef(kind="PersistentVolume", name="pv-1"),)))
        wait_for(lambda: len(actor.peers["objects"].of(GetObjects)) > looks, 20, "it is looked at again")

    try:
        volume["spec"]["capacity"], document["status"] = {"storage": "2Ki"}, {"capacity": {"storage": "1Ki"}}
        retry_forbidden(actor, MountPod(pod=in_default(claim())))
        look()
        look()
        assert sizes() == [2048]
        volume["spec"]["capacity"] = {"storage": "4Ki"}
        look()
        wait_for(lambda: told() == 4, 20, "it grows with its volume")
        look()
        look()
        assert (sizes(), told()) == ([2048, 4096], 4), "pod and claim are told of each growth"
    finally:
        del volume["spec"]["capacity"]
        del document["status"]
    retry_forbidden(actor, UnmountPod(pod_uid=UID))


@pytest.mark.needs("mounts")
def test_change_during_a_drivers_call_counts_after_it(actor: ActorProcess, driver: Driver) -> None:
    driver.capabilities, document = ALL, DOCUMENTS["PersistentVolume", "pv-1"]
    sizes = lambda: [one.capacity_range.required_bytes for one in driver.of("NodeExpandVolume")]  # noqa: E731

    def grow_to(size: str) -> None:
        document["spec"]["capacity"] = {"storage": size}
        actor.tell(ObjectsChanged(refs=(ObjectRef(kind="PersistentVolume", name="pv-1"),)))
        wait_for(lambda: not actor.ask(Describe()).state["busy"], 20, "it is looked at")

    try:
        document["spec"]["capacity"] = {"storage": "1Ki"}
        retry_forbidden(actor, MountPod(pod=in_default(claim())))
        driver.faults["NodeExpandVolume"] = Fault(hang=True)
        grow_to("2Ki")
        wait_for(lambda: sizes() == [2048], 20, "the driver is called")
        driver.faults.clear()
        grow_to("4Ki")
        driver.release.set()
        wait_for(lambda: sizes() == [2048, 4096], 20, "it grows to its last size")
    finally:
        del document["spec"]["capacity"]
    retry_forbidden(actor, UnmountPod(pod_uid=UID))

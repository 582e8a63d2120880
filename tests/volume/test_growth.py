"""Claims of a cluster that grow: a driver expands the volume, and the claim's status is reported."""

from __future__ import annotations

import pytest

from proto.agent.actor import Describe
from proto.pods.events import RecordEvent
from proto.pods.objects import GetObjects, ObjectRef, SetClaimCapacity, SetClaimExpansion
from proto.pods.volume import MountPod, ObjectsChanged, UnmountPod
from proto.wire.errors import Refused
from proto.wire.message import Done
from tests.harness import wait_for
from tests.volume.csi.csi_driver import Driver, Fault
from tests.volume.csi.test_csi_actor import claim, in_default, retry_forbidden
from tests.volume.test_actor import UID
from tests.volume.test_with_server import Server, driver, refusal, server

__all__ = ["driver", "server"]  # fixtures


@pytest.mark.needs("mounts")
def test_grown_claim_is_expanded_and_reported_once(server: Server, driver: Driver) -> None:
    server.attached = True
    with pytest.raises(Refused):
        server.actor.ask(MountPod(pod=in_default(claim())))
    server.report()
    retry_forbidden(server.actor, MountPod(pod=in_default(claim())))
    assert driver.of("NodeExpandVolume") == []
    server.documents["PersistentVolume", "pv-1"]["spec"]["capacity"] = {"storage": "2Gi"}
    written = server.actor.peers["objects"]
    wait_for(lambda: written.of(SetClaimCapacity), 20, "the claim is told")
    (wish,) = written.of(SetClaimCapacity)
    assert (wish.namespace, wish.name, wish.capacity) == ("default", "data", "2Gi")
    assert [one.capacity_range.required_bytes for one in driver.of("NodeExpandVolume")] == [2 << 30]
    looks = len(written.of(GetObjects))
    wait_for(lambda: len(written.of(GetObjects)) > looks + 3, 20, "it is looked at again")
    assert len(driver.of("NodeExpandVolume")) == len(written.of(SetClaimCapacity)) == 1
    retry_forbidden(server.actor, UnmountPod(pod_uid=UID))


@pytest.mark.needs("mounts")
def test_claim_of_a_reader_does_not_grow_and_events_say_so(server: Server, driver: Driver) -> None:
    server.attached = True
    reader = claim(read_only=True)
    with pytest.raises(Refused):
        server.actor.ask(MountPod(pod=in_default(reader)))
    server.report()
    retry_forbidden(server.actor, MountPod(pod=in_default(reader)))
    server.documents["PersistentVolume", "pv-1"]["spec"]["capacity"] = {"storage": "2Gi"}
    recorded = server.actor.peers["events"]
    failed = lambda: [one for one in recorded.of(RecordEvent) if one.reason == "FileSystemResizeFailed"]  # noqa: E731
    wait_for(lambda: len(failed()) == 2, 20, "pod and claim are told")
    looks = len(server.actor.peers["objects"].of(GetObjects))
    wait_for(lambda: len(server.actor.peers["objects"].of(GetObjects)) > looks + 3, 20, "it is looked at again")
    assert [one.involved.kind for one in failed()] == ["Pod", "PersistentVolumeClaim"]
    wanted = 'MountVolume.NodeExpandVolume failed for volume "pv-1" requested read-only file system'
    assert {(one.type, one.message) for one in failed()} == {("Warning", wanted)}
    assert driver.of("NodeExpandVolume") == []
    retry_forbidden(server.actor, UnmountPod(pod_uid=UID))


@pytest.mark.parametrize(
    ("code", "phase", "colon"), [("INTERNAL", "NodeResizeError", ": "), ("OUT_OF_RANGE", "NodeResizeInfeasible", "")]
)
@pytest.mark.needs("mounts")
def test_a_driver_that_does_not_let_a_claim_grow(
    server: Server, driver: Driver, code: str, phase: str, colon: str
) -> None:
    server.attached = True
    with pytest.raises(Refused):
        server.actor.ask(MountPod(pod=in_default(claim())))
    server.report()
    retry_forbidden(server.actor, MountPod(pod=in_default(claim())))
    driver.faults["NodeExpandVolume"] = Fault(code)
    server.documents["PersistentVolume", "pv-1"]["spec"]["capacity"] = {"storage": "2Gi"}
    told, events = server.actor.peers["objects"], server.actor.peers["events"]
    wait_for(lambda: phase in [one.phase for one in told.of(SetClaimExpansion)], 20, "the claim is told")
    first, second = told.of(SetClaimExpansion)[:2]
    assert (first.phase, first.message) == ("NodeResizeInProgress", "")
    error = f"Expander.NodeExpand failed to expand the volume {colon}rpc error: code = "
    assert second.message.startswith(f"failed to expand pvc with {error}")
    (event, *_) = wait_for(
        lambda: [one for one in events.of(RecordEvent) if one.reason == "VolumeResizeFailed"], 20, "the pod is told"
    )
    assert event.message.startswith(f'NodeExpandVolume.NodeExpandVolume failed for volume "pv-1" : {error}')
    calls = driver.of("NodeExpandVolume")
    if phase == "NodeResizeError":
        wait_for(lambda: len(driver.of("NodeExpandVolume")) > len(calls), 20, "it is asked again")
        del driver.faults["NodeExpandVolume"]
        wait_for(lambda: told.of(SetClaimCapacity), 20, "in time it grows")
    retry_forbidden(server.actor, UnmountPod(pod_uid=UID))


@pytest.mark.needs("mounts")
def test_driver_that_refuses_growth_is_called_once(server: Server, driver: Driver) -> None:
    server.attached = True
    refusal(server)
    server.report()
    retry_forbidden(server.actor, MountPod(pod=in_default(claim())))
    driver.faults["NodeExpandVolume"] = Fault("FAILED_PRECONDITION", "not while it is in use")
    status = server.documents["PersistentVolumeClaim", "data"]["status"]
    server.documents["PersistentVolume", "pv-1"]["spec"]["capacity"] = {"storage": "2Gi"}
    status |= {"allocatedResources": {"storage": "2Gi"}, "allocatedResourceStatuses": {"storage": "NodeResizePending"}}
    told = server.actor.peers["objects"]
    error = "rpc error: code = FailedPrecondition desc = not while it is in use"
    message = f"failed to expand pvc with Expander.NodeExpand failed to expand the volume : {error}"
    wait_for(lambda: len(told.of(SetClaimExpansion)) == 2, 20, "the claim is told")
    phases = [(one.phase, one.message) for one in told.of(SetClaimExpansion)]
    assert phases == [("NodeResizeInProgress", ""), ("NodeResizeError", message)]
    calls, looks = len(driver.calls), len(told.of(GetObjects))
    wait_for(lambda: len(told.of(GetObjects)) > looks + 3, 20, "it is looked at again")
    assert len(driver.calls) == calls
    assert told.of(SetClaimCapacity) == []
    assert server.actor.ask(Describe()).state["failed"] == {}
    retry_forbidden(server.actor, UnmountPod(pod_uid=UID))
    driver.faults.clear()
    wait_for(lambda: server.in_use()[-1] == (), 20, "it is in use no more")
    refusal(server)
    server.report()
    retry_forbidden(server.actor, MountPod(pod=in_default(claim())))
    wait_for(lambda: [one.capacity for one in told.of(SetClaimCapacity)] == ["2Gi"], 20, "it grows for the next pod")
    retry_forbidden(server.actor, UnmountPod(pod_uid=UID))


@pytest.mark.needs("mounts")
def test_volume_of_several_nodes_grows_without_a_report(server: Server, driver: Driver) -> None:
    server.attached = True
    refusal(server)
    server.report()
    retry_forbidden(server.actor, MountPod(pod=in_default(claim())))
    document, told = server.documents["PersistentVolumeClaim", "data"], server.actor.peers["objects"]
    document["spec"]["accessModes"] = ["ReadWriteMany"]
    document["status"] |= {"capacity": {"storage": "2Gi"}, "allocatedResources": {"storage": "2Gi"}}
    looks = len(told.of(GetObjects))
    wait_for(lambda: len(told.of(GetObjects)) > looks + 3, 20, "the claim is read, before its volume")
    server.documents["PersistentVolume", "pv-1"]["spec"]["capacity"] = {"storage": "2Gi"}
    wait_for(lambda: driver.of("NodeExpandVolume"), 20, "it grows here, too")
    looks = len(told.of(GetObjects))
    wait_for(lambda: len(told.of(GetObjects)) > looks + 3, 20, "it is looked at again")
    assert [one.capacity_range.required_bytes for one in driver.of("NodeExpandVolume")] == [2 << 30]
    assert (told.of(SetClaimExpansion), told.of(SetClaimCapacity)) == ([], [])
    retry_forbidden(server.actor, UnmountPod(pod_uid=UID))


@pytest.mark.needs("mounts")
def test_growth_that_only_another_node_could_do_ends(server: Server, driver: Driver) -> None:
    server.attached = True
    refusal(server)
    server.report()
    retry_forbidden(server.actor, MountPod(pod=in_default(claim())))
    driver.faults["NodeExpandVolume"] = Fault("OUT_OF_RANGE")
    document, told = server.documents["PersistentVolumeClaim", "data"], server.actor.peers["objects"]
    document["spec"]["accessModes"] = ["ReadWriteMany"]
    document["status"] |= {"capacity": {"storage": "2Gi"}, "allocatedResources": {"storage": "2Gi"}}
    looks = len(told.of(GetObjects))
    wait_for(lambda: len(told.of(GetObjects)) > looks + 3, 20, "the claim is read, before its volume")
    server.documents["PersistentVolume", "pv-1"]["spec"]["capacity"] = {"storage": "2Gi"}
    recorded = server.actor.peers["events"]
    failed = lambda: [one for one in recorded.of(RecordEvent) if one.reason == "VolumeResizeFailed"]  # noqa: E731
    wait_for(failed, 20, "the pod is told")
    wait_for(lambda: server.actor.ask(Describe()).state["failed"] == {}, 20, "that is no failure of the volume")
    looks = len(told.of(GetObjects))
    wait_for(lambda: len(told.of(GetObjects)) > looks + 8, 20, "it is looked at again")
    assert (len(driver.of("NodeExpandVolume")), len(failed())) == (1, 1)
    retry_forbidden(server.actor, UnmountPod(pod_uid=UID))


@pytest.mark.needs("mounts")
def test_growth_is_taken_back_after_a_second_failure(server: Server, driver: Driver) -> None:
    server.attached = True
    refusal(server)
    server.report()
    retry_forbidden(server.actor, MountPod(pod=in_default(claim())))
    documents, told = server.documents, server.actor.peers["objects"]
    spec, status = (documents["PersistentVolumeClaim", "data"][part] for part in ("spec", "status"))
    phases = lambda: [one.phase for one in told.of(SetClaimExpansion)]  # noqa: E731

    def written(request: SetClaimExpansion) -> Done:
        if request.phase != "NodeResizeError":
            status["allocatedResourceStatuses"] = {"storage": request.phase}
        return Done()

    told.answers[SetClaimExpansion] = written
    driver.faults["NodeExpandVolume"] = Fault("INTERNAL")
    spec["resources"] = {"requests": {"storage": "2Gi"}}
    documents["PersistentVolume", "pv-1"]["spec"]["capacity"] = {"storage": "2Gi"}
    wait_for(lambda: len(driver.of("NodeExpandVolume")) > 1, 20, "it fails and is tried again")
    assert "NodeResizeInfeasible" not in phases()
    spec["resources"] = {"requests": {"storage": "1536Mi"}}
    wait_for(lambda: "NodeResizeInfeasible" in phases(), 20, "the node gives up")
    wait_for(lambda: server.actor.ask(Describe()).state["failed"] == {}, 20, "that is no failure of the volume")
    calls, looks = len(driver.calls), len(told.of(GetObjects))
    wait_for(lambda: len(told.of(GetObjects)) > looks + 3, 20, "it is looked at again")
    assert len(driver.calls) == calls
    driver.faults.clear()
    status["allocatedResourceStatuses"] = {"storage": "NodeResizePending"}
    documents["PersistentVolume", "pv-1"]["spec"]["capacity"] = {"storage": "1536Mi"}
    wait_for(lambda: [one.capacity for one in told.of(SetClaimCapacity)] == ["1536Mi"], 20, "it grows to less")
    retry_forbidden(server.actor, UnmountPod(pod_uid=UID))


@pytest.mark.needs("mounts")
def test_volume_without_its_expand_secret_mounts_and_grows_later(server: Server, driver: Driver) -> None:
    server.attached = True
    server.documents["Secret", "stage"] = {}
    names = {f"node{call}SecretRef": {"name": call.lower(), "namespace": "default"} for call in ("Stage", "Expand")}
    server.documents["PersistentVolume", "pv-1"]["spec"]["csi"] |= names
    refusal(server)
    server.report()
    retry_forbidden(server.actor, MountPod(pod=in_default(claim())))
    del server.documents["Secret", "stage"]
    server.documents["PersistentVolume", "pv-1"]["spec"]["capacity"] = {"storage": "2Gi"}
    told = server.actor.peers["objects"]
    error = 'expander.NodeExpand failed to get NodeExpandSecretRef default/expand: secrets "expand" not found'
    text = f"failed to expand pvc with {error}"
    wait_for(
        lambda: ("NodeResizeError", text) in [(one.phase, one.message) for one in told.of(SetClaimExpansion)],
        20,
        "the claim is told",
    )
    assert driver.of("NodeExpandVolume") == []
    server.documents["Secret", "expand"] = {}
    server.actor.tell(ObjectsChanged(refs=(ObjectRef(kind="Secret", namespace="default", name="expand"),)))
    wait_for(lambda: told.of(SetClaimCapacity), 20, "it grows")
    assert len(driver.of("NodeExpandVolume")) == len(driver.of("NodeStageVolume")) == 1
    retry_forbidden(server.actor, UnmountPod(pod_uid=UID))


@pytest.mark.needs("mounts")
def test_claim_that_cannot_grow_still_mounts(server: Server, driver: Driver) -> None:
    server.attached = True
    claims = server.documents["PersistentVolumeClaim", "data"]
    claims["status"]["allocatedResourceStatuses"] = {"storage": "NodeResizeInfeasible"}
    server.documents["PersistentVolume", "pv-1"]["spec"]["capacity"] = {"storage": "2Gi"}
    driver.faults["NodeExpandVolume"] = Fault("OUT_OF_RANGE")
    with pytest.raises(Refused):
        server.actor.ask(MountPod(pod=in_default(claim())))
    server.report()
    retry_forbidden(server.actor, MountPod(pod=in_default(claim())))
    assert driver.of("NodeExpandVolume") == []
    retry_forbidden(server.actor, UnmountPod(pod_uid=UID))

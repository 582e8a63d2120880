"""The volume process on a node of a cluster: tokens renewed, volumes in use told, attachments waited for.

The test stands in for objects and node, which speak to the API server.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.volume.csi import staged
from proto.agent.actor import Describe
from proto.node.node import SetVolumesInUse
from proto.pods.events import RecordEvent
from proto.pods.objects import (
    ApiObject,
    FailedObject,
    GetObjects,
    GetToken,
    ObjectRef,
    Objects,
    SetClaimCapacity,
    SetClaimExpansion,
    SetCsiDrivers,
    Token,
)
from proto.pods.volume import MountPod, ObjectsChanged, UnmountPod, VolumesInUseReported
from proto.v1 import ProjectedVolumeSource, ServiceAccountTokenProjection, Volume, VolumeProjection
from proto.waits.table import read
from proto.wire.errors import Refused
from proto.wire.message import Done
from tests.harness import ActorProcess, wait_for
from tests.volume.csi.csi_driver import ALL, Driver, Fault
from tests.volume.csi.test_csi_actor import QUICK, claim, in_default, new_driver, refused, registered, retry_forbidden
from tests.volume.test_actor import UID

UNIQUE = "kubernetes.io/csi/csi.test^vol-1"
MAY_WAIT_S = 3.0
SOON = (
    QUICK
    + "from actors.volume.reconcile import reconciler as r; r.SOONEST_RENEWAL_S = 0.05\n"
    + "from actors.volume.drivers import attachments, limits; attachments.ANNOUNCE_S = 0.5; limits.LOOK_S = 0.2\n"
    + f"from actors.volume import policy; policy.MAY_WAIT_S = {MAY_WAIT_S}\n"
)


class Server:
    """The API server's objects, as the objects and node actors report them."""

    def __init__(self, actor: ActorProcess) -> None:
        self.actor = actor
        self.attached = False
        self.detaching = False
        """The Node no longer lists what is attached."""
        self.detached = False
        """The attachment that was read a moment ago is no longer attached."""
        self.node_error = self.attachment_error = ""
        self.attach_error: dict[str, Any] | None = None
        self.reports = True
        self.issued = 0
        self.life_s = 3600.0
        self.documents: dict[tuple[str, str], dict[str, Any]] = {
            ("CSIDriver", "csi.test"): {"spec": {"tokenRequests": [{"audience": "a"}, {"audience": ""}]}},
            ("PersistentVolumeClaim", "data"): {
                "metadata": {"name": "data", "namespace": "default", "uid": "c"},
                "spec": {"volumeName": "pv-1"},
                "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
            },
            ("PersistentVolume", "pv-1"): {
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "claimRef": {"uid": "c"},
                    "csi": {"driver": "csi.test", "volumeHandle": "vol-1"},
                }
            },
        }
        actor.peers["objects"].answers |= {
            GetObjects: self.objects, GetToken: self.token, SetClaimCapacity: self.grown,
            SetClaimExpansion: lambda _: Done(),
        }  # fmt: skip

    def objects(self, request: GetObjects) -> Objects:
        found, missing, failed = [], [], []
        for ref in request.refs:
            document = self.documents.get((ref.kind, ref.name))
            if ref.kind == "VolumeAttachment":
                attached = self.attached and not (request.fresh and self.detached)
                status = {"attached": attached, "attachmentMetadata": {"device": "/dev/x"}}
                document = {"metadata": {"name": ref.name, "uid": "a"}, "status": status}
                if self.attach_error is not None:
                    status["attachError"] = self.attach_error
            if error := {"Node": self.node_error, "VolumeAttachment": self.attachment_error}.get(ref.kind):
                failed.append(FailedObject(ref=ref, message=error))
                continue
            if ref.kind == "Node" and self.attached:
                names = () if self.detaching else self.in_use()[-1]
                document = (document or {}) | {"status": {"volumesAttached": [{"name": name} for name in names]}}
            if document is not None:
                document = {"metadata": {"name": ref.name}, **document}
                found.append(ApiObject(ref=ref, resource_version="1", document=document))
            elif ref.name:
                missing.append(ref)
        return Objects(found=tuple(found), missing=tuple(missing), failed=tuple(failed))

    def token(self, _: GetToken) -> Token:
        self.issued += 1
        now = time.time()
        return Token(token=f"jwt-{self.issued}", expires=now + self.life_s, refresh=now + self.life_s * 0.8)

    def grown(self, request: SetClaimCapacity) -> Done:
        status = self.documents["PersistentVolumeClaim", request.name]["status"]
        status["capacity"] = {"storage": request.capacity}
        return Done()

    def in_use(self) -> list[tuple[str, ...]]:
        """Volumes in use as reported to the Node, in order."""
        return [one.volumes for one in self.told()]

    def told(self) -> list[SetVolumesInUse]:
        return self.actor.peers["node"].of(SetVolumesInUse)

    def report(self, told: SetVolumesInUse | None = None) -> None:
        """The Node has this list, by default the last one."""
        told = told or self.told()[-1]
        self.actor.tell(VolumesInUseReported(volumes=told.volumes, number=told.number))

    def fresh_reads(self) -> list[ObjectRef]:
        """Objects that were read from the API server, past any cache."""
        return [ref for one in self.actor.peers["objects"].of(GetObjects) if one.fresh for ref in one.refs]


@pytest.fixture
def server() -> Iterator[Server]:
    peers = ("pod_workers", "objects", "events", "node")
    process = ActorProcess("volume", None, peers, prelude=SOON, kubeconfig="/there", sync_frequency_s=0.3)
    made = Server(process)  # it answers from the first question on
    with process:
        yield made


@pytest.fixture
def driver(server: Server) -> Iterator[Driver]:
    one = new_driver(server.actor, capabilities=ALL).start()
    registered(server.actor, one)
    yield one
    one.close()


def refusal(server: Server) -> str:
    with pytest.raises(Refused) as caught:
        server.actor.ask(MountPod(pod=in_default(claim())))
    return caught.value.message


def token_pod() -> Any:
    source = ServiceAccountTokenProjection(path="token", expiration_seconds=600)
    projected = ProjectedVolumeSource(sources=(VolumeProjection(service_account_token=source),))
    return in_default(Volume(name="t", projected=projected))


def test_due_token_is_renewed_and_a_failure_keeps_the_old_one(server: Server) -> None:
    server.life_s = 1.0
    path = Path(server.actor.ask(MountPod(pod=token_pod())).host_paths["t"]) / "token"
    first = path.read_text()
    wait_for(lambda: path.read_text() != first, 20, "it is renewed")
    server.actor.peers["objects"].answers[GetToken] = lambda _: Refused("TokenFailed", "failed to fetch token: down")
    asked = len(server.actor.peers["objects"].of(GetToken))
    wait_for(lambda: len(server.actor.peers["objects"].of(GetToken)) > asked, 20, "the next one is asked for")
    kept = path.read_text()
    wait_for(lambda: len(server.actor.peers["objects"].of(GetToken)) > asked + 1, 20, "and again")
    assert path.read_text() == kept
    server.actor.peers["objects"].answers[GetToken] = server.token
    wait_for(lambda: path.read_text() != kept, 20, "it is tried again")
    server.actor.ask(UnmountPod(pod_uid=UID))


CLOCK = "import time, os; real = time.time; time.time = lambda: real() + 7200.0 * os.path.exists({!r})\n"
"""The clock is two hours ahead once there is a file of that name."""


def test_token_is_renewed_soon_after_a_step_of_the_clock(server: Server, tmp_path: Path) -> None:
    step = tmp_path / "step"
    server.actor.kill()
    server.actor.prelude = CLOCK.format(str(step)) + SOON
    server.actor.start()
    path = Path(server.actor.ask(MountPod(pod=token_pod())).host_paths["t"]) / "token"
    first = path.read_text()
    step.touch()
    wait_for(lambda: path.read_text() != first, 20, "it is renewed")
    server.actor.ask(UnmountPod(pod_uid=UID))


def test_volume_without_token_has_the_servers_error(server: Server) -> None:
    text = 'failed to fetch token: serviceaccounts "default" not found'
    server.actor.peers["objects"].answers[GetToken] = lambda _: Refused("TokenFailed", text)
    with pytest.raises(
        Refused, match=r'MountVolume\.SetUp failed for volume "t" : failed to fetch token: servic'
    ) as no:
        server.actor.ask(MountPod(pod=token_pod()))
    assert no.value.retry


@pytest.mark.needs("mounts")
def test_a_volume_is_mounted_once_it_is_in_use_and_attached(server: Server, driver: Driver) -> None:
    wait_for(lambda: server.in_use() != [], 20, "what is on disk is told first")
    assert server.in_use()[-1] == ()
    began = time.monotonic()
    with pytest.raises(Refused, match="has not been added to the list of VolumesInUse"):
        server.actor.ask(MountPod(pod=in_default(claim())))
    assert server.in_use()[-1] == (UNIQUE,)
    server.report()
    wait_for(
        lambda: "has not been attached yet" in refusal(server), 20, "then it waits for the controller"
    )  # fmt: skip
    assert driver.of("NodeStageVolume") == []
    server.attached = True
    paths = retry_forbidden(server.actor, MountPod(pod=in_default(claim()))).host_paths
    assert not mount_events(server) or waits_too_long(began), "an attachment that takes its time is no event"
    (staged,), (published,) = driver.of("NodeStageVolume"), driver.of("NodePublishVolume")
    assert dict(staged.publish_context) == {"device": "/dev/x"}
    tokens = json.loads(published.volume_context["csi.storage.k8s.io/serviceAccount.tokens"])
    assert {audience: one["token"][:4] for audience, one in tokens.items()} == {"a": "jwt-", "": "jwt-"}
    assert "csi.storage.k8s.io/serviceAccount.tokens" not in staged.volume_context
    told, fresh = len(server.in_use()), len(server.fresh_reads())
    server.actor.restart()
    wait_for(lambda: len(server.in_use()) > told, 20, "the next incarnation knows from the disk")
    assert server.in_use()[-1] == (UNIQUE,)
    registered(server.actor, driver)
    server.detaching = True
    assert retry_forbidden(server.actor, MountPod(pod=in_default(claim()))).host_paths == paths
    assert len(server.fresh_reads()) == fresh, "what is mounted is not checked again"
    retry_forbidden(server.actor, UnmountPod(pod_uid=UID))
    wait_for(lambda: server.in_use()[-1] == (), 20, "it is in use no more")


def leave_staged(server: Server, driver: Driver) -> None:
    """A pod came and went, and the driver does not unstage its volume."""
    server.attached = True
    refusal(server)
    server.report()
    retry_forbidden(server.actor, MountPod(pod=in_default(claim())))
    driver.faults["NodeUnstageVolume"] = Fault("INTERNAL")
    server.actor.ask(UnmountPod(pod_uid=UID))


@pytest.mark.needs("mounts")
def test_volume_is_in_use_while_it_is_staged(server: Server, driver: Driver) -> None:
    leave_staged(server, driver)
    tries = lambda: len(driver.of("NodeUnstageVolume"))  # noqa: E731
    wait_for(lambda: tries() > 1, 20, "the unstaging is tried again")
    told = len(server.in_use())
    server.actor.restart()
    wait_for(lambda: len(server.in_use()) > told, 20, "the next incarnation tells")
    registered(server.actor, driver)
    before = tries()
    wait_for(lambda: tries() > before, 20, "and tries")
    assert {names for names in server.in_use() if names != (UNIQUE,)} <= {()}
    assert all(names == (UNIQUE,) for names in server.in_use()[told - 1 :])
    driver.faults.clear()
    wait_for(lambda: server.in_use()[-1] == (), 20, "it is in use no more")


@pytest.mark.needs("mounts")
def test_damaged_staging_record_keeps_volumes_in_use(server: Server, driver: Driver) -> None:
    leave_staged(server, driver)
    (one,) = staged.find(server.actor.settings.root_dir).volumes
    data = Path(staged.path_of(server.actor.settings.root_dir, one)).parent / "vol_data.json"
    content = data.read_bytes()
    data.write_bytes(b"{")
    server.documents["Node", "node"] = {"status": {"volumesInUse": [UNIQUE]}}
    told = len(server.in_use())
    server.attached = False  # the stand-in tells the Node's attached volumes from the reports
    server.actor.restart()
    driver.faults.clear()
    wait_for(lambda: len(server.in_use()) > told, 20, "the next incarnation tells")
    wait_for(lambda: server.actor.ask(Describe()).state["helpers"]["idle"], 20, "the staged volumes were listed")
    assert set(server.in_use()[told:]) == {(UNIQUE,)}
    data.write_bytes(content)
    wait_for(lambda: server.in_use()[-1] == (), 20, "it is unstaged later, and in use no more")
    assert not data.exists()


@pytest.mark.needs("mounts")
def test_unreadable_record_keeps_what_the_node_has_in_use(server: Server, driver: Driver) -> None:
    driver.capabilities = ()
    server.attached = True
    refusal(server)
    server.report()
    path = retry_forbidden(server.actor, MountPod(pod=in_default(claim()))).host_paths["v"]
    data = Path(path).parent / "vol_data.json"
    content = data.read_bytes()
    data.write_bytes(b"{")
    server.documents["Node", "node"] = {"status": {"volumesInUse": [UNIQUE]}}
    told = len(server.in_use())
    server.attached = False  # the stand-in tells the Node's attached volumes from the reports
    server.actor.restart()
    wait_for(lambda: len(server.in_use()) > told, 20, "the next incarnation tells")
    assert server.in_use()[-1] == (UNIQUE,)
    registered(server.actor, driver)
    with pytest.raises(Refused, match="failed to open volume data file"):
        server.actor.ask(UnmountPod(pod_uid=UID))
    data.write_bytes(content)
    retry_forbidden(server.actor, UnmountPod(pod_uid=UID))
    wait_for(lambda: server.in_use()[-1] == (), 20, "it is in use no more")


def mount_events(server: Server) -> list[str]:
    return [one.message for one in server.actor.peers["events"].of(RecordEvent) if one.reason == "FailedMount"]


def waits_too_long(began: float) -> bool:
    """Return True when a pod that waits since then has an event for it: on a busy machine, steps take seconds."""
    return time.monotonic() - began > MAY_WAIT_S


def waited_for(server: Server) -> dict[str, str]:
    """The actor's waits, by subject: `supervisor why` reads it."""
    found = read(Path(server.actor.settings.run_dir, "waits", "volume"))
    assert found is not None
    return {wait.waiter: wait.error for wait in found.waits}


@pytest.mark.needs("mounts")
def test_pod_waits_for_an_attachment_without_events_at_first(server: Server, driver: Driver) -> None:
    forbidden = 'volumeattachments.storage.k8s.io "csi-1" is forbidden: no relationship found'
    server.attachment_error = forbidden
    began = time.monotonic()
    message = refusal(server)
    assert message == f'MountVolume.WaitForAttach failed for volume "v" : {forbidden}'
    assert waited_for(server)["volume/default/p/v"] == forbidden
    assert not mount_events(server) or waits_too_long(began)
    lists = "unmounted volumes=[v], unattached volumes=[v], failed to process volumes=[]: context deadline exceeded"
    expected = f"Unable to attach or mount volumes: {lists}"
    # A third may have come before the test looks.
    wait_for(lambda: mount_events(server)[:2] == [expected] * 2, 20, "each time that it has waited too long")
    server.attachment_error = ""
    server.attach_error = {"message": "no such disk"}
    server.report()
    wait_for(lambda: refusal(server).endswith("no such disk"), 20, "the controller's error is the pod's")
    server.attached, server.attach_error = True, None
    retry_forbidden(server.actor, MountPod(pod=in_default(claim())))
    assert set(mount_events(server)) == {expected}
    driver.faults["NodePublishVolume"] = Fault("INTERNAL")
    message = refused(server.actor, MountPod(pod=in_default(claim(), uid="other")))
    assert message in mount_events(server), "a failure of the driver is an event at once"
    driver.faults.clear()
    for uid in (UID, "other"):
        retry_forbidden(server.actor, UnmountPod(pod_uid=uid))


@pytest.mark.needs("mounts")
def test_volume_that_is_being_detached_is_not_mounted(server: Server, driver: Driver) -> None:
    server.attached = server.detaching = True
    assert "VolumesInUse" in refusal(server)
    assert server.fresh_reads() == [], "nothing that is read before the report counts"
    server.report()
    wait_for(lambda: "Volume not attached according to node status" in refusal(server), 20, "the Node does not list it")
    server.detached, server.detaching = True, False  # at no time is it attached
    wait_for(lambda: "has not been attached yet" in refusal(server), 20, "its attachment is read again")
    server.node_error, server.detached = "nodes are down", False
    wait_for(lambda: "failed fetching node from API server: nodes are down" in refusal(server), 20, "it is unknown")
    assert driver.of("NodeStageVolume") == driver.of("NodePublishVolume") == []
    server.node_error = ""
    retry_forbidden(server.actor, MountPod(pod=in_default(claim())))
    retry_forbidden(server.actor, UnmountPod(pod_uid=UID))


@pytest.mark.needs("mounts")
def test_only_a_report_after_the_last_use_counts(server: Server, driver: Driver) -> None:
    server.attached = True
    refusal(server)
    first = server.told()[-1]
    server.report()
    retry_forbidden(server.actor, MountPod(pod=in_default(claim())))
    retry_forbidden(server.actor, UnmountPod(pod_uid=UID))
    wait_for(lambda: server.in_use()[-1] == (), 20, "it is in use no more")
    calls = len(driver.of("NodeStageVolume"))
    assert "VolumesInUse" in refusal(server)
    server.report(first)  # written before the Node lost the volume
    assert "VolumesInUse" in refusal(server)
    assert len(driver.of("NodeStageVolume")) == calls
    assert server.told()[-1].number > first.number
    server.report()
    retry_forbidden(server.actor, MountPod(pod=in_default(claim())))
    retry_forbidden(server.actor, UnmountPod(pod_uid=UID))


@pytest.mark.needs("mounts")
def test_the_node_is_read_once_for_all_volumes_of_a_pod(server: Server, driver: Driver) -> None:
    server.attached = True
    more = server.documents["PersistentVolume", "pv-1"]["spec"]
    source = {"driver": "csi.test", "volumeHandle": "vol-2"}
    server.documents["PersistentVolume", "pv-2"] = {"spec": more | {"claimRef": {"uid": "c2"}, "csi": source}}
    server.documents["PersistentVolumeClaim", "more"] = {
        "metadata": {"name": "more", "namespace": "default", "uid": "c2"},
        "spec": {"volumeName": "pv-2"},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    }
    volumes = (claim(), claim("more", "w"))
    with pytest.raises(Refused, match="VolumesInUse"):
        server.actor.ask(MountPod(pod=in_default(*volumes)))
    server.report()
    retry_forbidden(server.actor, MountPod(pod=in_default(*volumes)))
    before = len(server.fresh_reads())
    retry_forbidden(server.actor, MountPod(pod=in_default(*volumes, uid="other")))
    assert [ref.kind for ref in server.fresh_reads()[before:]] == ["Node", "VolumeAttachment", "VolumeAttachment"]
    assert len(driver.of("NodePublishVolume")) == 4
    for uid in (UID, "other"):
        retry_forbidden(server.actor, UnmountPod(pod_uid=uid))


@pytest.mark.needs("mounts")
def test_tokens_are_secrets_where_the_csi_driver_says_so(server: Server, driver: Driver) -> None:
    server.documents["CSIDriver", "csi.test"]["spec"]["serviceAccountTokenInSecrets"] = True
    server.attached = True
    refusal(server)
    server.report()
    retry_forbidden(server.actor, MountPod(pod=in_default(claim())))
    (published,) = driver.of("NodePublishVolume")
    tokens = json.loads(published.secrets["csi.storage.k8s.io/serviceAccount.tokens"])
    assert set(tokens) == {"a", ""}
    assert "csi.storage.k8s.io/serviceAccount.tokens" not in published.volume_context
    retry_forbidden(server.actor, UnmountPod(pod_uid=UID))


def test_drivers_are_reported_to_the_cluster(server: Server, driver: Driver) -> None:
    told = server.actor.peers["objects"]
    wait_for(lambda: [x for x in told.of(SetCsiDrivers) if x.complete and x.drivers], 20, "the driver is told")
    (one,) = told.of(SetCsiDrivers)[-1].drivers
    assert (one.name, bool(one.node_id)) == ("csi.test", True)
    driver.stop()
    wait_for(lambda: told.of(SetCsiDrivers)[-1].drivers == (), 20, "it has gone")


def told_limits(server: Server) -> list[int]:
    """Drivers as reported for the CSINode, in order."""
    told = server.actor.peers["objects"].of(SetCsiDrivers)
    return [one.max_volumes for message in told for one in message.drivers]


def test_driver_limit_is_updated_every_period_of_the_csi_driver(server: Server, driver: Driver) -> None:
    assert set(told_limits(server)) == {7}
    looks = len(server.actor.peers["objects"].of(GetObjects))
    wait_for(lambda: len(server.actor.peers["objects"].of(GetObjects)) > looks + 3, 20, "its CSIDriver is looked at")
    assert len(driver.of("NodeGetInfo")) == 1, "it does not wish to be asked again"
    server.documents["CSIDriver", "csi.test"]["spec"]["nodeAllocatableUpdatePeriodSeconds"] = 1
    driver.max_volumes = 5
    wait_for(lambda: told_limits(server)[-1] == 5, 20, "what has changed is told")
    asked, told = len(driver.of("NodeGetInfo")), len(told_limits(server))
    wait_for(lambda: len(driver.of("NodeGetInfo")) > asked + 1, 20, "it is asked again")
    assert len(told_limits(server)) == told, "nothing has changed"
    driver.faults["NodeGetInfo"] = Fault(code="UNAVAILABLE")
    asked = len(driver.of("NodeGetInfo"))
    wait_for(lambda: len(driver.of("NodeGetInfo")) > asked + 1, 20, "an error is no reason to ask no more")
    assert told_limits(server)[-1] == 5, "nor to forget what it said"


def test_pod_beyond_the_limit_is_rejected_and_limit_updated(server: Server, driver: Driver) -> None:
    server.attach_error = {"message": "no slot is free", "errorCode": 8}
    refusal(server)
    server.report()
    wait_for(lambda: "no slot is free" in refusal(server), 20, "the attachment's error is told")
    assert len(driver.of("NodeGetInfo")) == 1, "its CSIDriver says nothing of a limit that changes"
    server.documents["CSIDriver", "csi.test"]["spec"]["nodeAllocatableUpdatePeriodSeconds"] = 3600
    server.actor.tell(ObjectsChanged(refs=(ObjectRef(kind="CSIDriver", name="csi.test"),)))
    wait_for(lambda: len(driver.of("NodeGetInfo")) == 2, 20, "the driver is asked at once")
    lists = "unmounted volumes=[v], unattached volumes=[v], failed to process volumes=[]: context deadline exceeded"
    wanted = f"Node has reached its volume attachment limit, rejecting pod. {lists}"
    wait_for(lambda: refusal(server) == wanted, 20, "in time the pod is to go elsewhere")


def test_node_labels_come_from_the_server(server: Server, driver: Driver) -> None:
    zone = {"key": "zone", "operator": "In", "values": ["z1"]}
    spec = server.documents["PersistentVolume", "pv-1"]["spec"]
    spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}
    assert "no matching NodeSelectorTerms" in refusal(server)
    server.documents["Node", "node"] = {"metadata": {"name": "node", "labels": {"zone": "z1"}}}
    server.actor.tell(ObjectsChanged(refs=(ObjectRef(kind="Node", name="node"),)))
    wait_for(lambda: "VolumesInUse" in refusal(server), 20, "it can be reached from here")

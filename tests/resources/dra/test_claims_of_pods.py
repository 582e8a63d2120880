"""DRA drivers at the resources process: they register, prepare claims, lie, hang, die; the process is killed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from proto.agent.actor import Describe, GetMetrics
from proto.plugins import dra_pb2 as pb
from proto.pods.objects import GetObjects
from proto.pods.pod_workers import ResourcesState
from proto.resources.resources import (
    GetGrant,
    ListedPod,
    PrepareClaims,
    ReleasePod,
    SetListedPods,
    SetPods,
    UnprepareClaims,
)
from proto.v1 import Pod
from proto.wire.errors import ActorError, Refused
from tests.harness import ActorProcess, wait_for
from tests.resources.dra.driver import NAME, Driver
from tests.resources.dra.pods import Server, claim, pod
from tests.resources.plugin_server import Fault
from tests.resources.pod_resources.client import call, socket_of

QUICK = (
    "from actors.resources import registration; from actors.resources.dra import manager, plugin; "
    "from proto.common.backoff import Backoff; "
    "registration.CALL_S = plugin.CALL_S = 3.0; manager.RETRY = Backoff(0.1, cap_s=0.2)\n"
)
"""Shorter deadlines, still longer than a busy machine's pauses."""
GPU = pod("u", "gpu")


@pytest.fixture
def server() -> Server:
    return Server(claim("gpu", "u"))


@pytest.fixture
def actor(server: Server) -> Iterator[ActorProcess]:
    with ActorProcess(
        "resources", None, ("pod_workers", "node", "objects"), prelude=QUICK, objects_dir="/objects"
    ) as process:
        process.peers["objects"].answers[GetObjects] = server.answer
        process.tell(SetPods(pods=(), full=True))
        yield process


@pytest.fixture
def driver(actor: ActorProcess) -> Iterator[Driver]:
    one = new_driver(actor)
    yield one
    one.close()


def new_driver(actor: ActorProcess, **fields: Any) -> Driver:
    one = Driver(Path(actor.settings.root_dir), **fields).start()
    wait_for(lambda: str(one.endpoint) in drivers(actor).get(one.name, []), 20, "it is registered")
    return one


def state(actor: ActorProcess) -> dict[str, Any]:
    found: dict[str, Any] = actor.ask(Describe()).state["claims"]
    return found


def drivers(actor: ActorProcess) -> dict[str, list[str]]:
    found: dict[str, list[str]] = state(actor)["drivers"]
    return found


def prepare(actor: ActorProcess, subject: Pod) -> None:
    actor.tell(SetPods(pods=(subject,)))
    actor.ask(PrepareClaims(pod=subject), 20)


def prepare_soon(actor: ActorProcess, subject: Pod) -> None:
    """Prepare, as pod_workers does: again while it is refused."""
    retried(actor, lambda: prepare(actor, subject))


def unprepare_soon(actor: ActorProcess, uid: str) -> None:
    retried(actor, lambda: actor.ask(UnprepareClaims(pod_uid=uid), 20))
    actor.tell(ReleasePod(pod_uid=uid))


def retried(actor: ActorProcess, work: Any) -> None:
    def done() -> bool:
        try:
            work()
        except ActorError:
            return False
        return True

    wait_for(done, 30)


def refusal(actor: ActorProcess, request: Any) -> str:
    with pytest.raises(Refused) as caught:
        actor.ask(request, 20)
    assert caught.value.retry
    return caught.value.message


def cdi(actor: ActorProcess, subject: Pod) -> tuple[str, ...]:
    return actor.ask(GetGrant(pod=subject, container="c"), 20).grant.cdi_devices


@pytest.mark.parametrize("service", ["v1.DRAPlugin", "v1beta1.DRAPlugin"])
def test_a_claim_is_prepared_granted_and_unprepared(actor: ActorProcess, service: str) -> None:
    driver = new_driver(actor, service=service)
    try:
        wait_for(lambda: driver.of("NotifyRegistrationStatus"), 20, "it is notified")
        assert driver.of("NotifyRegistrationStatus")[-1].plugin_registered
        prepare(actor, GPU)
        (request,) = driver.of("NodePrepareResources")
        assert [(one.namespace, one.name, one.uid) for one in request.claims] == [("default", "gpu", "uid-gpu")]
        assert cdi(actor, GPU) == ("test/dra=dev-gpu",)
        prepare(actor, GPU)
        assert len(driver.of("NodePrepareResources")) == 1
        samples = actor.ask(GetMetrics()).samples
        assert dict(samples["dra_resource_claims_in_use"]) == {("<any>",): (1.0,), (NAME,): (1.0,)}
        actor.ask(UnprepareClaims(pod_uid="u"))
        assert driver.prepared == set()
        assert state(actor)["claims"] == {}
        actor.ask(UnprepareClaims(pod_uid="u"))
        assert len(driver.of("NodeUnprepareResources")) == 1
    finally:
        driver.close()


@pytest.mark.parametrize("fault", [Fault(code="UNIMPLEMENTED"), Fault(hang=True)])
def test_a_driver_that_takes_no_notification_is_registered(actor: ActorProcess, fault: Fault) -> None:
    with closing(Driver(Path(actor.settings.root_dir), faults={"NotifyRegistrationStatus": fault})) as driver:
        driver.start()
        wait_for(lambda: registered(actor) == [str(driver.socket)], 30, "it is registered")
        prepare(actor, GPU)
        assert driver.prepared == {"uid-gpu"}
        assert len(driver.of("NotifyRegistrationStatus")) == 1


def registered(actor: ActorProcess) -> list[str]:
    """Sockets of registered plugins."""
    return list(actor.ask(Describe()).state["plugins"]["registered"])


def test_a_pod_without_its_driver_waits_and_may_end(actor: ActorProcess) -> None:
    message = refusal(actor, PrepareClaims(pod=GPU))
    assert message == f"prepare dynamic resources: DRA driver {NAME} is not registered"
    actor.ask(UnprepareClaims(pod_uid="u"))  # no driver was asked for anything
    before = len(actor.peers["pod_workers"].of(ResourcesState))
    driver = new_driver(actor)
    wait_for(lambda: len(actor.peers["pod_workers"].of(ResourcesState)) > before, 20, "pods are tried again")
    prepare(actor, GPU)
    driver.close()


CHECKS = [
    ({}, 'fetch ResourceClaim gpu: resourceclaims.resource.k8s.io "gpu" not found'),
    (claim("gpu", "u", allocation=None), "ResourceClaim gpu: not allocated"),
    (claim("gpu", "other"), "pod u (u) is not allowed to use ResourceClaim gpu (uid-gpu)"),
]


@pytest.mark.parametrize(("document", "problem"), CHECKS, ids=range(len(CHECKS)))
def test_a_claim_that_is_not_the_pods_is_refused(
    actor: ActorProcess, driver: Driver, server: Server, document: dict[str, Any], problem: str
) -> None:
    server.claims = {"gpu": document} if document else {}
    assert problem in refusal(actor, PrepareClaims(pod=GPU))
    assert driver.of("NodePrepareResources") == []
    server.put(claim("gpu", "u"))
    prepare(actor, GPU)


def test_claims_are_shared_until_their_last_pod_ends(actor: ActorProcess, driver: Driver, server: Server) -> None:
    server.put(claim("gpu", "u", "v"))
    for uid in ("u", "v"):
        prepare(actor, pod(uid, "gpu"))
    assert len(driver.of("NodePrepareResources")) == 1
    actor.ask(UnprepareClaims(pod_uid="u"))
    assert driver.prepared == {"uid-gpu"}
    assert cdi(actor, pod("v", "gpu")) == ("test/dra=dev-gpu",)
    actor.ask(UnprepareClaims(pod_uid="v"))
    assert driver.prepared == set()


def test_claims_of_one_driver_are_one_call(actor: ActorProcess, driver: Driver, server: Server) -> None:
    other = new_driver(actor, name="other.test")
    server.put(claim("a", "u"), claim("b", "u"), claim("both", "u", drivers=(NAME, "other.test")))
    subject = pod("u", "a", "b", "both")
    prepare(actor, subject)
    assert sorted(one.name for one in driver.of("NodePrepareResources")[0].claims) == ["a", "b", "both"]
    assert [one.name for one in other.of("NodePrepareResources")[0].claims] == ["both"]
    assert set(cdi(actor, subject)) == {"test/dra=dev-a", "test/dra=dev-b", "test/dra=dev-both"}
    other.close()


def test_a_claim_of_the_same_name_waits_for_the_old_one(actor: ActorProcess, driver: Driver, server: Server) -> None:
    prepare(actor, GPU)
    server.put(claim("gpu", "v", uid="new"))
    later = pod("v", "gpu")
    assert "old ResourceClaim with same name gpu and different UID uid-gpu still exists" in refusal(
        actor, PrepareClaims(pod=later)
    )
    actor.ask(UnprepareClaims(pod_uid="u"))
    prepare(actor, later)
    assert driver.prepared == {"new"}


def test_a_claim_that_is_allocated_again_is_prepared_again(actor: ActorProcess, driver: Driver, server: Server) -> None:
    prepare(actor, GPU)
    other = new_driver(actor, name="other.test")
    server.put(claim("gpu", "u", drivers=("other.test",)))
    prepare(actor, GPU)
    assert other.prepared == {"uid-gpu"}
    actor.ask(UnprepareClaims(pod_uid="u"))
    assert (driver.prepared, other.prepared) == (set(), set())
    other.close()


RESPONSE, ONE, DEVICE = pb.NodePrepareResourcesResponse, pb.NodePrepareResourceResponse, pb.Device
LIES = [
    (Fault(code="INTERNAL"), "NodePrepareResources: rpc error: code = Internal"),
    (Fault(code="INTERNAL", details=f"{300 * 'x'}: reboot the node"), "x: reboot the node"),
    (Fault(hang=True), "NodePrepareResources: rpc error: code = DeadlineExceeded"),
    (Fault(answer=RESPONSE()), "NodePrepareResources skipped 1 ResourceClaims"),
    (Fault(answer=RESPONSE(claims={"strange": ONE()})), "returned result for unknown claim UID strange"),
    (Fault(answer=RESPONSE(claims={"uid-gpu": ONE(error="broken")})), "failed for ResourceClaim gpu: broken"),
    (
        Fault(answer=RESPONSE(claims={"uid-gpu": ONE(devices=[DEVICE(pool_name="p", device_name="\x1b")])})),
        "the DRA driver dra.test lies: a device is called",
    ),
    (
        Fault(
            answer=RESPONSE(
                claims={"uid-gpu": ONE(devices=[DEVICE(pool_name="p", device_name="d", cdi_device_ids=["../x"])])}
            )
        ),
        "grants the CDI device '../x'",
    ),
]


@pytest.mark.parametrize(("fault", "problem"), LIES, ids=range(len(LIES)))
def test_a_failed_preparation_is_tried_again(actor: ActorProcess, driver: Driver, fault: Fault, problem: str) -> None:
    driver.faults["NodePrepareResources"] = fault
    assert problem in refusal(actor, PrepareClaims(pod=GPU))
    driver.faults.clear()
    driver.release.set()
    prepare(actor, GPU)
    assert cdi(actor, GPU) == ("test/dra=dev-gpu",)


def answering(claim_name: str, *devices: Any) -> Fault:
    return Fault(answer=RESPONSE(claims={f"uid-{claim_name}": ONE(devices=devices)}))


def test_devices_with_quotes_do_not_keep_it_from_starting(actor: ActorProcess, driver: Driver) -> None:
    quotes = [DEVICE(pool_name="pool", device_name='"' * 240 + str(number)) for number in range(4000)]
    driver.faults["NodePrepareResources"] = answering("gpu", *quotes)
    assert "the DRA driver dra.test lies: a device is called" in refusal(actor, PrepareClaims(pod=GPU))
    actor.restart()
    actor.tell(SetPods(pods=(GPU,), full=True))
    driver.faults.clear()
    prepare_soon(actor, GPU)
    assert cdi(actor, GPU) == ("test/dra=dev-gpu",)


def test_a_driver_fills_its_share_of_the_state_and_no_more(actor: ActorProcess, driver: Driver, server: Server) -> None:
    long = [f"test/dra={number:04}{'x' * 4000}" for number in range(55)]
    taken: list[Pod] = []
    problem = ""
    while not problem:
        name = f"c{len(taken)}"
        server.put(claim(name, f"p{len(taken)}"))
        subject = pod(f"p{len(taken)}", name)
        device = DEVICE(pool_name="p", device_name="d", cdi_device_ids=long)
        driver.faults["NodePrepareResources"] = answering(name, device)
        try:
            prepare(actor, subject)
        except Refused as error:
            problem = error.message
        else:
            taken.append(subject)
    assert (len(taken), "would take" in problem) == (4, True)
    other = new_driver(actor, name="other.test")
    server.put(claim("other", "o", drivers=("other.test",)))
    prepare(actor, pod("o", "other"))
    actor.restart()
    actor.tell(SetPods(pods=(*taken, pod("o", "other")), full=True))
    assert [len(cdi(actor, each)) for each in taken] == [55] * 4
    assert cdi(actor, pod("o", "other")) == ("test/dra=dev-other",)
    other.close()


@pytest.mark.parametrize("fault", [Fault(code="INTERNAL"), Fault(hang=True), Fault(answer=RESPONSE())])
def test_a_failed_end_is_tried_again(actor: ActorProcess, driver: Driver, fault: Fault) -> None:
    prepare(actor, GPU)
    driver.faults["NodeUnprepareResources"] = fault
    assert "unprepare dynamic resources: NodeUnprepareResources" in refusal(actor, UnprepareClaims(pod_uid="u"))
    assert "default/gpu" in state(actor)["claims"]
    driver.faults.clear()
    driver.release.set()
    actor.ask(UnprepareClaims(pod_uid="u"))
    assert driver.prepared == set()


def test_a_hung_driver_holds_up_its_own_pods_only(actor: ActorProcess, driver: Driver, server: Server) -> None:
    other = new_driver(actor, name="other.test", faults={"NodePrepareResources": Fault(hang=True)})
    server.put(claim("slow", "s", drivers=("other.test",)))
    actor.tell(SetPods(pods=(pod("s", "slow"),)))
    actor.tell(PrepareClaims(pod=pod("s", "slow")))
    wait_for(lambda: other.of("NodePrepareResources"), 20)
    prepare(actor, GPU)
    assert not other.release.is_set()
    other.close()


def test_an_end_waits_for_a_preparation_under_way(actor: ActorProcess, driver: Driver) -> None:
    driver.faults["NodePrepareResources"] = Fault(hang=True)
    actor.tell(SetPods(pods=(GPU,)))
    actor.tell(PrepareClaims(pod=GPU))
    wait_for(lambda: driver.of("NodePrepareResources"), 20)
    actor.ask(UnprepareClaims(pod_uid="u"), 20)
    assert len(driver.of("NodeUnprepareResources")) == 1
    assert state(actor)["claims"] == {}


def test_the_latest_plugin_that_answers_is_used(actor: ActorProcess, driver: Driver) -> None:
    newer = new_driver(actor, instance="-2")
    prepare(actor, GPU)
    assert (len(driver.of("NodePrepareResources")), len(newer.of("NodePrepareResources"))) == (0, 1)
    newer._servers[0][0].stop(0).wait()  # its service ends, and its registration stays
    actor.ask(UnprepareClaims(pod_uid="u"))
    assert len(driver.of("NodeUnprepareResources")) == 1
    newer.close()
    wait_for(lambda: drivers(actor) == {NAME: [str(driver.endpoint)]}, 20)


@pytest.mark.parametrize(
    ("info", "problem"),
    [
        ({"supported_versions": ["v1alpha3.Node"]}, 'none of services supported by the plugin (["v1alpha3.Node"])'),
        ({"supported_versions": []}, "empty list of supported gRPC services (aka supported versions)"),
    ],
)
def test_a_driver_of_another_version_is_told_so(actor: ActorProcess, info: dict[str, Any], problem: str) -> None:
    driver = Driver(Path(actor.settings.root_dir), info=info).start()
    try:
        wait_for(lambda: driver.of("NotifyRegistrationStatus"), 20)
        assert problem in driver.of("NotifyRegistrationStatus")[0].error
    finally:
        driver.close()


def test_a_second_socket_with_the_same_endpoint_is_refused(actor: ActorProcess, driver: Driver) -> None:
    other = Driver(Path(actor.settings.root_dir), instance="-2", info={"endpoint": str(driver.endpoint)}).start()
    try:
        wait_for(lambda: other.of("NotifyRegistrationStatus"), 20)
        assert f"endpoint {driver.endpoint} already registered" in other.of("NotifyRegistrationStatus")[0].error
        prepare(actor, GPU)
    finally:
        other.close()


def test_the_pod_resources_api_lists_claims(actor: ActorProcess, driver: Driver) -> None:
    prepare(actor, GPU)
    listed = ListedPod(uid="u", namespace="default", name="u", containers=("c",), active=True)
    actor.tell(SetListedPods(pods=(listed,), full=True))
    api = {"served": True, "pods": 1, "pods_complete": True}
    wait_for(lambda: actor.ask(Describe()).state["pod_resources_api"] == api, 20, "the pods are known, and served")
    socket = socket_of(Path(actor.settings.root_dir))
    (one,) = call(socket, "List")["pod_resources"]
    device = {"driver_name": NAME, "pool_name": "pool", "device_name": "dev-gpu"}
    assert one["containers"][0]["dynamic_resources"] == [
        {
            "claim_name": "gpu",
            "claim_namespace": "default",
            "claim_resources": [{"cdi_devices": [{"name": "test/dra=dev-gpu"}], **device}],
        }
    ]


# Kills


def test_claims_survive_a_kill(actor: ActorProcess, driver: Driver) -> None:
    prepare(actor, GPU)
    actor.restart()
    actor.tell(SetPods(pods=(GPU,), full=True))
    assert cdi(actor, GPU) == ("test/dra=dev-gpu",)
    assert driver.prepared == {"uid-gpu"}
    prepare_soon(actor, GPU)  # a new sandbox: the driver is asked again, as by a new kubelet
    assert len(driver.of("NodePrepareResources")) == 2
    assert cdi(actor, GPU) == ("test/dra=dev-gpu",)


def test_claims_of_pods_that_are_gone_are_unprepared(actor: ActorProcess, driver: Driver) -> None:
    prepare(actor, GPU)
    actor.restart()
    actor.ask(Describe())
    assert driver.prepared == {"uid-gpu"}  # while not all pods are known
    driver.faults["NodeUnprepareResources"] = Fault(code="INTERNAL")
    actor.tell(SetPods(pods=(), full=True))
    wait_for(lambda: len(driver.of("NodeUnprepareResources")) > 2, 20, "it is tried again")
    driver.faults.clear()
    wait_for(lambda: driver.prepared == set() and state(actor)["claims"] == {}, 20)


@pytest.mark.parametrize("rpc", ["NodePrepareResources", "NodeUnprepareResources"])
def test_a_kill_within_a_call_leaves_no_claim_behind(actor: ActorProcess, driver: Driver, rpc: str) -> None:
    if rpc == "NodeUnprepareResources":
        prepare(actor, GPU)
    driver.faults[rpc] = Fault(hang=True)
    with suppress(ActorError):
        actor.tell(SetPods(pods=(GPU,)))
        actor.tell(PrepareClaims(pod=GPU) if rpc == "NodePrepareResources" else UnprepareClaims(pod_uid="u"))
    wait_for(lambda: driver.of(rpc), 20)
    actor.restart()
    driver.faults.clear()
    driver.release.set()
    if rpc == "NodePrepareResources":
        wait_for(lambda: driver.prepared, 20, "the call of before has its effect after all")
    actor.tell(SetPods(pods=(), full=True))
    wait_for(lambda: state(actor)["claims"] == {} and driver.prepared == set(), 20)


def test_a_damaged_state_file_is_named(actor: ActorProcess, capfd: pytest.CaptureFixture[str]) -> None:
    actor.kill()
    path = Path(actor.settings.root_dir) / "dra_manager_state"
    path.write_text("{")
    actor.start(wait_ready_s=0)
    said = ""

    def is_said() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return f'delete the dra manager checkpoint file "{path}"' in said

    wait_for(is_said, 20)
    path.unlink()


def spawn(actor: ActorProcess) -> subprocess.Popen[bytes]:
    """A driver in a process of its own."""
    command = [sys.executable, "-m", "tests.resources.dra.driver", actor.settings.root_dir]
    return subprocess.Popen(command)


KILLS = 40


@pytest.mark.timeout(120 + 6 * KILLS)
def test_kills_of_actor_and_driver_leave_no_claim_behind(actor: ActorProcess, server: Server) -> None:
    dice, process, running = random.Random(11), spawn(actor), dict[str, Pod]()
    driver = Driver(Path(actor.settings.root_dir))  # only its file is read
    wait_for(lambda: NAME in drivers(actor), 30)
    try:
        for number in range(KILLS):
            subject = pod(f"u{number}", f"c{number}")
            server.put(claim(f"c{number}", f"u{number}"))
            actor.tell(SetPods(pods=(subject,)))
            actor.tell(PrepareClaims(pod=subject))  # the kill may come within this call
            victims = dice.choice(["actor", "driver", "both"])
            if victims != "actor":
                process.send_signal(signal.SIGKILL)
                process.wait()
                process = spawn(actor)
            if victims != "driver":
                actor.restart()
                actor.tell(SetPods(pods=(*running.values(), subject), full=True))
            prepare_soon(actor, subject)
            running[subject.metadata.uid] = subject
            assert cdi(actor, subject) == (f"test/dra=dev-c{number}",)
            assert driver.prepared >= {f"uid-c{uid[1:]}" for uid in running}
            if len(running) > 3:
                gone = dice.choice(sorted(running))
                del running[gone]
                unprepare_soon(actor, gone)
        wait_for(lambda: driver.prepared == {f"uid-c{uid[1:]}" for uid in running}, 30)
        actor.tell(SetPods(pods=(), full=True))
        wait_for(lambda: driver.prepared == set() and state(actor)["claims"] == {}, 60)
    finally:
        process.kill()
        process.wait()

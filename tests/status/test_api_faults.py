"""Pod writes reach an API server that refuses, throttles, hangs or goes away; the ends of pods go first."""

from __future__ import annotations

import time

import pytest

from proto.pods.status import ListPods
from proto.v1 import ContainerState, ContainerStateWaiting, ContainerStatus, PodStatus
from tests.harness import Stalls, wait_for
from tests.kube.faulty_server import Call, Half, Reply, Reset, Stall, Step, failure
from tests.status.cluster import PODS, STATUSES, Cluster, running, static

THROTTLED = failure(429, "TooManyRequests", retry_after_s=1)


def name_of(call: Call) -> str:
    return call.path.split("/")[-2]


@pytest.mark.parametrize(
    "steps",
    [
        (failure(500, "InternalError"), failure(503, "ServiceUnavailable")),
        (failure(401, "Unauthorized"), failure(401, "Unauthorized"), failure(401, "Unauthorized")),
        (failure(403, "Forbidden"),),
        (failure(409, "Conflict"), failure(409, "Conflict")),
        (failure(410, "Gone"),),
        (failure(422, "Invalid"),),
        (Reset(), Reset(after=True), Reset()),
        (Half(), Half(b"<html>")),
        (Stall(1.0),),
        (failure(429, "TooManyRequests"), THROTTLED),
        (Reply(200, {"status": "ok"}), Reply(200, {}), Reply(200, {"metadata": {"uid": 5}})),
    ],
    ids=lambda steps: "-".join(type(one).__name__ if not hasattr(one, "status") else str(one.status) for one in steps),
)
def test_failed_write_is_repeated(cluster: Cluster, steps: tuple[Step, ...]) -> None:
    pod = cluster.create("said-again")
    cluster.faulty.on("PATCH", STATUSES, *steps)
    cluster.set_pod(pod, running())
    cluster.wait_phase("said-again", "Running")
    cluster.settled()
    assert len(cluster.writes()) <= len(steps) + 2
    state = cluster.api_state()
    assert (state["outage"], state["refused"]) == ("", {})


def test_throttling_is_respected_and_ends_go_first_after_it(cluster: Cluster) -> None:
    kinds = {
        "rest-a": running("False", "Pending", message="of no hurry"),
        "rest-b": running("False", "Pending", message="of no hurry"),
        "ready-a": running(),
        "end-a": running("False", "Failed"),
    }
    pods = {name: cluster.create(name) for name in kinds}
    cluster.settled()
    first = cluster.create("first")
    cluster.faulty.on("PATCH", STATUSES, failure(429, "TooManyRequests", retry_after_s=4))
    cluster.set_pod(first, running())
    wait_for(lambda: cluster.writes("first"), 10)
    throttled_at = cluster.faulty.of("PATCH", STATUSES)[-1].at
    # The two that may be under way together stay so until both are there: which is written down first is chance.
    cluster.faulty.always("PATCH", f"{PODS}/(first|ready-a)/", Stall())
    for name, status in kinds.items():
        cluster.set_pod(pods[name], status, "terminated" if name == "end-a" else "sync")
    cluster.wait_phase("end-a", "Failed")
    wait_for(lambda: len(cluster.writes("first")) == 2 and cluster.writes("ready-a"), 20, "both are under way")
    cluster.faulty.heal()
    cluster.settled()
    later = cluster.faulty.of("PATCH", STATUSES)[1:]
    assert later[0].at - throttled_at >= 4
    order = [name_of(one) for one in later]
    assert order[0] == "end-a"
    assert set(order[1:3]) == {"first", "ready-a"}
    assert set(order[3:]) == {"rest-a", "rest-b"}


def test_refused_pod_holds_up_no_other(cluster: Cluster) -> None:
    bad, good = cluster.create("refused"), cluster.create("taken")
    cluster.faulty.always("PATCH", f"{PODS}/refused/", failure(500, "InternalError"))
    cluster.set_pod(bad, running("False", "Failed"), "terminated")
    wait_for(lambda: cluster.writes("refused"), 10)
    began = time.monotonic()
    with Stalls() as machine:
        cluster.set_pod(good, running())
        wait_for(lambda: cluster.writes("taken"), 20)
    (write,) = cluster.faulty.of("PATCH", f"{PODS}/taken/status")
    assert write.at - began < 2 + machine.longest_s  # how long the API server takes is not the actor's
    cluster.wait_phase("taken", "Running")
    wait_for(lambda: len(cluster.writes("refused")) >= 3, 10)
    assert "cannot" not in cluster.api_state()["outage"]
    assert "made on purpose" in str(cluster.api_state()["refused"])
    cluster.faulty.heal()
    cluster.wait_phase("refused", "Failed")


def test_changes_during_an_outage_become_one_write_per_pod(cluster: Cluster) -> None:
    pods = [cluster.create(f"away-{number}") for number in range(10)]
    cluster.settled()
    cluster.faulty.always("*", "/", Reset())
    for turn in range(20):
        for pod in pods:
            cluster.set_pod(pod, running("True" if turn % 2 else "False", pod_ip=f"10.0.0.{turn}"))
        time.sleep(0.05)
    assert len(cluster.faulty.of("PATCH", STATUSES)) < 60
    began = time.monotonic()
    with Stalls() as machine:
        cluster.faulty.heal()
        before = len(cluster.faulty.of("PATCH", STATUSES))
        for pod in pods:
            wait_for(lambda pod=pod: cluster.get(pod.metadata.name)["status"].get("podIP") == "10.0.0.19", 60)
    first = next(one for one in cluster.faulty.of("PATCH", STATUSES) if one.at >= began)
    assert first.at - began < 8 + machine.longest_s  # how long the API server takes is not the actor's
    cluster.settled()
    assert len(cluster.faulty.of("PATCH", STATUSES)) <= before + len(pods)


def test_stalled_calls_end_when_the_server_goes_on(cluster: Cluster) -> None:
    pods = [cluster.create(f"stalled-{number}") for number in range(4)]
    cluster.settled()
    cluster.faulty.always("PATCH", STATUSES, Stall())
    for pod in pods:
        cluster.set_pod(pod, running())
    wait_for(lambda: len(cluster.faulty.of("PATCH", STATUSES)) == 2, 10)
    cluster.api_state()  # it has been told of all four
    assert {one.metadata.name for one in cluster.status.ask(ListPods()).pods} == {one.metadata.name for one in pods}
    cluster.faulty.heal()
    for pod in pods:
        cluster.wait_phase(pod.metadata.name, "Running", 10)


def test_kill_during_a_call_loses_no_status(cluster: Cluster) -> None:
    pod = cluster.create("killed-over")
    cluster.settled()
    cluster.faulty.on("PATCH", STATUSES, Stall())
    cluster.set_pod(pod, running("False", "Failed"), "terminated")
    wait_for(lambda: cluster.writes("killed-over"), 10)
    cluster.restart()
    cluster.faulty.release()
    cluster.wait_phase("killed-over", "Failed")


def test_too_large_status_is_written_with_short_messages(cluster: Cluster) -> None:
    pod = cluster.create("wordy")
    waiting = ContainerStateWaiting(reason="CreateContainerError", message="word " * 500_000)
    containers = (ContainerStatus(name="c", image="busybox", state=ContainerState(waiting=waiting)),)
    cluster.set_pod(pod, PodStatus(phase="Pending", pod_ip="10.0.0.3", container_statuses=containers))
    wait_for(lambda: cluster.get("wordy")["status"].get("podIP") == "10.0.0.3", 20)
    (stored,) = cluster.get("wordy")["status"]["containerStatuses"]
    assert stored["state"]["waiting"]["reason"] == "CreateContainerError"
    assert 0 < len(stored["state"]["waiting"]["message"]) <= 1024
    cluster.settled()
    assert len(cluster.writes("wordy")) == 2


def test_mirror_is_adopted_when_the_answer_to_its_post_is_lost(cluster: Cluster) -> None:
    cluster.faulty.on("POST", PODS, Reset(after=True))
    cluster.set_pod(static("adopted-status-node", node=cluster.node))
    wait_for(lambda: cluster.phase("adopted-status-node") == "Running", 20)
    assert len(cluster.faulty.of("POST", PODS)) <= 2


def test_mirror_waits_for_its_node(cluster: Cluster) -> None:
    node = f"/api/v1/nodes/{cluster.node}"
    cluster.faulty.on("GET", node, failure(404, "NotFound"), failure(404, "NotFound"))
    cluster.set_pod(static("early-status-node", node=cluster.node))
    wait_for(lambda: cluster.phase("early-status-node") == "Running", 10)


def test_odd_answers_about_the_node_delay_the_mirror_only(cluster: Cluster) -> None:
    node = f"/api/v1/nodes/{cluster.node}"
    cluster.faulty.on(
        "GET", node, *(Reply(200, odd) for odd in ({"status": "ok"}, {}, {"metadata": "x"}, {"metadata": {}}))
    )
    cluster.set_pod(static("odd-status-node", node=cluster.node))
    wait_for(lambda: cluster.phase("odd-status-node") == "Running", 15)


def test_deletion_whose_answer_is_lost_counts_as_done(cluster: Cluster) -> None:
    pod = cluster.create("deleted-lost")
    cluster.set_pod(pod, running())
    cluster.wait_phase("deleted-lost", "Running")
    cluster.delete("deleted-lost")
    cluster.faulty.on("DELETE", PODS, failure(500, "InternalError"), Reset(after=True))
    cluster.set_pod(pod, running("False", "Failed"), "released")
    wait_for(lambda: not cluster.get("deleted-lost"), 10)
    cluster.settled()
    assert cluster.api_state()["refused"] == {}

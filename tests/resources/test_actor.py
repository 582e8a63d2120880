"""The resources actor as a process, with a provider of the tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from proto.agent.actor import GetMetrics
from proto.pods.pod_workers import ResourcesState
from proto.resources.resources import AdmitPod, GetGrant, HasExclusiveCpus, ReleasePod, SetPods
from proto.v1 import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from proto.wire.errors import Refused
from tests.harness import ActorProcess, wait_for
from tests.resources.provider import DEVICE, PRELUDE


def pod(uid: str, *cpus: int, **annotations: str) -> Pod:
    """A pod with a container for each count of CPUs: c0, c1, ..."""
    containers = tuple(
        Container(name=f"c{index}", resources=ResourceRequirements(requests={"cpu": str(count)}))
        for index, count in enumerate(cpus)
    )
    meta = ObjectMeta(name=uid, namespace="default", uid=uid, annotations=annotations)
    return Pod(metadata=meta, spec=PodSpec(containers=containers))


@pytest.fixture
def actor() -> Iterator[ActorProcess]:
    with ActorProcess("resources", peers=("pod_workers",), prelude=PRELUDE) as process:
        yield process


def cpus(actor: ActorProcess, of: Pod, container: str = "c0") -> str:
    return actor.ask(GetGrant(pod=of, container=container)).grant.cpus


def test_each_container_gets_cpus_of_its_own(actor: ActorProcess) -> None:
    web = pod("web", 2, 1)
    actor.ask(AdmitPod(pod=web))
    assert (cpus(actor, web, "c0"), cpus(actor, web, "c1")) == ("0,1", "2")
    assert actor.ask(HasExclusiveCpus(pod=web)).exclusive
    assert not actor.ask(HasExclusiveCpus(pod=pod("other", 1))).exclusive


def test_grants_survive_a_kill(actor: ActorProcess) -> None:
    web = pod("web", 2)
    actor.ask(AdmitPod(pod=web))
    actor.kill()
    actor.start()
    assert cpus(actor, web) == "0,1"
    actor.ask(AdmitPod(pod=pod("other", 1)))
    assert cpus(actor, pod("other", 1)) == "2"


def test_failed_admission_keeps_nothing(actor: ActorProcess) -> None:
    actor.tell(SetPods(pods=(), full=True))
    with pytest.raises(Refused, match="8 CPUs are wanted and 6 are free") as refused:
        actor.ask(AdmitPod(pod=pod("large", 2, 8)))
    assert (refused.value.reason, refused.value.retry) == ("UnexpectedAdmissionError", False)
    actor.ask(AdmitPod(pod=pod("next", 8)))


def test_nothing_is_final_before_all_pods_are_known(actor: ActorProcess) -> None:
    actor.ask(AdmitPod(pod=pod("gone", 8)))
    actor.kill()
    actor.start()
    with pytest.raises(Refused, match="not all pods") as refused:
        actor.ask(AdmitPod(pod=pod("new", 1)))
    assert refused.value.retry
    actor.tell(SetPods(pods=(), full=True))
    actor.ask(AdmitPod(pod=pod("new", 1)))


def test_waiting_pod_is_told_what_it_waits_for(actor: ActorProcess) -> None:
    actor.tell(SetPods(pods=(), full=True))
    waits = pod("waits", 1, waits="yes")
    with pytest.raises(Refused, match=f"no device plugin has registered {DEVICE}") as refused:
        actor.ask(AdmitPod(pod=waits))
    assert refused.value.retry
    registered = Path(actor.settings.root_dir, "registered")
    registered.parent.mkdir(exist_ok=True)
    registered.touch()
    actor.ask(AdmitPod(pod=waits))


def test_admissions_are_counted(actor: ActorProcess) -> None:
    actor.tell(SetPods(pods=(), full=True))
    for count in (2, 9):
        with contextlib.suppress(Refused):
            actor.ask(AdmitPod(pod=pod(f"pod-{count}", count)))
    samples = actor.ask(GetMetrics()).samples
    assert dict(samples["kubelet_topology_manager_admission_requests_total"]) == {(): (2.0,)}
    assert dict(samples["kubelet_topology_manager_admission_errors_total"]) == {(): (0.0,)}
    assert dict(samples["kubelet_cpu_manager_exclusive_cpu_allocation_count"]) == {(): (0.0,)}


def test_released_cpus_are_given_again(actor: ActorProcess) -> None:
    actor.ask(AdmitPod(pod=pod("first", 8)))
    actor.tell(ReleasePod(pod_uid="first"))
    actor.ask(AdmitPod(pod=pod("second", 8)))


def test_pod_workers_is_told_what_is_assigned(actor: ActorProcess) -> None:
    peer = actor.peers["pod_workers"]
    wait_for(lambda: peer.of(ResourcesState))
    assert peer.of(ResourcesState)[-1].device_resources == (DEVICE,)
    before = len(peer.of(ResourcesState))
    actor.tell(SetPods(pods=(), full=True))
    wait_for(lambda: len(peer.of(ResourcesState)) > before)


@pytest.mark.parametrize("kills", [25])
def test_kills_under_churn_give_no_cpu_twice(actor: ActorProcess, kills: int) -> None:
    """The actor is killed within admissions and releases. What was answered holds, and nothing else does in the end."""
    random = Random(kills)
    held: dict[str, str] = {}
    asked: list[Pod] = []
    for turn in range(kills):
        actor.tell(SetPods(pods=tuple(pod(uid, 2) for uid in held), full=True))
        for number in range(random.randint(1, 3)):
            asked.append(new := pod(f"{turn}-{number}", 2))
            if len(held) < 3 and random.random() < 0.7:
                actor.ask(AdmitPod(pod=new))
                held[new.metadata.uid] = cpus(actor, new)
            elif held and random.random() < 0.5:
                del held[(gone := random.choice(sorted(held)))]
                actor.tell(ReleasePod(pod_uid=gone))
        for _ in range(20):  # one of them is under way when the kill comes
            actor.tell(ReleasePod(pod_uid="cut"))
            actor.tell(AdmitPod(pod=pod("cut", 2)))
        actor.kill()
        actor.start()
        assert {uid: cpus(actor, pod(uid, 2)) for uid in held} == held
        given = [cpu for text in held.values() for cpu in text.split(",")]
        assert len(given) == len(set(given))
    actor.tell(SetPods(pods=(), full=True))
    actor.ask(AdmitPod(pod=pod("all", 8)))

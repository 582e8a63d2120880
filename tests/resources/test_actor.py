"""The resources actor as a process, with a provider of the tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from actors.resources.machine.cpusets import parse
from actors.resources.topology.policy import Policy, Scope
from proto.agent.actor import Describe, GetMetrics
from proto.agent.settings import ReservedMemory, Settings
from proto.pods.pod_workers import ResourcesState
from proto.resources.resources import AdmitPod, GetGrant, HasExclusiveCpus, ReleasePod, SetPods
from proto.v1 import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from proto.wire.errors import Refused
from tests.harness import ActorProcess, wait_for
from tests.resources.provider import DEVICE, MACHINE, PRELUDE, SOCKET

KILLS = 10


def pod(uid: str, *cpus: int, **annotations: str) -> Pod:
    """A Guaranteed pod with a container for each count of CPUs: c0, c1, ..."""

    def container(name: str, count: int) -> Container:
        amounts: dict[str, int | float | str] = {"cpu": str(count), "memory": "1Mi"}
        return Container(name=name, resources=ResourceRequirements(limits=amounts, requests=amounts))

    containers = tuple(container(f"c{index}", count) for index, count in enumerate(cpus))
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


def counts(actor: ActorProcess) -> dict[str, float]:
    """Of admissions and pinned containers, by the differing part of the metric's name."""
    samples = actor.ask(GetMetrics()).samples
    names = ("topology_manager_admission_requests", "topology_manager_admission_errors")
    names += ("cpu_manager_pinning_requests", "cpu_manager_pinning_errors")
    return {name: dict(samples[f"kubelet_{name}_total"])[()][0] for name in names}


def counted(admissions: int, rejected: int, pinned: int, failed: int) -> dict[str, float]:
    return {
        "topology_manager_admission_requests": admissions,
        "topology_manager_admission_errors": rejected,
        "cpu_manager_pinning_requests": pinned,
        "cpu_manager_pinning_errors": failed,
    }


def test_waiting_pod_counts_as_one_admission(actor: ActorProcess) -> None:
    actor.tell(SetPods(pods=(), full=True))
    for _ in range(3):
        with pytest.raises(Refused):
            actor.ask(AdmitPod(pod=pod("waits", 1, waits="yes")))
    assert counts(actor)["topology_manager_admission_requests"] == 1
    actor.tell(ReleasePod(pod_uid="waits"))
    with pytest.raises(Refused):
        actor.ask(AdmitPod(pod=pod("waits", 1, waits="yes")))
    assert counts(actor)["topology_manager_admission_requests"] == 2


@pytest.mark.parametrize(("policy", "rejected"), [("none", 0), ("best-effort", 1)])
def test_rejected_pod_counts_once_and_only_when_it_is_final(policy: Policy, rejected: int) -> None:
    """Of 9 CPUs one is reserved. The first container gets 2, and the second one too few."""
    settings = Settings(cpu_manager_policy="static", reserved_system_cpus="0", topology_manager_policy=policy)
    with ActorProcess("resources", settings, peers=("pod_workers",), prelude=MACHINE) as actor:
        for _ in range(2):
            with pytest.raises(Refused, match="not all pods"):
                actor.ask(AdmitPod(pod=pod("large", 2, 9)))
        assert counts(actor) == counted(1, 0, 2, 0)
        actor.tell(SetPods(pods=(pod("large", 2, 9),), full=True))
        with pytest.raises(Refused) as refused:
            actor.ask(AdmitPod(pod=pod("large", 2, 9)))
        assert not refused.value.retry
        assert counts(actor) == counted(1, rejected, 2, 1)
        actor.ask(AdmitPod(pod=pod("small", 2)))
        assert counts(actor) == counted(2, rejected, 3, 1)


@pytest.mark.parametrize("topology_scope", ["container", "pod"])
def test_aligned_pods_count_and_rejected_ones_once(topology_scope: Scope) -> None:
    """Of 9 CPUs one is reserved, and no pod gets 9."""
    settings = Settings(
        cpu_manager_policy="static",
        cpu_manager_policy_options={"full-pcpus-only": "true"},
        reserved_system_cpus="0",
        topology_manager_policy="single-numa-node",
        topology_manager_scope=topology_scope,
    )

    def aligned(kind: str) -> dict[tuple[str, ...], float]:
        samples = dict(actor.ask(GetMetrics()).samples[f"kubelet_container_aligned_compute_resources{kind}_count"])
        return {labels: values[0] for labels, values in samples.items()}

    zero = dict.fromkeys([("container", "numa_node"), ("container", "physical_cpu"), ("pod", "numa_node")], 0.0)
    cores, of_scope = ("container", "physical_cpu"), (topology_scope, "numa_node")
    with ActorProcess("resources", settings, peers=("pod_workers",), prelude=MACHINE) as actor:
        wait_for(lambda: aligned("") == aligned("_failure") == zero, 10)
        for _ in range(2):
            with pytest.raises(Refused, match="not all pods"):
                actor.ask(AdmitPod(pod=pod("large", 9)))
        actor.tell(SetPods(pods=(), full=True))
        with pytest.raises(Refused, match="Topology locality"):
            actor.ask(AdmitPod(pod=pod("large", 9)))
        actor.ask(AdmitPod(pod=pod("small", 2, 1)))
        assert aligned("_failure") == zero | {of_scope: 1.0}
        expected = zero | {cores: 2.0, of_scope: 1.0 if topology_scope == "pod" else 2.0}
        assert aligned("") == expected
        before = counts(actor)
        actor.tell(SetPods(pods=(pod("small", 2, 1),), full=True))  # as a new pod_workers does
        actor.ask(AdmitPod(pod=pod("small", 2, 1), running=True))
        assert (aligned(""), counts(actor)) == (expected, before)
        with pytest.raises(Refused, match="Topology locality"):
            actor.ask(AdmitPod(pod=pod("half", 1, 9)))
        assert aligned("") == (expected if topology_scope == "pod" else zero | {cores: 3.0, of_scope: 3.0})


def test_running_pod_with_cpus_of_two_nodes_is_not_refused() -> None:
    """Its CPUs are of its socket, of several NUMA nodes, and its memory is of one: hints of both do not fit."""
    settings = Settings(
        cpu_manager_policy="static",
        cpu_manager_policy_options={"align-by-socket": "true"},
        reserved_system_cpus="0",
        topology_manager_policy="restricted",
        memory_manager_policy="Static",
        reserved_memory=(ReservedMemory(numa_node=0, limits={"memory": "100Mi"}),),
        system_reserved={"memory": "100Mi"},
        eviction_hard={},
    )
    with ActorProcess("resources", settings, peers=("pod_workers",), prelude=SOCKET) as actor:
        actor.tell(SetPods(pods=(), full=True))
        actor.ask(AdmitPod(pod=pod("small", 1)))
        wide = pod("wide", 3)
        actor.ask(AdmitPod(pod=wide))
        held = actor.ask(GetGrant(pod=wide, container="c0")).grant
        assert (held.cpus, held.memory_nodes) == ("2-4", "1")
        actor.restart()
        actor.tell(SetPods(pods=(pod("small", 1), wide), full=True))
        actor.ask(AdmitPod(pod=wide, running=True))
        assert counts(actor)["topology_manager_admission_errors"] == 0
        assert actor.ask(GetGrant(pod=wide, container="c0")).grant == held
        with pytest.raises(Refused, match="Topology locality"):  # it has none, and no node has 4 CPUs
            actor.ask(AdmitPod(pod=pod("without", 4), running=True))
        assert counts(actor)["topology_manager_admission_errors"] == 1


def test_released_cpus_are_given_again(actor: ActorProcess) -> None:
    actor.ask(AdmitPod(pod=pod("first", 8)))
    actor.tell(ReleasePod(pod_uid="first"))
    actor.ask(AdmitPod(pod=pod("second", 8)))


@pytest.mark.parametrize("gone", [SetPods(pods=(), full=True), ReleasePod(pod_uid="gone")])
def test_pod_that_goes_in_its_turn_takes_nothing_more(actor: ActorProcess, gone: SetPods | ReleasePod) -> None:
    """It goes before its first CPUs are taken, and others wait for their turn."""
    actor.tell(SetPods(pods=(), full=True))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(actor.ask, AdmitPod(pod=pod("gone", 2, 2, slow="yes")))
        wait_for(lambda: under_way(actor) == ["gone"])
        second = pool.submit(actor.ask, AdmitPod(pod=pod("next", 8)))
        wait_for(lambda: under_way(actor) == ["gone", "next"])
        actor.tell(SetPods(pods=(pod("next", 8),), full=True) if isinstance(gone, SetPods) else gone)
        actor.ask(Describe())  # answered after it: the file must not overtake the message
        Path(actor.settings.root_dir, "go").touch()
        with pytest.raises(Refused, match="released"):
            first.result(20)
        second.result(20)
    assert cpus(actor, pod("next", 8)) == "0,1,2,3,4,5,6,7"


def under_way(actor: ActorProcess) -> list[str]:
    found: list[str] = actor.ask(Describe()).state["admissions_under_way"]
    return found


def test_pod_workers_is_told_what_is_assigned(actor: ActorProcess) -> None:
    peer = actor.peers["pod_workers"]
    wait_for(lambda: peer.of(ResourcesState))
    assert peer.of(ResourcesState)[-1].device_resources == (DEVICE,)
    before = len(peer.of(ResourcesState))
    actor.tell(SetPods(pods=(), full=True))
    wait_for(lambda: len(peer.of(ResourcesState)) > before)


@pytest.fixture
def static_actor() -> Iterator[ActorProcess]:
    """With the static policy, on a machine of 9 CPUs of which CPU 0 is reserved."""
    settings = Settings(cpu_manager_policy="static", reserved_system_cpus="0")
    with ActorProcess("resources", settings, peers=("pod_workers",), prelude=MACHINE) as process:
        yield process


@pytest.mark.parametrize("of", ["actor", "static_actor"])
def test_kills_under_churn_give_no_cpu_twice(request: pytest.FixtureRequest, of: str) -> None:
    """The actor is killed within admissions and releases. Each answer holds, and in the end nothing else does."""
    actor, random = request.getfixturevalue(of), Random(KILLS)
    held: dict[str, str] = {}
    for turn in range(KILLS):
        actor.tell(SetPods(pods=tuple(pod(uid, 2) for uid in held), full=True))
        for number in range(random.randint(1, 3)):
            if len(held) < 3 and random.random() < 0.7:
                new = pod(f"{turn}-{number}", 2)
                actor.ask(AdmitPod(pod=new))
                held[new.metadata.uid] = cpus(actor, new)
            elif held and random.random() < 0.5:
                del held[(gone := random.choice(sorted(held)))]
                actor.tell(ReleasePod(pod_uid=gone))
        for _ in range(20):  # one of them is under way when the kill comes
            actor.tell(ReleasePod(pod_uid="cut"))
            actor.tell(AdmitPod(pod=pod("cut", 2)))
        actor.restart()
        assert {uid: cpus(actor, pod(uid, 2)) for uid in held} == held
        given = [cpu for text in held.values() for cpu in parse(text)]
        assert len(given) == len(set(given)) == 2 * len(held)
    actor.tell(SetPods(pods=(), full=True))
    actor.ask(AdmitPod(pod=pod("all", 8)))


def test_policy_none_asks_the_runtime_for_nothing(actor: ActorProcess) -> None:
    assert actor.ask(Describe()).state["cpu_updates"] == 0


def test_shared_pool_is_told_when_it_changes(static_actor: ActorProcess) -> None:
    def told() -> list[str]:
        return [one.shared_cpus for one in static_actor.peers["pod_workers"].of(ResourcesState)]

    wait_for(lambda: told() == ["0-8"])
    static_actor.ask(AdmitPod(pod=pod("web", 2)))
    wait_for(lambda: told() == ["0-8", "0,3-8"])
    static_actor.tell(ReleasePod(pod_uid="web"))
    wait_for(lambda: told() == ["0-8", "0,3-8", "0-8"])

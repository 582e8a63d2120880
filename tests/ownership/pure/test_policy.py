"""The decision from collected facts, and the names in its message."""

from __future__ import annotations

import pytest

from supervisor.ownership.places import Place
from supervisor.ownership.policy import (
    Agent,
    Facts,
    ForeignPod,
    LockedPlace,
    Own,
    Port,
    Process,
    RuntimeFacts,
    decide,
    lost_runtime,
)

ROOT = Place("root directory /r", "--root-dir", "/r")
LOGS = Place("pod logs /l", "--pod-logs-dir", "/l")
CPU, MEMORY = (Place("cgroup /kubepods", "--cgroup-root", f"/sys/{one}/kubepods", cgroup=True) for one in "cm")
OWN = Own(uid=0, run_dir="/run/ours", root_dir="/r")
OTHER = Process(7, "supervisor", 0, "/run/theirs")
KUBELET = Agent(Process(9, "kubelet"), ("root directory /r", "cgroup /kubepods"), "/run/kubelet.lock")
POD = ForeignPod("u-1", "/kubepods/besteffort/podu-1", 11, "sleep")

REFUSED = {
    "another nodevisor": (
        Facts(locked=(LockedPlace(ROOT, OTHER), LockedPlace(CPU, OTHER), LockedPlace(MEMORY, OTHER))),
        [
            "another nodevisor, pid 7 with run directory /run/theirs, serves root directory /r, cgroup /kubepods;",
            "`supervisor stop --run-dir /run/theirs`",
            "--root-dir, --cgroup-root",
        ],
    ),
    "our own run directory": (
        Facts(locked=(LockedPlace(ROOT, OTHER._replace(run_dir="/run/ours")),)),
        ["/run/ours is in use by the supervisor with pid 7", "another --run-dir and other --root-dir"],
    ),
    "a start that has no run directory yet": (
        Facts(locked=(LockedPlace(ROOT, Process(7, "python3")),)),
        ["python3 (pid 7) serves root directory /r", "kill 7"],
    ),
    "a holder in another pid namespace": (
        Facts(locked=(LockedPlace(LOGS, None),)),
        ["a process that cannot be seen from here", "serves pod logs /l", "--pod-logs-dir"],
    ),
    "a cgroup around ours": (
        Facts(locked=(LockedPlace(CPU, OTHER, "contains"),)),
        ["serves a cgroup that contains our cgroup /kubepods"],
    ),
    "a kubelet": (
        Facts(agents=(KUBELET,)),
        [
            "kubelet (pid 9) serves root directory /r, cgroup /kubepods and holds lock file /run/kubelet.lock",
            "systemctl stop kubelet",
            "choose other directories",
        ],
    ),
    "five kubelets": (
        Facts(agents=(KUBELET,) * 5),
        ["(so do kubelet (pid 9), kubelet (pid 9), kubelet (pid 9) and 1 more)"],
    ),
    "a port": (
        Facts(ports=(Port(10250, "--port", Process(5, "nginx")), Port(10248, "--healthz-port", None))),
        [
            "port 10250 is in use by nginx (pid 5) and port 10248 is in use by a process that cannot be seen",
            "--port, --healthz-port",
        ],
    ),
    "a port of another nodevisor": (
        Facts(ports=(Port(10250, "--port", OTHER),)),
        ["port 10250 is in use by another nodevisor, pid 7 with run directory /run/theirs"],
    ),
    "a pod": (
        Facts(pods=(POD,)),
        ["1 pod of another agent runs below our cgroup root", "u-1 in /kubepods", "pid 11 sleep", "--take-over"],
    ),
    "many pods": (Facts(pods=(POD,) * 9), ["9 pods of another agent run", "and 6 more"]),
}


@pytest.mark.parametrize(("facts", "said"), REFUSED.values(), ids=REFUSED)
def test_start_beside_another_agent_is_refused_by_name(facts: Facts, said: list[str]) -> None:
    refusal = decide(facts, OWN).refusal
    assert refusal.startswith("cannot start: ")
    assert "\n" not in refusal
    for part in said:
        assert part in refusal


@pytest.mark.parametrize("facts", [facts for facts, _ in REFUSED.values() if not facts.pods])
def test_take_over_is_refused_beside_a_living_agent(facts: Facts) -> None:
    assert decide(facts, OWN._replace(take_over=True)).refusal
    assert not decide(facts, OWN._replace(take_over=True)).adopted


def test_taking_over_makes_the_pods_ours() -> None:
    decision = decide(Facts(pods=(POD, POD._replace(uid="u-2"))), OWN._replace(take_over=True))
    assert (decision.refusal, decision.adopted) == ("", ("u-1", "u-2"))


def test_with_nothing_found_the_agent_starts() -> None:
    assert decide(Facts(), OWN) == ("", (), ())


@pytest.mark.parametrize(("uid", "of_ours"), [(1000, 0), (0, 1000), (1000, 1000)])
def test_ordinary_users_lock_stops_only_agents_of_that_user(uid: int, of_ours: int) -> None:
    decision = decide(Facts(locked=(LockedPlace(LOGS, Process(7, "flock", uid)),)), OWN._replace(uid=of_ours))
    harmless = uid == 1000 and of_ours == 0
    assert bool(decision.refusal) == (not harmless)
    assert [("flock (pid 7) of uid 1000" in one) for one in decision.warnings] == [True] * harmless


CONTAINERD, CRIO = "unix:///run/containerd/containerd.sock", "unix:///run/crio/crio.sock"
ALIVE = "pod u-1, pid 11 postgres"


@pytest.mark.parametrize(("former", "chosen"), [(CONTAINERD, CRIO), (CONTAINERD, "embedded"), ("embedded", CONTAINERD)])
def test_another_runtime_than_that_of_running_pods_is_refused(former: str, chosen: str) -> None:
    last = RuntimeFacts(former=former, alive=ALIVE, record="/r/nodevisor/last-start.json")
    said = decide(Facts(runtime=last), OWN._replace(endpoint=chosen, take_over=True)).refusal
    assert f"container runtime {former} runs pods of ours ({ALIVE}), and {chosen} would start them" in said
    assert f"--container-runtime-endpoint={former}, or end the pods" in said
    assert "remove /r/nodevisor/last-start.json" in said


@pytest.mark.parametrize(
    ("last", "chosen"),
    [
        (RuntimeFacts(former=CONTAINERD, alive=ALIVE), CONTAINERD),
        (RuntimeFacts(former=CONTAINERD), CRIO),  # every pod has ended, or the machine was rebooted
        (RuntimeFacts(alive=ALIVE), CONTAINERD),  # a kubelet's pods, or a release without the file
        (RuntimeFacts(), "embedded"),
    ],
)
def test_runtime_of_the_running_pods_and_any_without_pods_may_start(last: RuntimeFacts, chosen: str) -> None:
    assert decide(Facts(runtime=last), OWN._replace(endpoint=chosen)) == ("", (), ())


def test_containers_left_on_the_embedded_runtime_are_reported() -> None:
    left = "container 0123 of the embedded runtime, pid 7 sleep"
    last = RuntimeFacts(former=CONTAINERD, alive=ALIVE, embedded=left)
    assert left in decide(Facts(runtime=last), OWN._replace(endpoint=CONTAINERD)).warnings[0]
    assert decide(Facts(runtime=RuntimeFacts("embedded", left, left)), OWN._replace(endpoint="embedded")).warnings == ()


def test_refusal_to_choose_a_runtime_says_what_to_do() -> None:
    unknown = lost_runtime(RuntimeFacts(alive=ALIVE))
    assert "no container runtime answers" in unknown
    assert f"pods of ours run ({ALIVE})" in unknown
    assert "name it with --container-runtime-endpoint" in unknown
    assert lost_runtime(RuntimeFacts(alive=ALIVE, damaged="cannot use F: bad")).startswith(
        "cannot use F: bad, and pods"
    )

"""`walk.why`: tables of facts, and the root cause that comes first."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proto.agent.supervisor import ActorRow
from proto.waits.chain import CODES, Answer
from proto.waits.facts import ActorState, Facts, ProcessState, Runtime, states
from proto.waits.record import RUNNING, Wait
from proto.waits.resolve import AmbiguousSubjectError, UnknownSubjectError, subject_of
from proto.waits.table import Table
from proto.waits.text import lines
from proto.waits.walk import why

NOW = 1000.0
POD = "pod/default/web"
SLEEPING = ProcessState(state="D", title="helper", wchan="nfs_wait", stack="[<0>] nfs_wait_bit_killable")
STOPPED = ProcessState(state="T", title="supervisor: volume", wchan="do_signal_stop")
RUNS = ProcessState(state="S", title="supervisor: x")
PIDS = {"pod_workers": 11, "volume": 12, "image_pull": 13, "pleg": 14, "objects": 15, "node": 16}


def wait(kind: Any, waiter: str = POD, target: str = "", what: str = "", age_s: float = 10.0, **more: Any) -> Wait:
    uid = more.pop("uid", "u1" if waiter == POD else "")
    return Wait(kind=kind, waiter=waiter, target=target, what=what, since=NOW - age_s, uid=uid, **more)


def ask(target: str, what: str, number: int = 1, **more: Any) -> Wait:
    return wait("ask", target=f"actor/{target}", what=what, number=number, **more)


def facts(processes: dict[int, ProcessState] | None = None, runtime: Runtime | None = None, **waits: Any) -> Facts:
    tables = {
        name: Table(name=name, incarnation=1, pid=pid, start_time=1, waits=tuple(waits.get(name, ())))
        for name, pid in PIDS.items()
    }
    states = dict.fromkeys(PIDS.values(), RUNS) | (processes or {})
    return Facts(now=NOW, tables=tables, processes=states, runtime=runtime or Runtime())


MOUNT = ("pod_workers", 1, 1)
HANDLER = wait("handler", "actor/volume", what="MountPod", ask=MOUNT)
VOLUMES = wait("condition", what="volumes")
WAITS_FOR_VOLUME = [VOLUMES, ask("volume", "MountPod", deadline=NOW + 110)]

CASES = {
    "actor stopped": (
        facts({12: STOPPED}, pod_workers=WAITS_FOR_VOLUME, volume=[HANDLER]),
        "actor-stopped",
        "waits for volume, which is stopped by a signal (process 12",
    ),
    "own actor stopped": (facts({11: STOPPED}), "actor-stopped", "waits for pod_workers, which is stopped"),
    "actor ended": (
        facts({12: ProcessState(state="")}, pod_workers=WAITS_FOR_VOLUME),
        "actor-gone",
        "process 12 has ended",
    ),
    "actor in the kernel": (
        facts(
            {12: SLEEPING},
            pod_workers=WAITS_FOR_VOLUME,
            volume=[wait("handler", "actor/volume", RUNNING, "Stop from supervisor")],
        ),
        "actor-sleeps",
        "waits for volume, which the kernel does not let go",
    ),
    "mailbox behind a handler": (
        facts(
            pod_workers=WAITS_FOR_VOLUME, volume=[wait("handler", "actor/volume", RUNNING, "MountPod from pod_workers")]
        ),
        "actor-busy",
        "whose handler of MountPod from pod_workers does not return for 10 s",
    ),
    "helper in D state": (
        facts(
            {99: SLEEPING},
            pod_workers=WAITS_FOR_VOLUME,
            volume=[HANDLER, wait("helper", target="helper/99", what='SetUp of volume "data"', ask=MOUNT)],
        ),
        "helper-sleeps",
        'the helper process that does SetUp of volume "data" for 10 s (process 99',
    ),
    "helper stopped": (
        facts(
            {99: STOPPED}, pod_workers=WAITS_FOR_VOLUME, volume=[HANDLER, wait("helper", target="helper/99", ask=MOUNT)]
        ),
        "helper-stopped",
        "kill -CONT 99",
    ),
    "volume written off": (
        facts(
            {99: SLEEPING},
            pod_workers=[wait("retry", what="volumes: FailedMount", error="does not answer")],
            volume=[wait("helper", "volume/default/web/data", "helper/99", 'volume "data"', uid="u1")],
        ),
        "helper-sleeps",
        "waits for the helper process",
    ),
    "secret missing": (
        facts(
            pod_workers=WAITS_FOR_VOLUME,
            volume=[
                HANDLER,
                wait(
                    "condition", "volume/default/web/cfg", what='volume "cfg"', error='secret "x" not found', uid="u1"
                ),
            ],
        ),
        "condition",
        'for volume "cfg": secret "x" not found',
    ),
    "pull under way": (
        facts(
            pod_workers=[wait("condition", what="image ghost"), ask("image_pull", "EnsureImage", 7)],
            image_pull=[
                wait("handler", "actor/image_pull", what="EnsureImage", ask=("pod_workers", 1, 7)),
                wait("condition", target="image/reg:5000/ghost:1", what="its pull", ask=("pod_workers", 1, 7)),
                wait("ask", "image/reg:5000/ghost:1", "actor/pleg", "CallRuntime", number=3),
            ],
            pleg=[wait("cri", "actor/pleg", "cri", "PullImage", ask=("image_pull", 1, 3), deadline=NOW + 590)],
        ),
        "cri",
        "PullImage is under way for 10 s, which gives up in 10 min",
    ),
    "runtime stopped": (
        facts(
            {77: STOPPED},
            Runtime(endpoint="unix:///c.sock", pid=77),
            pod_workers=[wait("condition", what="RunPodSandbox"), wait("cri", target="cri", what="RunPodSandbox")],
        ),
        "runtime-stopped",
        "kill -CONT 77",
    ),
    "runtime away": (
        facts(
            runtime=Runtime(endpoint="unix:///c.sock", problem="Connection refused"),
            pod_workers=[wait("cri", target="cri", what="RunPodSandbox", age_s=0.1)],
        ),
        "runtime-down",
        "does not listen (unix:///c.sock: Connection refused)",
    ),
    "hook goes before its exec": (
        facts(
            pod_workers=[
                wait("hook", what="postStart hook of container app"),
                wait("cri", target="cri", what="ExecSync"),
            ]
        ),
        "hook",
        "waits for 10 s for postStart hook of container app; nothing else ends it",
    ),
    "crash loop": (
        facts(
            pod_workers=[wait("retry", what="container app: CrashLoopBackOff", error="back-off 40s", next_try=NOW + 30)]
        ),
        "retry",
        "container app: CrashLoopBackOff: back-off 40s; next try in 30 s",
    ),
    "not admitted": (
        facts(pod_workers=[wait("admission", what="OutOfcpu: requested: 9999000, used: 0, capacity: 2000")]),
        "admission",
        "is not admitted for 10 s: OutOfcpu: requested: 9999000, used: 0, capacity: 2000",
    ),
    "API server does not answer": (
        facts(
            pod_workers=[ask("objects", "GetObjects", 4)],
            objects=[
                wait("handler", "actor/objects", what="GetObjects", ask=("pod_workers", 1, 4)),
                wait("http", "actor/objects", "host/https://10.0.0.1:6443", "GET /api/v1/x", ask=("pod_workers", 1, 4)),
            ],
        ),
        "http",
        "waits for https://10.0.0.1:6443, which has not answered GET /api/v1/x for 10 s",
    ),
    "blocking call": (
        facts(pod_workers=[wait("blocking", target="thread/55", what="create_pod_cgroup")]),
        "blocking",
        "waits for create_pod_cgroup in a thread of pod_workers",
    ),
    "thread in the kernel": (
        facts({55: SLEEPING}, pod_workers=[wait("blocking", target="thread/55", what="create_pod_cgroup")]),
        "thread-sleeps",
        "waits in nfs_wait",
    ),
    "turn": (
        facts(
            pod_workers=[wait("condition", target="image/r/x", what="its pull")],
            image_pull=[wait("queue", "image/r/x", "host/r", "pulls of r that began before")],
        ),
        "queue",
        "for its turn: pulls of r that began before",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_root_cause_comes_first(case: str) -> None:
    known, code, text = CASES[case]
    answer = why(known, POD)
    assert answer.causes, "no cause"
    assert answer.causes[0].code == code
    assert text in answer.sentence
    assert answer.sentence.startswith("Pod default/web ")
    assert "\n" not in answer.sentence


def test_runtime_that_ends_no_container_goes_before_the_overdue_end() -> None:
    """The grace period is over, and the runtime's answer still to come."""
    end = wait("hook", what="container app to end within 2 s", deadline=NOW - 8)
    stop = wait("cri", target="cri", what="StopContainer", deadline=NOW + 110)
    assert [one.code for one in why(facts(pod_workers=[end, stop]), POD).causes] == ["cri", "hook"]
    in_time = msgspec.structs.replace(end, deadline=NOW + 8)
    assert [one.code for one in why(facts(pod_workers=[in_time, stop]), POD).causes] == ["hook", "cri"]


def test_call_that_two_actors_record_is_one_cause() -> None:
    direct = wait("cri", "image/x", target="cri", what="PullImage", uid="")
    waits = [wait("condition", target="image/x", what="its pull")]
    passed_on = wait("ask", "image/x", "actor/pleg", "CallRuntime", number=7, uid="")
    inside = wait("cri", "actor/pleg", "cri", "PullImage", ask=("image_pull", 1, 7), uid="")
    causes = why(facts(pod_workers=waits, image_pull=[direct, passed_on], pleg=[inside]), POD).causes
    assert [one.code for one in causes] == ["cri"]
    assert causes[0].links[-1].waiter == "actor/pleg", "the longest way"


def test_every_code_is_explained() -> None:
    for known, code, _ in CASES.values():
        assert code in CODES
        assert all(cause.code in CODES for cause in why(known, POD).causes)


def test_cycle_is_found_and_named() -> None:
    one = wait("ask", "actor/volume", "actor/objects", "A", ask=("objects", 1, 2), number=1, uid="")
    two = wait("ask", "actor/objects", "actor/volume", "B", ask=("volume", 1, 1), number=2, uid="")
    answer = why(facts(volume=[one], objects=[two]), "actor/volume")
    assert answer.causes[0].code == "cycle"
    assert [link.what for link in answer.causes[0].links][:2] == ["A", "B"]


def test_subject_without_waits_waits_for_nothing() -> None:
    assert why(facts(), POD) == Answer(subject=POD)
    assert why(facts(), POD).sentence == "Pod default/web waits for nothing that is recorded."


def test_degraded_actor_is_a_cause_of_the_node() -> None:
    state = ActorState(state="degraded", restart_in_s=4.0, last_death="exit 70: KeyError")
    known = facts()
    answer = why(Facts(now=NOW, tables=known.tables, processes=known.processes, actors={"probe": state}), "node")
    assert answer.causes[0].code == "actor-gone"
    assert "exit 70: KeyError" in answer.sentence


def test_kernel_stack_is_in_the_last_link() -> None:
    known, _, _ = CASES["helper in D state"]
    assert "nfs_wait_bit_killable" in why(known, POD).causes[0].links[-1].detail


def test_chain_names_each_wait() -> None:
    known, _, _ = CASES["pull under way"]
    links = why(known, POD).causes[0].links
    assert [link.target for link in links][-2:] == ["actor/pleg", "cri"]
    assert links[-1].deadline_in_s == 590


def test_many_waits_are_walked_at_once() -> None:
    many = [ask("volume", "MountPod", number) for number in range(1500)]
    inside = [wait("handler", "actor/volume", what="MountPod", ask=("pod_workers", 1, n)) for n in range(1500)]
    assert why(facts(pod_workers=many, volume=inside), POD).causes


def with_rows(known: Facts, **rows: ActorState) -> Facts:
    return Facts(now=NOW, tables=known.tables, processes=known.processes, actors=rows)


HELD = ActorState(state="stopped", held=True, last_death="killed by SIGKILL")


def test_actor_kept_stopped_names_the_operator_and_start() -> None:
    """Its table still has the handler in which its process ended."""
    known = facts({14: ProcessState(state="")}, pleg=[wait("handler", "actor/pleg", RUNNING, "Stop from supervisor")])
    answer = why(with_rows(known, pleg=HELD), "actor/pleg")
    assert [cause.code for cause in answer.causes] == ["actor-held"]
    assert answer.sentence == "Actor pleg is kept stopped by an operator: `supervisor start pleg` starts it"


def test_pod_waits_for_an_actor_that_is_kept_stopped() -> None:
    answer = why(with_rows(facts(pod_workers=WAITS_FOR_VOLUME), volume=HELD), POD)
    assert answer.sentence.startswith("Pod default/web waits for volume, which is kept stopped by an operator")


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("backoff", "(backoff, next start in 2.0 s; last end: none)"),
        ("degraded", "(degraded, next start in 2.0 s; last end: none)"),
        ("stopped", "(stopped; last end: none)"),
        ("lost", "(lost; last end: none)"),
    ],
)
def test_only_back_off_names_a_next_start(state: str, said: str) -> None:
    answer = why(with_rows(facts(), pleg=ActorState(state=state, restart_in_s=2.0)), "actor/pleg")
    assert said in answer.sentence


def test_states_have_the_operators_hold() -> None:
    row = ActorRow(name="pleg", pid=0, state="stopped", incarnation=1, uptime_s=0, restarts=0, held=True)
    assert states([row]) == {"pleg": ActorState(state="stopped", held=True)}


def test_table_of_a_former_incarnation_tells_no_wait() -> None:
    """The present one could not make its own: the run directory was full."""
    known = facts(pod_workers=WAITS_FOR_VOLUME)
    former = ActorState(state="ready", pid=PIDS["pod_workers"])
    assert why(with_rows(known, pod_workers=former), POD).causes
    assert why(with_rows(known, pod_workers=ActorState(state="ready", pid=99)), POD).causes == ()


@pytest.mark.parametrize("subject", [POD, "node", "actor/pleg"])
def test_agent_that_is_gone_is_the_only_cause(subject: str) -> None:
    """The tables are of actors that ended with it."""
    known = facts(dict.fromkeys(PIDS.values(), ProcessState(state="")), pod_workers=WAITS_FOR_VOLUME)
    answer = why(msgspec.structs.replace(known, agent_gone="it was stopped"), subject)
    assert [cause.code for cause in answer.causes] == ["agent-gone"]
    assert "waits for the agent, which is not running (it was stopped): start it" in answer.sentence
    assert lines(answer) == []


# Names


def test_nothing_is_looked_up_without_an_agent() -> None:
    known = msgspec.structs.replace(facts(), agent_gone="it was stopped")
    assert subject_of("pod/web", known) == "pod/web"
    with pytest.raises(UnknownSubjectError):
        subject_of("web", known)


@pytest.mark.parametrize(
    ("text", "pods", "found"),
    [
        ("pod/web", ["default/web-vm"], "pod/default/web-vm"),
        ("pod/default/web", ["default/web-vm"], "pod/default/web-vm"),
        ("pod/web", ["default/web-vm", "a/web"], "pod/a/web"),
        ("pod/web-vm", ["default/web-vm"], "pod/default/web-vm"),
        ("pod/default/other", ["default/web-vm"], "pod/default/other"),
        ("pod/slow", [], "pod/default/slow-vm"),
    ],
)
def test_static_pod_is_found_without_the_nodes_name(text: str, pods: list[str], found: str) -> None:
    known = facts(pod_workers=[wait("condition", "pod/default/slow-vm", what="x")])
    assert subject_of(text, known, pods, "vm") == found


def test_unknown_pod_names_the_command_that_lists_pods() -> None:
    with pytest.raises(UnknownSubjectError, match="cannot find pod 'nope'; `supervisor pods` lists all pods"):
        subject_of("pod/nope", facts(), ["default/web-vm"], "vm")


def test_pods_of_several_namespaces_are_ambiguous() -> None:
    with pytest.raises(AmbiguousSubjectError, match="cannot choose 'pod/web': there are pod/a/web-vm, pod/b/web-vm"):
        subject_of("pod/web", facts(), ["a/web-vm", "b/web-vm"], "vm")

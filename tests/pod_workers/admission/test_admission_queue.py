"""The admission queue: the order of decisions, waiting pods, and the state after a kill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replace_struct

from actors.pod_workers.admission import NodeInfo, Preempt, Rejection
from actors.pod_workers.admission.admission_queue import AdmissionCallbacks, AdmissionQueue
from actors.pod_workers.model.allocation import PodResourceInfo, resources_of
from actors.pod_workers.model.desired import Desired
from actors.pod_workers.model.termination_request import TerminationRequest
from proto.pods.pod_workers import PodUpdate
from proto.v1 import Pod
from tests.pod_workers.admission.pods import LABELS, pod

NODE = NodeInfo("vm", LABELS, {"cpu": 2000, "memory": 1 << 32, "ephemeral-storage": 1 << 40, "pods": 10})


class QueueHarness:
    """A queue whose callbacks are written to `log`."""

    def __init__(self) -> None:
        self.desired = Desired(sources=("api",))
        self.log: list[str] = []
        self.timers: list[tuple[float, Any]] = []
        self.undecidable: set[str] = set()
        self.has_server = False
        self.assignable: set[str] = set()
        """Pods that resources are assigned to; the others need none."""
        self.changes = 0
        """Calls that the resources of the node's pods have changed."""
        self.actuated: dict[str, PodResourceInfo] = {}
        """By UID: the resources that containers still have."""
        self.connect(lambda pod: pod, self.actuated.get, lambda: None)
        self.admission_queue = AdmissionQueue(
            self.desired,
            NODE,
            AdmissionCallbacks(
                start_worker=self.start_worker,
                end_pod=self.end_pod,
                save_checkpoint=lambda: self.log.append("save"),
                after=self.after,
                events=self,  # type: ignore[arg-type]
                may_decide=lambda uid: uid not in self.undecidable,
                refresh_node=self.refresh_node,
                assign=self.assign,
                release=self.release,
                shares_changed=self.share_changed,
                allocated=lambda pod: self._allocated(pod),  # noqa: PLW0108 - `connect` replaces it
                actuated=lambda uid: self._actuated(uid),  # noqa: PLW0108 - `connect` replaces it
                retry_resizes=lambda: self._retry_resizes(),  # noqa: PLW0108 - `connect` replaces it
            ),
        )

    def connect(
        self,
        allocated: Callable[[Pod], Pod],
        actuated: Callable[[str], PodResourceInfo | None],
        retry_resizes: Callable[[], None],
    ) -> None:
        """Have the queue call these functions."""
        self._allocated, self._actuated, self._retry_resizes = allocated, actuated, retry_resizes

    def share_changed(self) -> None:
        self.changes += 1

    def refresh_node(self, uid: str) -> bool:
        if self.has_server:
            self.log.append(f"refresh for {uid}")
        return self.has_server

    def assign(self, uid: str, trial: bool) -> bool:
        if uid in self.assignable:
            self.log.append(f"{'try' if trial else 'assign'} {uid}")
        return uid in self.assignable

    def release(self, uid: str) -> None:
        if uid in self.assignable:
            self.log.append(f"release {uid}")

    def start_worker(self, uid: str) -> None:
        termination = self.admission_queue.termination(uid)
        self.log.append(f"run {uid}" if termination is None else f"reject {uid}: {termination.reason}")

    def end_pod(self, uid: str, termination: TerminationRequest) -> None:
        self.log.append(f"end {uid}: {termination.reason}")

    def after(self, delay_s: float, function: Any) -> None:
        self.timers.append((delay_s, function))

    def pod(self, pod: Pod, kind: str, reason: str, message: str) -> None:  # noqa: ARG002 - the recorder's signature
        self.log.append(f"event {pod.metadata.name} {reason}")

    def want(self, *pods: Pod, running: tuple[str, ...] = (), ended: tuple[str, ...] = ()) -> None:
        change = self.desired.apply(PodUpdate(source="api", op="ADD", pods=pods))
        self.admission_queue.add(change.added, lambda uid: uid in (*running, *ended), lambda uid: uid in ended)

    def drop(self, *uids: str) -> None:
        gone = tuple(self.desired.pods[uid] for uid in uids)
        self.desired.apply(PodUpdate(source="api", op="REMOVE", pods=gone))
        for uid in uids:
            self.admission_queue.pod_removed(uid)

    def said(self) -> list[str]:
        log, self.log = self.log, []
        return log


@pytest.fixture
def harness() -> QueueHarness:
    return QueueHarness()


def one(name: str, cpu: str = "1", *, at: int = 0, **fields: Any) -> Pod:
    created = {"metadata": {"creationTimestamp": f"2026-01-01T00:00:{at:02}Z"}} if at else {}
    return pod(name, requests={"cpu": cpu}, **created, **fields)


def test_oldest_pod_is_decided_on_first(harness):
    harness.want(one("c", at=3), one("a", at=1), one("b", at=2))
    assert harness.said() == ["run a", "run b", "save", "event c OutOfcpu", "reject c: OutOfcpu"]


def test_running_pods_are_not_decided_on_and_count_first(harness):
    harness.want(one("new", at=1), one("old", "3", at=2), running=("old",))
    assert harness.said() == ["run old", "save", "event new OutOfcpu", "reject new: OutOfcpu"]


def test_a_pod_that_is_over_frees_its_share_at_once(harness):
    harness.want(one("a", "2"))
    harness.admission_queue.pod_terminated("a")
    harness.want(one("b", "2"))
    assert harness.said() == ["run a", "run b"]


def test_a_pod_that_had_ended_before_the_start_holds_no_share(harness):
    harness.want(one("done", "2"), one("new", "2", at=1), ended=("done",))
    assert harness.said() == ["run done", "run new"]


def test_a_pod_that_left_frees_its_share_though_it_still_ends(harness):
    harness.want(one("a", "2"))
    harness.drop("a")
    harness.want(one("b", "2"))
    assert harness.said() == ["run a", "run b"]


def test_an_evicted_pod_counts_until_it_is_over(harness):
    harness.want(one("a", "2"))
    harness.admission_queue.evicted("a", "Evicted", "m")
    harness.want(one("b", "2"))
    harness.admission_queue.pod_terminated("a")
    harness.want(one("c", "2"))
    assert harness.said() == ["run a", "save", "event b OutOfcpu", "reject b: OutOfcpu", "run c"]


def test_rejected_pod_stays_rejected_and_holds_nothing(harness):
    harness.admission_queue.rejected = {"a": ("OutOfcpu", "Pod was rejected: m")}
    harness.want(one("a", "2"), one("b", "2"))
    assert harness.said() == ["reject a: OutOfcpu", "run b"]
    assert harness.admission_queue.termination("a") == TerminationRequest(
        reason="OutOfcpu", message="Pod was rejected: m", grace_period_s=0
    )


def test_static_pods_of_an_earlier_start_are_decided_on_again(harness):
    queue = harness.admission_queue
    queue.rejected.update(dict.fromkeys(("static", "api", "now"), ("NodePorts", "m")))
    queue.rejected_before.update({"static", "api"})
    harness.desired.apply(PodUpdate(source="file", op="ADD", pods=(one("static"), one("now"))))
    harness.desired.apply(PodUpdate(source="api", op="ADD", pods=(one("api"),)))
    assert queue.decide_again(["now", "static", "api"]) == ["static"]
    assert queue.rejected.keys() == {"api", "now"}
    assert queue.rejected_before == set()
    queue.rejected["static"] = ("NodePorts", "m")
    assert queue.decide_again(["static"]) == [], "this start has rejected it again"


@pytest.mark.parametrize(
    ("source", "outdated", "phase", "again"),
    [
        ("api", True, "Running", True),
        ("api", True, "Pending", True),
        ("api", True, None, True),  # from our own copy: the server has not answered
        ("api", True, "Failed", False),
        ("api", True, "Succeeded", False),
        ("api", False, "Running", False),
        ("file", True, None, True),
        ("file", False, None, True),
    ],
)
def test_pods_that_another_agent_ran_are_decided_on_again(harness, source, outdated, phase, again):
    queue, given = harness.admission_queue, one("a")
    queue.rejected["a"] = ("Evicted", "m")
    queue.rejected_before.add("a")
    queue.served_by_other_agent.update({"a"} if outdated else ())
    given = replace_struct(given, status=replace_struct(given.status, phase=phase))
    harness.desired.apply(PodUpdate(source=source, op="ADD", pods=(given,)))
    assert queue.stays_rejected("a") is not outdated
    assert queue.decide_again(["a"]) == (["a"] if again else [])
    assert ("a" in queue.rejected) is not again
    assert queue.old_ends().keys() == ({"a"} if again else set())
    assert (queue.rejected_before, queue.served_by_other_agent) == (set(), set())
    queue.evicted("a", "Evicted", "m")
    assert queue.decide_again(["a"]) == [], "this start has evicted it again"


def test_old_end_of_a_pod_counts_until_it_is_rejected_anew(harness):
    queue, why = harness.admission_queue, ("NodePorts", "m")
    queue.rejected["static"] = why
    queue.rejected_before.add("static")
    harness.desired.apply(PodUpdate(source="file", op="ADD", pods=(one("static"),)))
    assert queue.old_ends() == {}
    queue.decide_again(["static"])
    assert queue.old_ends() == {"static": why}
    queue.rejected["static"] = why
    assert queue.old_ends() == {}, "the end is of this start"
    assert queue.pod_removed("static")
    assert queue.old_ends() == {}
    queue.rejected_by_earlier_start["gone"] = why
    queue.keep_rejected(["static"])
    assert queue.old_ends() == {}


def test_returning_uid_is_decided_on_anew(harness):
    harness.want(one("a", "3"))
    harness.drop("a")
    harness.want(one("a", "1"))
    assert harness.said() == ["save", "event a OutOfcpu", "reject a: OutOfcpu", "run a"]


def critical(name: str, cpu: str = "2", **fields: Any) -> Pod:
    return one(name, cpu, static=True, **fields)


def test_critical_pod_waits_for_victims_and_others_for_it(harness):
    harness.want(one("a"), one("b"))
    harness.want(critical("k"))
    assert harness.said() == [
        "run a", "run b", "save",
        "event b Preempting", "end b: Preempting", "event a Preempting", "end a: Preempting",
    ]  # fmt: skip
    harness.want(one("later", "1m"))
    harness.admission_queue.pod_terminated("a")
    assert harness.said() == []
    harness.admission_queue.pod_terminated("b")
    assert harness.said() == ["run k", "save", "event later OutOfcpu", "reject later: OutOfcpu"]
    assert harness.admission_queue.rejected["a"] == ("Preempting", "Preempted in order to admit critical pod")
    assert harness.timers[0][0] == 45.0  # one and a half grace periods
    harness.timers[0][1]()
    assert harness.said() == []


def test_new_pods_have_no_room_of_a_pod_that_is_still_to_shrink(harness):
    harness.actuated["a"] = resources_of(one("a", "2"))
    harness.want(one("a", "500m"), running=("a",))
    harness.want(one("b"))
    (share,) = harness.admission_queue.shares()
    assert (share.requests["cpu"], share.held["cpu"]) == (500, 2000)
    assert not harness.admission_queue.resized(one("a", "500m"))
    harness.actuated.clear()
    assert harness.admission_queue.resized(one("a", "500m"))
    harness.want(one("c"))
    assert harness.said() == ["run a", "save", "event b OutOfcpu", "reject b: OutOfcpu", "run c"]


def test_critical_pod_counts_what_containers_still_have(harness):
    harness.actuated["a"] = resources_of(one("a", "2"))
    harness.want(one("a", "500m"), running=("a",))
    harness.want(critical("k", "1500m"))
    assert harness.said() == ["run a", "save", "event a Preempting", "end a: Preempting"]


def test_share_changes_only_with_the_allocated_resources(harness):
    """The cgroups of QoS classes follow these."""
    queue = harness.admission_queue
    harness.want(one("a", "500m"))
    harness.actuated["a"] = resources_of(one("a", "2"))
    queue.resized(one("a", "500m"))
    assert harness.changes == 1
    queue.resized(one("a", "600m"))
    assert harness.changes == 2
    assert not queue.resized(one("unknown", "600m"))


def test_a_critical_pod_that_runs_takes_its_room_before_new_pods(harness):
    queue = harness.admission_queue
    harness.want(critical("k", "500m"), one("a", "1500m"))
    victim = next(share for share in queue.shares() if share.pod.metadata.uid == "a")
    harness.connect(lambda pod: pod, harness.actuated.get, lambda: harness.log.append(f"resize, {queue.has_room('k')}"))
    harness.said()
    queue.preempt("k", Preempt((victim,), "cpu"), resizes=True)
    harness.want(one("later", "2"))
    assert queue.is_preempting
    assert harness.said() == ["save", "event a Preempting", "end a: Preempting"]
    queue.pod_terminated("a")
    assert harness.said() == ["resize, False", "save", "event later OutOfcpu", "reject later: OutOfcpu"]
    assert not queue.is_preempting


def test_resizes_are_decided_on_after_a_preemption_for_a_new_pod(harness):
    harness.connect(lambda pod: pod, harness.actuated.get, lambda: harness.log.append("resize"))
    harness.want(one("a", "2"))
    harness.want(critical("k"))
    harness.said()
    harness.timers[0][1]()
    assert harness.said() == ["run k", "resize"]


def test_victims_that_do_not_end_are_waited_for_only_so_long(harness):
    harness.want(one("a", "2", terminationGracePeriodSeconds=0))
    harness.want(critical("k"), one("later", "1m"))
    harness.said()
    assert harness.timers[0][0] == 10.0
    harness.timers[0][1]()
    assert harness.said()[0] == "run k"


def test_removed_critical_pod_lets_the_next_pods_in(harness):
    harness.want(one("a", "2"))
    harness.want(critical("k"), one("later", "0"))
    harness.said()
    harness.drop("k")
    assert harness.said() == ["run later"]
    harness.admission_queue.pod_terminated("a")
    harness.timers[0][1]()
    assert harness.said() == []


def test_victims_are_known_after_a_kill_during_preemption(harness):
    harness.want(one("a", "2"))
    harness.want(critical("k"))
    saved = dict(harness.admission_queue.rejected)
    after = QueueHarness()
    after.admission_queue.rejected = saved
    after.want(one("a", "2"), critical("k"), running=("a",))
    assert after.said() == ["reject a: Preempting", "run k"]


def test_a_pod_that_leaves_the_queue_is_forgotten(harness):
    harness.want(one("a", "2"))
    harness.want(critical("k"), one("later", "0"))
    harness.drop("later")
    harness.said()
    harness.admission_queue.pod_terminated("a")
    assert harness.said() == ["run k"]


def test_bad_quantity_rejects_its_pod_alone(harness):
    harness.want(one("bad", "much"), one("a"))
    assert harness.said() == [
        "save", "event bad UnexpectedAdmissionError", "reject bad: UnexpectedAdmissionError", "run a",
    ]  # fmt: skip


def test_new_pods_wait_for_static_sources_only(harness):
    harness.desired.sources, harness.desired.seen = ("file", "api"), {"api"}
    harness.want(one("new"), one("old"), running=("old",))
    assert harness.said() == ["run old"]
    harness.desired.seen = {"file"}
    harness.want()
    assert harness.said() == ["run new"]


def test_undecidable_pod_does_not_block_others(harness):
    harness.undecidable = {"a", "b"}
    harness.want(one("a", at=1), one("c", at=3))
    harness.want(one("b", at=2))
    assert harness.said() == ["run c"]
    harness.undecidable = {"b"}
    harness.admission_queue.advance()
    assert harness.said() == ["run a"]
    harness.drop("b")
    harness.undecidable = set()
    harness.admission_queue.advance()
    assert harness.said() == []


def test_node_is_read_anew_before_a_misfit_is_rejected(harness):
    harness.has_server = True
    here, gone, elsewhere = (one(name, "100m", nodeSelector={"zone": name}) for name in ("here", "gone", "elsewhere"))
    harness.want(here, gone, elsewhere, one("other", "100m"))
    assert harness.said() == ["refresh for here", "refresh for gone", "refresh for elsewhere", "run other"]
    harness.admission_queue.node = replace(NODE, labels=LABELS | {"zone": "here"})
    harness.drop("gone")
    for uid in ("here", "gone", "elsewhere"):
        harness.admission_queue.node_refreshed(uid)
    assert harness.said() == ["run here", "save", "event elsewhere NodeAffinity", "reject elsewhere: NodeAffinity"]


def test_without_a_server_the_node_is_not_read_anew(harness):
    harness.want(one("a", nodeSelector={"zone": "z"}))
    assert harness.said() == ["save", "event a NodeAffinity", "reject a: NodeAffinity"]


def test_pod_keeps_its_share_while_it_is_assigned_resources(harness):
    harness.assignable = {"a"}
    harness.want(one("a", "2", at=1), one("b", "1", at=2))
    assert harness.said() == ["assign a", "save", "event b OutOfcpu", "reject b: OutOfcpu"]
    harness.admission_queue.assigned("a")
    harness.admission_queue.assigned("a")
    assert harness.said() == ["run a"]


def test_pod_that_waits_for_resources_blocks_no_other(harness):
    harness.assignable = {"a"}
    harness.want(one("a", "2", at=1))
    harness.admission_queue.assigned_later("a")
    harness.want(one("b", "2", at=2))
    assert harness.said() == ["assign a", "run b"]
    harness.admission_queue.try_assigning("a")
    harness.admission_queue.assigned_later("a", lasting=True)
    assert harness.said() == ["try a", "save", "release a", "event a OutOfcpu", "reject a: OutOfcpu"]


def test_pod_without_its_resources_is_rejected_with_the_reason(harness):
    harness.assignable = {"a", "b"}
    harness.want(one("a"), one("b"))
    harness.admission_queue.assigned_later("b")
    for uid in "ab":
        harness.admission_queue.not_assigned(uid, Rejection("TopologyAffinityError", "m"))
    harness.admission_queue.not_assigned("a", Rejection("again", "m"))
    rejected = [
        ["save", f"release {uid}", f"event {uid} TopologyAffinityError", f"reject {uid}: TopologyAffinityError"]
        for uid in "ab"
    ]
    assert harness.said() == ["assign a", "assign b", *rejected[0], *rejected[1]]


@pytest.mark.parametrize(
    ("fields", "pressure", "expected"),
    [
        pytest.param({"cpu": "64"}, (), "UnexpectedAdmissionError", id="too big"),
        pytest.param({"nodeSelector": {"zone": "z"}}, (), "UnexpectedAdmissionError", id="not for this node"),
        pytest.param({"os": {"name": "windows"}}, (), "UnexpectedAdmissionError", id="not for this system"),
        pytest.param({"securityContext": {"sysctls": [{"name": "a.b", "value": "1"}]}}, (), "SysctlForbidden"),
        pytest.param({}, ("DiskPressure",), "Evicted"),
    ],
)
def test_resource_managers_decide_between_pressure_and_predicates(harness, fields, pressure, expected):
    harness.assignable = {"a"}
    harness.admission_queue.pressure = pressure
    harness.want(one("a", **fields))
    harness.admission_queue.not_assigned("a", Rejection("UnexpectedAdmissionError", "m"))
    asked = ["try a"] if expected == "UnexpectedAdmissionError" else []
    assert harness.said() == [*asked, "save", "release a", f"event a {expected}", f"reject a: {expected}"]


def test_a_pod_too_big_is_released_and_costs_no_other_pod(harness):
    harness.assignable = {"big"}
    harness.want(one("big", "64", at=1), one("small", "2", at=2))
    assert harness.said() == ["try big", "run small"]
    harness.admission_queue.assigned("big")
    assert harness.said() == ["save", "release big", "event big OutOfcpu", "reject big: OutOfcpu"]


def test_a_pod_that_fits_after_its_trial_is_assigned_resources(harness):
    harness.want(one("old", "2"))
    harness.assignable = {"a"}
    harness.want(one("a"))
    harness.admission_queue.pod_terminated("old")
    harness.admission_queue.assigned("a")
    harness.admission_queue.assigned("a")
    assert harness.said() == ["run old", "try a", "assign a", "run a"]


@pytest.mark.parametrize("lasting", [True, False])
def test_a_pod_too_big_does_not_wait_for_its_devices(harness, lasting):
    harness.assignable = {"a"}
    harness.want(one("a", "64"))
    harness.admission_queue.assigned_later("a", lasting=lasting)
    rejected = ["save", "release a", "event a OutOfcpu", "reject a: OutOfcpu"]
    assert harness.said() == ["try a", *(rejected if lasting else [])]


def test_a_pod_that_waits_is_not_rejected_during_a_preemption(harness):
    harness.assignable = {"a"}
    harness.want(one("a", at=1), one("b", "2", at=2))
    harness.admission_queue.assigned_later("a")
    harness.admission_queue.try_assigning("a")
    harness.want(critical("k", "1"))
    harness.said()
    harness.admission_queue.assigned_later("a", lasting=True)
    assert harness.said() == []


def test_the_node_is_read_anew_for_a_pod_that_waits(harness):
    harness.assignable, harness.has_server = {"a"}, True
    harness.want(one("a", nodeSelector={"zone": "z"}))
    harness.admission_queue.assigned_later("a", lasting=True)
    assert harness.said() == ["try a", "refresh for a"]
    harness.admission_queue.node_refreshed("a")
    harness.admission_queue.try_assigning("a")
    harness.admission_queue.assigned_later("a", lasting=True)
    assert harness.said() == ["try a", "save", "release a", "event a NodeAffinity", "reject a: NodeAffinity"]


def test_bad_quantity_is_found_before_resources_are_assigned(harness):
    harness.assignable = {"a"}
    harness.want(one("a", "much"))
    assert "assign a" not in harness.said()


def test_answer_for_a_pod_that_has_left_starts_nothing(harness):
    harness.assignable = {"a"}
    harness.want(one("a", "2"))
    harness.drop("a")
    harness.admission_queue.assigned("a")
    harness.admission_queue.assigned_later("a")
    harness.want(one("b", "2"))
    assert harness.said() == ["assign a", "run b"]


def test_critical_pod_is_assigned_resources_after_its_victims(harness):
    harness.want(one("a", "2"))
    harness.assignable = {"k"}
    harness.want(critical("k"))
    harness.admission_queue.pod_terminated("a")
    assert harness.said()[-1] == "assign k"
    harness.admission_queue.assigned("k")
    assert harness.said() == ["run k"]


def test_victim_without_its_resources_yet_gets_a_worker_to_end(harness):
    harness.assignable = {"a"}
    harness.want(one("a", "2"))
    harness.want(critical("k"))
    assert harness.said() == ["assign a", "save", "event a Preempting", "reject a: Preempting"]
    harness.admission_queue.assigned("a")
    harness.admission_queue.pod_terminated("a")
    assert harness.said() == ["run k"]

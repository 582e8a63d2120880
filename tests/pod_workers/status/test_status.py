"""Statuses: cases that the golden pods do not cover."""

from dataclasses import replace

import pytest

from actors.eviction.local_storage import violation
from actors.eviction.message import eviction_message
from actors.eviction.policy import Observation
from actors.eviction.thresholds import Threshold
from actors.pod_workers.model import reasons
from actors.pod_workers.model.allocation import resources_of
from actors.pod_workers.model.view import ContainerView, PodView, ResourcesView, SandboxView, UserView
from actors.pod_workers.shared.managed_resources import ResourceHealths
from actors.pod_workers.status.inputs import StatusInputs
from actors.pod_workers.status.pod_status import compute_status
from proto.cri import api_pb2 as pb
from proto.node.stats import ContainerUsage, PodUsage, VolumeUse
from proto.pods.pod_workers import PodHealth, SetResourceHealth
from proto.v1 import Pod, PodCondition, PodStatus
from proto.v1.codec import from_dict, to_dict
from proto.v1.status import ResourceHealth, ResourceStatus

SANDBOX = SandboxView(id="s", ips=("10.0.0.1", "fd00::1"), created_at_ns=1)
PROBE = {"exec": {"command": ["true"]}}


def pod(policy: str = "Always", main: tuple[str, ...] = ("c",), init: tuple[dict, ...] = (), **more) -> Pod:
    spec = {
        "restartPolicy": policy,
        "containers": [{"name": name, "image": "i"} for name in main],
        "initContainers": [{"image": "i", **one} for one in init],
    }
    metadata = {"name": "p", "namespace": "ns", "uid": "u"} | more.pop("metadata", {})
    return from_dict(Pod, {"metadata": metadata, "spec": spec | more})


def life(name: str = "c", state: str = "running", code: int = 0, at: int = 1, **more) -> ContainerView:
    return ContainerView(
        id=f"{name}{at}", name=name, state=state, exit_code=code, created_at_ns=at, started_at_ns=at * 10**9, **more
    )


def view(*lives: ContainerView, sandbox: SandboxView | None = SANDBOX) -> PodView:
    return PodView.of([sandbox] if sandbox else [], lives)


def of(subject: Pod, seen: PodView, **inputs) -> PodStatus:
    return compute_status(subject, seen, StatusInputs(**inputs))


def condition(status: PodStatus, kind: str) -> tuple[str, str | None, str | None]:
    one = next(one for one in status.conditions if one.type == kind)
    return one.status, one.reason, one.message


# Phase


@pytest.mark.parametrize(
    ("policy", "lives", "phase"),
    [
        ("Always", [], "Pending"),
        ("Always", [life("a")], "Pending"),  # b is not there yet
        ("Always", [life("a"), life("b")], "Running"),
        ("Always", [life("a"), life("b", "exited")], "Running"),
        ("Always", [life("a", "exited"), life("b", "exited")], "Running"),
        ("Always", [life("a", "exited", 1), life("b", "exited")], "Running"),
        ("OnFailure", [life("a", "exited"), life("b", "exited")], "Succeeded"),
        ("OnFailure", [life("a", "exited", 1), life("b", "exited")], "Running"),
        ("OnFailure", [life("a"), life("b", "exited")], "Running"),
        ("Never", [life("a", "exited"), life("b", "exited")], "Succeeded"),
        ("Never", [life("a", "exited", 1), life("b", "exited")], "Failed"),
        ("Never", [life("a", "exited", 1), life("b")], "Running"),
        ("Always", [life("a"), life("b", "created")], "Pending"),
        ("Always", [life("a"), life("b", "unknown")], "Pending"),
    ],
)
def test_phase_by_policy_and_containers(policy, lives, phase):
    assert of(pod(policy, ("a", "b")), view(*lives)).phase == phase


ONCE, SIDE = {"name": "once"}, {"name": "side", "restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("policy", "init", "lives", "phase", "initialized"),
    [
        ("Always", (ONCE,), [], "Pending", "False"),
        ("Always", (ONCE,), [life("once")], "Pending", "False"),
        ("Always", (ONCE,), [life("once", "exited", 1)], "Pending", "False"),
        ("Never", (ONCE,), [life("once", "exited", 1)], "Failed", "False"),
        ("Always", (ONCE,), [life("once", "exited")], "Pending", "True"),
        ("Always", (ONCE,), [life("once", "exited"), life("c")], "Running", "True"),
        ("Always", (ONCE,), [life("c")], "Running", "True"),  # the init container has been cleaned up
        ("Always", (SIDE,), [life("side")], "Pending", "True"),
        ("Always", (SIDE,), [life("side"), life("c")], "Running", "True"),
        ("Always", (SIDE,), [life("side", "exited", 1), life("c")], "Running", "True"),
        ("Never", (SIDE,), [life("side"), life("c", "exited")], "Running", "True"),
        ("Never", (SIDE,), [life("side", "exited"), life("c", "exited")], "Succeeded", "True"),
    ],
)
def test_phase_with_init_containers(policy, init, lives, phase, initialized):
    status = of(pod(policy, init=init), view(*lives))
    assert (status.phase, condition(status, "Initialized")[0]) == (phase, initialized)


OOM_KILLED = life("once", "exited", reason="OOMKilled")


@pytest.mark.parametrize(("policy", "phase"), [("Always", "Pending"), ("OnFailure", "Pending"), ("Never", "Failed")])
def test_init_container_with_an_oom_kill_is_not_done_with_code_0(policy, phase):
    subject = pod(policy, init=(ONCE,))
    status = of(subject, view(OOM_KILLED))
    (once,) = status.init_container_statuses
    assert (once.state.terminated.exit_code, once.state.terminated.reason, once.ready) == (0, "OOMKilled", False)
    assert (status.phase, condition(status, "Initialized")[0]) == (phase, "False")
    waiting = {"once": reasons.crash_loop_back_off(subject, "once", 20)}
    (later,) = of(subject, view(OOM_KILLED), waiting=waiting).init_container_statuses
    assert (later.state.waiting is None) is (policy == "Never"), "it waits for its next start"


RULE_137 = {"action": "Restart", "exitCodes": {"operator": "In", "values": [137]}}


@pytest.mark.parametrize(("own", "phase"), [("Never", "Failed"), ("OnFailure", "Pending")])
def test_lost_init_container_fails_the_pod_by_its_policy_alone(own, phase):
    subject = pod("Never", init=(ONCE | {"restartPolicy": own, "restartPolicyRules": [RULE_137]},))
    before = of(subject, view(life("once")))
    assert of(subject, view(life("once", "unknown")), old=before).phase == phase
    assert of(subject, view(life("once", "exited", 137)), old=before).phase == "Pending"


@pytest.mark.parametrize(("lives", "phase"), [([life()], "Running"), ([life(state="exited")], "Succeeded")])
def test_oom_kill_of_an_init_container_does_not_end_a_pod_that_has_begun(lives, phase):
    """A former release started it, or the runtime told of the kill later."""
    for sandbox in (SANDBOX, replace(SANDBOX, state="notready")):
        found = [replace(one, sandbox_id="s") for one in (OOM_KILLED, *lives)]
        status = of(pod("Never", init=(ONCE,)), view(*found, sandbox=sandbox))
        assert (status.phase, status.init_container_statuses[0].ready) == (phase, True)


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
@pytest.mark.parametrize("later", [{}, {"restartPolicy": "Always", "startupProbe": PROBE}], ids=["once", "sidecar"])
def test_late_oom_kill_does_not_fail_a_pod_in_its_next_init(policy, later):
    """The agent reads the reason after its restart, or a former release went on."""
    found = [replace(one, sandbox_id="s") for one in (OOM_KILLED, life("later"))]
    status = of(pod(policy, init=(ONCE, {"name": "later"} | later)), view(*found))
    assert (status.phase, status.init_container_statuses[0].ready) == ("Pending", True)
    assert condition(status, "Initialized")[2] == "containers with incomplete status: [later]"


def test_sidecar_with_an_oom_kill_and_code_0_stays_terminated_in_back_off():
    lives = view(life("side", "exited", reason="OOMKilled"), life())
    status = of(pod(init=(SIDE,)), lives, waiting={"side": ("CrashLoopBackOff", "m")})
    assert status.init_container_statuses[0].state.terminated.exit_code == 0


REBOOTED = (SandboxView(id="new", ips=("10.0.0.2",), created_at_ns=5), SandboxView(id="old", state="notready"))


def test_oom_kill_of_an_older_sandbox_does_not_fail_the_pod():
    subject = pod(init=(ONCE | {"restartPolicy": "Never"},))
    lives = [replace(one, sandbox_id="old") for one in (OOM_KILLED, life(state="exited", code=137))]
    assert of(subject, PodView.of(REBOOTED, lives)).phase != "Failed"
    again = replace(OOM_KILLED, id="once2", attempt=1, restart_count=1, sandbox_id="new")
    assert of(subject, PodView.of(REBOOTED, [again, *lives])).phase == "Failed"


def before_reboot(name, code):
    return life(name, "exited", code, sandbox_id="old")


@pytest.mark.parametrize(
    ("init", "lives", "phase"),
    [
        # Right after the new sandbox is created, the containers still have their old instances.
        ((ONCE,), [], "Running"),
        ((ONCE,), [life("once", at=6, sandbox_id="new")], "Pending"),
        ((ONCE,), [life("once", "created", at=6, sandbox_id="new")], "Running"),
        ((ONCE,), [life("once", "exited", at=6, sandbox_id="new")], "Running"),
        ((ONCE, SIDE), [life("once", "exited", at=6), life("side", at=7, sandbox_id="new")], "Running"),
    ],
)
def test_pod_is_pending_while_init_containers_run_again(init, lives, phase):
    old = [before_reboot("c", 137), *(before_reboot(one["name"], 0) for one in init)]
    status = of(pod(init=init), PodView.of(REBOOTED, [*old, *lives]))
    assert (status.phase, condition(status, "Initialized")[0]) == (phase, "True")


@pytest.mark.parametrize(("sandbox_id", "phase"), [("old", "Pending"), ("new", "Running")])
def test_main_container_of_older_sandbox_leaves_the_phase_pending(sandbox_id, phase):
    side = SIDE | {"startupProbe": PROBE}
    lives = [life("side", at=6, sandbox_id="new"), life("c", "exited", 137, sandbox_id=sandbox_id)]
    status = of(pod(init=(side,)), PodView.of(REBOOTED, lives))
    assert (status.phase, condition(status, "Initialized")[0]) == (phase, "True")


def test_pod_stays_initialized_when_its_old_containers_are_removed():
    subject, running_again = pod(init=(ONCE,)), PodView.of(REBOOTED, [life("once", at=6, sandbox_id="new")])
    initialized = of(subject, view(life("once", "exited"), life("c")))
    status = of(subject, running_again, old=initialized)
    assert (status.phase, condition(status, "Initialized")[0]) == ("Pending", "True")
    assert condition(of(subject, running_again), "Initialized")[0] == "False"


@pytest.mark.parametrize(("of_main", "phase"), [("s", "Running"), ("old", "Pending")])
def test_pod_in_back_off_keeps_running_beside_a_starting_sidecar(of_main, phase):
    side = SIDE | {"startupProbe": PROBE}
    lives = [life("side", at=6, sandbox_id="s"), life("c", "exited", 1, sandbox_id=of_main)]
    waiting = {"c": reasons.crash_loop_back_off(pod(), "c", 20)}
    status = of(pod(init=(side,)), view(*lives), waiting=waiting)
    assert status.container_statuses[0].state.waiting is not None
    assert status.phase == phase


def test_pod_stays_initialized_when_the_runtime_lost_it():
    subject = pod("Never", init=(SIDE,))
    ended = of(subject, view(life("side", "exited", 1), life("c", "exited", 1)), terminal=True)
    assert condition(of(subject, view(sandbox=None), old=ended), "Initialized")[0] == "True"


def test_a_terminal_phase_stands_with_its_reason():
    old = PodStatus(phase="Failed", reason="Evicted", message="why")
    status = of(pod(), view(life()), old=old)
    assert (status.phase, status.reason, status.message) == ("Failed", "Evicted", "why")


def test_ending_pod_without_starts_has_its_terminal_phase():
    assert of(pod("Always"), view(life(state="exited")), terminal=True).phase == "Succeeded"
    assert of(pod("Always"), view(life(state="exited", code=1)), terminal=True).phase == "Failed"
    assert of(pod("OnFailure"), view(life(state="exited", code=1)), terminal=True).phase == "Failed"


NODE_ENDED = ("Evicted", "Preempting", "Terminated")
STATIC = {"annotations": {"kubernetes.io/config.source": "file"}}


@pytest.mark.parametrize("reason", NODE_ENDED)
@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (1, "Failed"), (143, "Failed")])
def test_pod_ended_by_the_node_gets_phase_from_exit_codes(reason, policy, code, phase):
    message = "The node was low on resource: memory. "
    termination = {"reason": reason, "message": message, "terminal": True}
    running = of(pod(policy), view(life()), old=PodStatus(phase="Running"), **termination)
    assert (running.phase, running.reason, running.message) == ("Running", None, None)
    stopping = of(pod(policy), view(life(state="exited", code=code)), old=running, **termination)
    assert (stopping.phase, stopping.reason) == ("Running", None)  # its sandbox is still there
    over = of(pod(policy), view(life(state="exited", code=code)), old=stopping, over=True, **termination)
    assert over.phase == phase
    assert (over.reason, over.message) == ((reason, message) if phase == "Failed" else (None, None))
    assert condition(over, "DisruptionTarget")[0] == "True"


@pytest.mark.parametrize("lives", [[], [life(state="created")], [life(state="unknown")]])
def test_pod_ended_by_the_node_before_containers_ran_fails(lives):
    status = of(pod(), view(*lives), reason="Evicted", message="why", terminal=True, over=True)
    assert (status.phase, status.reason, status.message) == ("Failed", "Evicted", "why")


def test_pod_past_its_deadline_fails_for_any_exit_codes():
    for over in (False, True):
        status = of(pod(), view(life(state="exited")), reason="DeadlineExceeded", message="why", over=over)
        assert (status.phase, status.reason, status.message) == ("Failed", "DeadlineExceeded", "why")


def test_static_pod_keeps_its_shutdown_reason():
    status = of(
        pod("OnFailure", metadata=STATIC), view(life(state="exited")), reason="Terminated", terminal=True, over=True
    )
    assert (status.phase, status.reason) == ("Failed", "Terminated")


def test_an_evicted_pod_that_fails_is_marked_as_disrupted():
    ended = view(life(state="exited", code=137))
    low, _ = eviction_message(Threshold("memory.available", amount=1), "1", Observation(0, 1), pod(), None)
    status = of(pod(), ended, reason="Evicted", message=low, terminal=True, over=True)
    assert (status.phase, status.reason) == ("Failed", "Evicted")
    assert condition(status, "DisruptionTarget") == ("True", "TerminationByKubelet", low)
    assert condition(status, "Ready") == ("False", "PodFailed", None)


STORED = {"resources": {"limits": {"ephemeral-storage": "5Mi"}}}
VOLUME = {"name": "v", "emptyDir": {"sizeLimit": "5Mi"}}


@pytest.mark.parametrize(
    ("subject", "usage"),
    [
        (pod(volumes=[VOLUME]), {"volumes": (VolumeUse(name="v", used_bytes=9 << 20),)}),
        (pod(containers=[{"name": "c", **STORED}]), {"disk_bytes": 9 << 20}),
        (pod(containers=[{"name": "c", **STORED}]), {"containers": (ContainerUsage(name="c", log_bytes=9 << 20),)}),
    ],
    ids=["volume", "pod", "container"],
)
def test_pod_evicted_above_its_own_limit_is_not_disrupted(subject, usage):
    """Else a Job that ignores disruptions would start it for ever."""
    known = {"pod_uid": "u", "memory_working_set_bytes": 0, "disk_bytes": 0}
    message = violation(subject, PodUsage(**known | usage), "one disk")
    ended = view(life(state="exited", code=137))
    status = of(subject, ended, reason="Evicted", message=message, terminal=True, over=True)
    assert (status.phase, status.reason, status.message) == ("Failed", "Evicted", message)
    assert message
    assert "DisruptionTarget" not in [one.type for one in status.conditions]


# Conditions


def test_unready_sidecars_are_listed_in_order():
    status = of(pod(main=("b", "a"), init=(ONCE, SIDE)), view(life("once", "exited"), life("a")))
    assert condition(status, "Ready") == (
        "False",
        "ContainersNotReady",
        "containers with unready status: [side b]",
    )


def test_incomplete_init_containers_are_named():
    status = of(pod(init=(ONCE, SIDE)), view(life("once")))
    assert condition(status, "Initialized") == (
        "False",
        "ContainersNotInitialized",
        "containers with incomplete status: [once side]",
    )


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ((), ("False", "ReadinessGatesNotReady", 'corresponding condition of pod readiness gate "g" does not exist.')),
        (
            ({"type": "g", "status": "False"},),
            ("False", "ReadinessGatesNotReady", 'the status of pod readiness gate "g" is not "True", but False'),
        ),
        (({"type": "g", "status": "True"},), ("True", None, None)),
    ],
)
def test_readiness_gates(conditions, ready):
    subject = pod(readinessGates=[{"conditionType": "g"}])
    subject = from_dict(Pod, to_dict(subject) | {"status": {"conditions": list(conditions)}})
    status = of(subject, view(life()))
    assert condition(status, "Ready") == ready
    assert condition(status, "ContainersReady")[0] == "True"
    assert [one.type for one in status.conditions][: len(conditions)] == [one["type"] for one in conditions]


@pytest.mark.parametrize(
    ("sandbox", "ready"),
    [
        (None, "False"),
        (SandboxView(id="s", state="notready", ips=("10.0.0.1",)), "False"),
        (SandboxView(id="s"), "False"),  # no address yet
        (SANDBOX, "True"),
    ],
)
def test_ready_to_start_once_the_sandbox_has_its_network(sandbox, ready):
    assert condition(of(pod(), view(sandbox=sandbox)), "PodReadyToStartContainers")[0] == ready


@pytest.mark.parametrize(
    ("sandbox", "expected"),
    [(None, ("False", "FailedMount", "why")), (SANDBOX, ("True", None, None))],
)
def test_volumes_explain_only_a_sandbox_that_is_missing(sandbox, expected):
    status = of(pod(), view(sandbox=sandbox), volumes="why")
    assert condition(status, "PodReadyToStartContainers") == expected


# Containers


@pytest.mark.parametrize(
    ("probes", "results", "started", "ready"),
    [
        ((), {}, True, True),
        (("readiness",), {}, True, False),
        (("readiness",), {"readiness": "unknown"}, True, False),
        (("readiness",), {"readiness": "success"}, True, True),
        (("startup",), {}, False, False),
        (("startup",), {"startup": "success"}, True, True),
        (("startup", "readiness"), {"readiness": "success"}, False, False),
        (("startup", "readiness"), {"startup": "success", "readiness": "failure"}, True, False),
        (("liveness",), {"liveness": "failure"}, True, True),
    ],
)
def test_started_and_ready(probes, results, started, ready):
    container = {"name": "c", "image": "i"} | {f"{kind}Probe": PROBE for kind in probes}
    status = of(pod(containers=[container]), view(life()), probe_result=lambda _, kind: results.get(kind))
    (one,) = status.container_statuses
    assert (one.started, one.ready) == (started, ready)


def test_a_result_of_another_life_is_not_asked_for():
    asked = []
    container = {"name": "c", "image": "i", "readinessProbe": PROBE}
    of(
        pod(containers=[container]),
        view(life(state="exited", at=1), life(at=2)),
        probe_result=lambda identity, _: asked.append(identity),
    )
    assert set(asked) == {"c2"}


def test_waiting_says_why_and_the_end_before_is_the_last_state():
    why = reasons.crash_loop_back_off(pod(), "c", 20)
    (one,) = of(pod(), view(life(state="exited", code=3)), waiting={"c": why}).container_statuses
    assert one.state.waiting.message == "back-off 20s restarting failed container=c pod=p_ns(u)"
    assert one.state.waiting.reason == "CrashLoopBackOff"
    assert one.last_state.terminated.exit_code == 3


@pytest.mark.parametrize(
    ("policy", "lives", "more"),
    [
        ("Always", [life()], {}),
        ("Never", [life(state="exited", code=3)], {}),
        ("OnFailure", [life(state="exited")], {}),
        ("Always", [life(state="exited")], {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    ],
)
def test_what_does_not_start_again_does_not_wait(policy, lives, more):
    (one,) = of(pod(policy, **more), view(*lives), waiting={"c": ("CrashLoopBackOff", "x")}).container_statuses
    assert one.state.waiting is None


@pytest.mark.parametrize(("code", "waits"), [(0, False), (1, True)])
def test_a_sidecar_that_succeeded_is_shown_as_completed(code, waits):
    lives = [life("side", "exited", code, reason="Completed"), life("c")]
    (one,) = of(pod(init=(SIDE,)), view(*lives), waiting={"side": ("CrashLoopBackOff", "x")}).init_container_statuses
    assert (one.state.waiting is not None, one.state.terminated is not None) == (waits, not waits)


def test_last_state_shows_only_the_previous_instance():
    lives = (life(state="exited", code=1, at=1), life(state="exited", code=2, at=2), life(at=3, restart_count=2))
    (one,) = of(pod(), view(*lives)).container_statuses
    assert (one.container_id, one.restart_count) == ("containerd://c3", 2)
    assert one.last_state.terminated.exit_code == 2


def last_code(status):
    (one,) = status.container_statuses
    return one.last_state.terminated and one.last_state.terminated.exit_code


def test_the_last_state_outlives_the_container_that_it_was():
    first, second = life(state="exited", code=3, at=1), life(state="exited", code=5, at=2, restart_count=1)
    ended = of(pod(), view(first))
    assert last_code(of(pod(), view(second), old=ended)) == 3, "collected before the second was seen"
    both = of(pod(), view(first, second), old=ended)
    assert last_code(of(pod(), view(second), old=both)) == 3, "and after"
    waits = of(pod(), view(first), waiting={"c": ("CrashLoopBackOff", "x")})
    assert last_code(of(pod(), view(second), old=waits)) == 3, "told as a last state already"
    assert last_code(of(pod(), view(first), old=waits)) is None, "it was its own end"
    assert last_code(of(pod(), view(first), old=both)) is None, "the newest is lost: this is no later one"
    assert last_code(of(pod(), view(second), old=of(pod(), view()))) is None


@pytest.mark.parametrize("lost", [[], [life(state="unknown")]], ids=["lost", "unknown"])
def test_a_lost_container_is_the_last_state_of_its_successor(lost):
    status = of(pod(), view(*lost), old=of(pod(), view(life())))
    second, third = life(at=2, restart_count=1), life(at=3, restart_count=2)
    for _ in range(2):  # it stays
        status = of(pod(), view(second), old=status)
        (one,) = status.container_statuses
        assert (one.restart_count, one.last_state.terminated.reason) == (1, "ContainerStatusUnknown")
    ended = of(pod(), view(life(state="exited", code=3, at=2, restart_count=1)), old=status)
    assert last_code(ended) == 137
    assert last_code(of(pod(), view(third), old=ended)) == 3
    (again,) = of(pod(), view(), old=status).container_statuses
    assert (again.restart_count, again.last_state.terminated.exit_code) == (2, 137), "each loss counts"


@pytest.mark.parametrize("lost", [[], [life(state="unknown")]], ids=["lost", "unknown"])
def test_a_container_that_is_found_again_is_not_its_own_last_state(lost):
    status = of(pod(), view(*lost), old=of(pod(), view(life())))
    for _ in range(2):
        status = of(pod(), view(life()), old=status)
        assert last_code(status) is None


def test_lost_containers_are_shown_from_the_old_status():
    old = of(pod(), view(life(restart_count=4)))
    (lost,) = of(pod(), view(), old=old).container_statuses
    assert lost.state.waiting.reason == "ContainerCreating"
    assert (lost.last_state.terminated.reason, lost.last_state.terminated.exit_code) == ("ContainerStatusUnknown", 137)
    assert lost.restart_count == 5
    (again,) = of(pod(), view(), old=of(pod(), view(), old=old)).container_statuses
    assert again.restart_count == 5  # told once, counted once
    ended = of(pod("Never"), view(life(state="exited", code=2)))
    assert of(pod("Never"), view(), old=ended).container_statuses == ended.container_statuses


def test_container_in_unknown_state_is_lost_if_it_ran():
    old = of(pod(), view(life(restart_count=4)))
    (lost,) = of(pod(), view(life(state="unknown", restart_count=4)), old=old).container_statuses
    assert to_dict(lost.state.terminated) == {
        "exitCode": 137,
        "reason": "ContainerStatusUnknown",
        "message": "The container could not be located when the pod was terminated",
    }
    assert lost.restart_count == 5
    (never,) = of(pod(), view(life(state="unknown"))).container_statuses
    assert to_dict(never.state) == {"waiting": {}}


def test_lost_init_container_succeeded_once_main_ones_exist():
    subject = pod(init=({"name": "once"}, {"name": "side", "restartPolicy": "Always"}))
    once, side = of(subject, view(life())).init_container_statuses
    assert once.state.terminated.reason == "Completed"
    assert once.state.terminated.message.endswith("has been initialized, treat it as exited normally")
    assert side.state.waiting.reason == "PodInitializing"


LOST = "Unable to get init container status from container runtime and pod has been initialized, "


@pytest.mark.parametrize(
    ("metadata", "code", "lives", "message"),
    [
        (STATIC, 0, [life()], LOST + "treat it as exited normally"),
        (STATIC, 1, [life()], None),
        (STATIC, 0, [], None),
        ({}, 0, [life()], None),
    ],
)
def test_lost_init_container_of_static_pod_gets_the_message(metadata, code, lives, message):
    subject = pod(metadata=metadata, init=(ONCE,))
    before = of(subject, view(life("once", "exited", code), life()))
    (once,) = of(subject, view(*lives), old=before).init_container_statuses
    assert once.state.terminated.message == message
    assert once.state.terminated.exit_code == code
    assert once.container_id == "containerd://once1"


def test_a_running_container_shows_what_its_cgroup_has():
    given = {"limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "250m", "memory": "32Mi"}}
    subject = pod(containers=[{"name": "c", "image": "i", "resources": given}])
    shown = ResourcesView(milli_cpu_request=100, milli_cpu_limit=200, memory_limit_bytes=16 << 20)
    actuated = resources_of(pod(containers=[{"name": "c", "resources": {"requests": {"memory": "8Mi"}}}]))
    (one,) = of(subject, view(life(resources=shown)), actuated=actuated).container_statuses
    assert to_dict(one.resources) == {
        "limits": {"cpu": "200m", "memory": "16Mi"},
        "requests": {"cpu": "100m", "memory": "8Mi"},
    }
    assert one.allocated_resources == given["requests"]
    (ended,) = of(subject, view(life(state="exited", resources=shown)), actuated=actuated).container_statuses
    assert to_dict(ended.resources) == given
    first = of(subject, view(life(resources=shown)), actuated=actuated)
    (silent,) = of(subject, view(life()), old=first, actuated=actuated).container_statuses
    assert silent.resources == one.resources  # a runtime that says nothing for once
    (another,) = of(subject, view(life(at=2)), old=first).container_statuses
    assert to_dict(another.resources) == given


@pytest.mark.parametrize("state", ["running", "exited"])
def test_quantities_of_a_manifest_are_shown_as_go_prints_them(state):
    given = {"limits": {"cpu": 0.5, "memory": 134217728}, "requests": {"cpu": "0.25", "memory": "0.5Gi"}}
    printed = {"limits": {"cpu": "500m", "memory": "134217728"}, "requests": {"cpu": "250m", "memory": "512Mi"}}
    subject = pod(containers=[{"name": "c", "image": "i", "resources": given}])
    (one,) = of(subject, view(life(state=state)), actuated=resources_of(subject)).container_statuses
    assert to_dict(one.resources) == printed
    assert one.allocated_resources == printed["requests"]


@pytest.mark.parametrize(("given", "shown", "limit"), [("5m", 10, "5m"), ("5m", 20, "20m"), ("20m", 10, "10m")])
def test_limit_below_kernel_minimum_is_shown_as_written(given, shown, limit):
    subject = pod(containers=[{"name": "c", "image": "i", "resources": {"limits": {"cpu": given}}}])
    (one,) = of(subject, view(life(resources=ResourcesView(milli_cpu_limit=shown)))).container_statuses
    assert one.resources.limits == {"cpu": limit}


@pytest.mark.parametrize(
    ("set_last", "shown"),
    [
        ("2671247360", "2671247360"),
        (134217728, "134217728"),
        ("10m", "10m"),
        ("100M", "100M"),
        ("0.5Gi", "512Mi"),
        (" 64Mi ", "64Mi"),
        ("0", "64Mi"),
    ],
)
def test_memory_request_is_shown_as_go_prints_it(set_last, shown):
    def with_memory(amount):
        return pod(containers=[{"name": "c", "image": "i", "resources": {"requests": {"memory": amount}}}])

    (one,) = of(
        with_memory("64Mi"), view(life(resources=ResourcesView())), actuated=resources_of(with_memory(set_last))
    ).container_statuses
    assert one.resources.requests == {"memory": shown}


def test_conditions_of_a_resize_are_told_until_the_pod_is_over():
    waits = (PodCondition(type="PodResizePending", status="True", reason="Deferred", observed_generation=2),)
    stale = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]}
    subject = from_dict(Pod, {**to_dict(pod()), "status": stale})
    assert condition(of(subject, view(life()), resize=waits), "PodResizePending")[1] == "Deferred"
    for over in (of(subject, view(life())), of(subject, view(life(state="exited")), resize=waits, terminal=True)):
        assert "PodResizePending" not in [one.type for one in over.conditions]


def test_pod_ips_stay_after_sandbox_and_node_ip_family_is_first():
    first = of(pod(), view(life()), host_ips=("192.0.2.2",))
    assert [ip.ip for ip in first.pod_ips] == ["10.0.0.1", "fd00::1"]
    assert of(pod(), view(sandbox=SandboxView(id="t")), old=first).pod_ip == "10.0.0.1"
    assert of(pod(), view(life()), host_ips=("192.0.2.2",), node_ip="2001:db8::2").pod_ip == "fd00::1"
    assert of(pod(), view(life()), host_ips=("2001:db8::2", "192.0.2.2")).pod_ip == "10.0.0.1", "not the Node's"
    assert of(pod(hostNetwork=True), view(life()), host_ips=("192.0.2.2",)).pod_ip == "192.0.2.2"


def test_loopback_address_is_replaced_once_the_machine_has_another():
    host = pod(hostNetwork=True)
    early = of(host, view(life()), host_ips=("127.0.0.1",))
    assert (early.pod_ip, early.host_ip) == ("127.0.0.1", "127.0.0.1")
    assert of(host, view(life()), host_ips=(), old=early).pod_ip == "127.0.0.1"
    late = of(host, view(life()), host_ips=("192.0.2.2",), old=early)
    assert ([one.ip for one in late.pod_ips], late.host_ip) == (["192.0.2.2"], "192.0.2.2")


def test_published_host_ips_stay_until_the_nodes_are_told():
    known = of(pod(), view(life()), host_ips=("203.0.113.9", "fd00::9"))
    early = of(pod(), view(life()), host_ips=("192.0.2.2",), host_ips_told=False, old=known)
    assert [one.ip for one in early.host_ips] == ["203.0.113.9", "fd00::9"]
    assert of(pod(), view(life()), host_ips=("192.0.2.2",), host_ips_told=False).host_ip == "192.0.2.2"
    assert of(pod(), view(life()), host_ips=("192.0.2.2",), old=known).host_ip == "192.0.2.2"
    assert of(pod(), view(life()), old=known).host_ip == "203.0.113.9", "the Node has none now"


def test_host_network_pod_keeps_its_ip_and_gets_a_second_family():
    host = pod(hostNetwork=True)
    none = of(host, view(life()))
    assert (none.host_ip, none.pod_ip) == (None, None)
    first = of(host, view(life()), host_ips=("192.0.2.2",), old=none)
    moved = of(host, view(life()), host_ips=("192.0.2.3", "fd00::3"), old=first, keeps_ips=True)
    assert (moved.host_ip, [ip.ip for ip in moved.pod_ips]) == ("192.0.2.3", ["192.0.2.2", "fd00::3"])
    turned = of(host, view(life()), host_ips=("fd00::4", "192.0.2.4"), old=first, keeps_ips=True)
    assert [ip.ip for ip in turned.pod_ips] == ["192.0.2.2"], "no second one of its family"


ENDED = replace(SANDBOX, state="notready")


@pytest.mark.parametrize(
    ("sandbox", "host_ips", "told", "expected"),
    [
        (SANDBOX, ("192.0.2.3", "fd00::3"), True, ["192.0.2.3", "fd00::3"]),
        (SANDBOX, ("fd00::3",), True, ["fd00::3"]),
        (SANDBOX, (), True, ["192.0.2.2"]),  # the Node has none now
        (SANDBOX, ("127.0.0.1",), True, ["192.0.2.2"]),  # nor has the machine of a pod without an API server
        (SANDBOX, ("192.0.2.3",), False, ["192.0.2.2"]),  # it may not be the Node's
        (ENDED, ("192.0.2.3",), True, ["192.0.2.2"]),
        (None, ("192.0.2.3",), True, ["192.0.2.2"]),  # after a reboot, until it has a sandbox
    ],
)
def test_fresh_status_of_host_pod_has_the_nodes_ips(sandbox, host_ips, told, expected):
    host = pod(hostNetwork=True)
    old = of(host, view(life()), host_ips=("192.0.2.2",))
    new = of(host, view(life(), sandbox=sandbox), host_ips=host_ips, host_ips_told=told, old=old)
    assert ([ip.ip for ip in new.pod_ips], new.pod_ip) == (expected, expected[0])


def test_recursive_read_only_mount_is_shown():
    mounts = [
        {"name": "a", "mountPath": "/a", "readOnly": True, "recursiveReadOnly": "IfPossible"},
        {"name": "b", "mountPath": "/b", "readOnly": True, "recursiveReadOnly": "Disabled"},
        {"name": "c", "mountPath": "c"},
    ]
    subject = pod(containers=[{"name": "c", "image": "i", "volumeMounts": mounts}])
    answer = pb.ContainerStatusResponse()
    answer.status.mounts.add(container_path="/a", recursive_read_only=True)
    answer.status.mounts.add(container_path="/b")
    seen = ContainerView.from_status(answer).recursive_read_only
    (one,) = of(subject, view(life(recursive_read_only=seen))).container_statuses
    shown = [(mount.name, mount.read_only, mount.recursive_read_only) for mount in one.volume_mounts]
    assert shown == [("a", True, "Enabled"), ("b", True, "Disabled"), ("c", None, None)]
    lost = of(subject, view(), old=of(subject, view(life(recursive_read_only=seen))))
    assert lost.container_statuses[0].volume_mounts == one.volume_mounts, "the next instance has them, too"


def test_the_user_is_shown_where_the_runtime_tells():
    (one,) = of(pod(), view(life(user=UserView(5, 6, (7,))))).container_statuses
    assert to_dict(one.user) == {"linux": {"uid": 5, "gid": 6, "supplementalGroups": [7]}}


def test_resources_of_a_pod_are_those_of_its_containers():
    limited = {"limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "0.25", "memory": "64Mi"}}
    both = [{"name": name, "image": "i", "resources": limited} for name in "ab"]
    status = of(pod(containers=both), view())
    assert to_dict(status.resources) == {
        "limits": {"cpu": "1", "memory": "128Mi"},
        "requests": {"cpu": "500m", "memory": "128Mi"},
    }
    one = [both[0], {"name": "b", "image": "i"}]
    assert status.qos_class == "Burstable"
    assert "limits" not in to_dict(of(pod(containers=one), view()).resources)


@pytest.mark.parametrize(
    ("own", "overhead", "containers", "memory"),
    [
        ("10m", "", "", "10m"),
        ("1024Mi", "", "", "1Gi"),
        (134217728, "", "", "134217728"),
        ("2671247360", "", "64Mi", "2671247360"),
        ("64Mi", "1Mi", "", "65Mi"),
        ("64Mi", "500m", "", "67108864500m"),
        ("", "", "10m", "20m"),
        ("", "", "500m", "1"),
        ("", "", "1u", "2000n"),
        ("", "", "32Mi", "64Mi"),
        ("0", "", "", "0"),
    ],
)
def test_requested_memory_of_a_pod_is_not_rounded(own, overhead, containers, memory):
    def memory_of(amount):
        return {"memory": amount} if amount else {}

    both = [{"name": name, "image": "i", "resources": {"requests": memory_of(containers)}} for name in "ab"]
    subject = pod(containers=both, resources={"requests": memory_of(own)}, overhead=memory_of(overhead))
    status = of(subject, view())
    assert status.allocated_resources == status.resources.requests == {"memory": memory}


# All containers start anew (KEP-5532)

RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}
TRIGGER = {"name": "x", "image": "i", "restartPolicy": "Never", "restartPolicyRules": [RULE]}


def states(status: PodStatus) -> dict[str, tuple[str, int]]:
    """State and restart count of each main container."""
    found = {}
    for one in status.container_statuses:
        kinds = {"waiting": one.state.waiting, "running": one.state.running, "terminated": one.state.terminated}
        kind = next(kind for kind, value in kinds.items() if value is not None)
        found[one.name] = (getattr(kinds[kind], "reason", None) or kind, one.restart_count)
    return found


def here(*args, **fields) -> ContainerView:
    return life(*args, sandbox_id=SANDBOX.id, **fields)


def test_a_reset_from_the_rules_match_to_the_next_lives() -> None:
    containers = [TRIGGER, {"name": "c", "image": "i"}, {"name": "d", "image": "i"}]
    subject = pod("Never", containers=containers, metadata={"generation": 3})
    before = of(subject, view(here("x"), here("c"), here("d", "exited")))
    assert condition(before, "AllContainersRestarting")[0] == "False"
    matched = of(subject, view(here("x", "exited", 88), here("c"), here("d", "exited")), old=before)
    assert matched.phase == "Running"
    assert condition(matched, "AllContainersRestarting") == (
        "True",
        "RestartAllContainersStarted",
        "container exited with restart policy rule",
    )
    generations = {one.type: one.observed_generation for one in matched.conditions}
    assert (generations["AllContainersRestarting"], generations["Ready"]) == (None, 3)
    half = of(subject, view(here("x", "exited", 88)), old=matched)
    assert states(half) == {
        "x": ("terminated", 0),
        "c": ("RestartingAllContainers", 1),
        "d": ("RestartingAllContainers", 1),
    }
    assert half.phase == "Running"
    again = of(subject, view(here("x", "exited", 88)), old=half)
    assert states(again) == states(half), "counted once"
    gone = of(subject, view(), old=again)
    assert {count for _, count in states(gone).values()} == {1}
    assert condition(gone, "AllContainersRestarting")[0] == "False"
    lives = [here(name, restart_count=1) for name in ("x", "c", "d")]
    new = of(subject, view(*lives), old=gone)
    assert set(states(new).values()) == {("running", 1)}
    for one in new.container_statuses:
        ended = one.last_state.terminated
        assert ended is not None
        assert (ended.exit_code, ended.reason, ended.started_at) == (137, reasons.RESTARTING_ALL_CONTAINERS, None)


def test_pod_stays_initialized_while_all_containers_restart() -> None:
    subject = pod("Never", containers=[TRIGGER], init=(ONCE,))
    first = of(subject, view(here("once")))
    before = of(subject, view(here("once", "exited"), here("x")), old=first)
    matched = of(subject, view(here("once", "exited"), here("x", "exited", 88)), old=before)
    gone = of(subject, view(), old=matched)
    again = of(subject, view(here("once", restart_count=1)), old=gone)
    shown = [condition(one, "Initialized")[0] for one in (first, before, matched, gone, again)]
    assert shown == ["False", "True", "True", "True", "True"]


def test_a_pod_without_such_a_rule_has_no_such_condition() -> None:
    assert "AllContainersRestarting" not in {one.type for one in of(pod(), view(life())).conditions}


@pytest.mark.parametrize(
    ("policy", "own", "code", "phase"),
    [
        ("Never", "Always", 0, "Running"),
        ("Never", "OnFailure", 1, "Running"),
        ("Never", "OnFailure", 0, "Succeeded"),
        ("Always", "Never", 0, "Succeeded"),
        ("Always", "Never", 1, "Failed"),
        ("OnFailure", "Never", 1, "Failed"),
    ],
)
def test_the_phase_of_a_container_with_a_policy_of_its_own(policy: str, own: str, code: int, phase: str) -> None:
    subject = pod(policy, containers=[{"name": "c", "image": "i", "restartPolicy": own}])
    assert of(subject, view(life(state="exited", code=code))).phase == phase


def test_ephemeral_containers_are_shown_and_count_for_nothing() -> None:
    subject = pod("Never", ephemeralContainers=[{"name": "f", "image": "i"}, {"name": "e", "image": "i"}])
    status = of(subject, view(life(), life("e", "exited", 1)))
    assert [(one.name, one.ready) for one in status.ephemeral_container_statuses] == [("e", False), ("f", False)]
    assert status.ephemeral_container_statuses[0].state.terminated.exit_code == 1
    assert status.ephemeral_container_statuses[1].state.waiting is not None
    assert (status.phase, condition(status, "Ready")[0]) == ("Running", "True")


def test_health_of_devices_is_shown_and_kept_while_it_is_not_known():
    found = {
        "c": (ResourceStatus(name="a.test/gpu", resources=(ResourceHealth(resource_id="d0", health="Unhealthy"),)),)
    }
    shown = of(pod(), view(life()), health=found)
    assert shown.container_statuses[0].allocated_resources_status == found["c"]
    assert of(pod(), view(life()), old=shown).container_statuses[0].allocated_resources_status == found["c"]
    assert of(pod(), view(life()), old=shown, health={}).container_statuses[0].allocated_resources_status == ()


def test_an_ended_container_keeps_the_health_that_nobody_tells_any_more():
    claim, device = (
        ResourceStatus(name=name, resources=(ResourceHealth(resource_id="d", health=health),))
        for name, health in [("claim:gpu", "Healthy"), ("a.test/gpu", "Healthy")]
    )
    sick = ResourceStatus(name=device.name, resources=(ResourceHealth(resource_id="d", health="Unhealthy"),))
    subject, running, ended = pod("Never"), view(life()), view(life(state="exited"))
    old = of(subject, running, health={"c": (claim, device)})
    for health, expected in [({}, (claim, device)), ({"c": (sick,)}, (claim, sick))]:
        shown = of(subject, ended, old=old, health=health).container_statuses[0]
        assert shown.allocated_resources_status == expected


def test_health_is_known_from_the_first_full_message_on():
    statuses = (ResourceStatus(name="r"),)
    healths = ResourceHealths()
    one = PodHealth(pod_uid="u", containers={"c": statuses})
    assert healths.apply(SetResourceHealth(pods=(one,))) == set()
    assert healths.of_pod("u") is None
    assert healths.apply(SetResourceHealth(pods=(one,), full=True)) == {"u"}
    assert (healths.of_pod("u"), healths.of_pod("v")) == ({"c": statuses}, {})
    assert healths.apply(SetResourceHealth(pods=(one,))) == set()
    assert healths.apply(SetResourceHealth(pods=(PodHealth(pod_uid="u"),))) == {"u"}
    assert healths.of_pod("u") == {}

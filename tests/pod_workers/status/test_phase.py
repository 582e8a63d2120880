"""The phase of a pod, by its policy, its containers and what ended it."""

from dataclasses import replace

import pytest

from actors.eviction.local_storage import violation
from actors.eviction.message import eviction_message
from actors.eviction.policy import Observation
from actors.eviction.thresholds import Threshold
from actors.pod_workers.model import reasons
from actors.pod_workers.model.view import PodView, SandboxView
from proto.node.stats import ContainerUsage, PodUsage, VolumeUse
from proto.v1 import PodStatus
from tests.pod_workers.status.pods import ONCE, PROBE, SANDBOX, SIDE, STATIC, condition, life, of, pod, view


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

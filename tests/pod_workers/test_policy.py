"""The next actions for a pod: tables of specs and views of the runtime."""

import dataclasses
from collections import Counter

import pytest
from msgspec.structs import replace

from actors._host.files.hashing import container_hash
from actors.pod_workers.model.view import ContainerView, PodView, SandboxView
from actors.pod_workers.policy import RESYNC_STEPS, SHORTEST_STEP_S, compute_actions, resync_s
from proto.v1 import (
    Container,
    ContainerRestartRule,
    ContainerRestartRuleOnExitCodes,
    EphemeralContainer,
    ObjectMeta,
    Pod,
    PodSpec,
    Probe,
)

IMAGE = "busybox"
READY = SandboxView(id="s0", state="ready", attempt=0, ips=("10.0.0.2",))


def pod(*names, init=(), restart="Always", **spec):
    return Pod(
        metadata=ObjectMeta(name="p", namespace="default", uid="u"),
        spec=PodSpec(
            containers=tuple(Container(name=name, image=IMAGE) for name in names),
            init_containers=tuple(init),
            restart_policy=restart,
            **spec,
        ),
    )


def initc(name, **fields):
    return Container(name=name, image=IMAGE, **fields)


def ran(name, state="running", code=0, sandbox="s0", hash_=None, created=1):
    return ContainerView(
        id=f"{name}-{created}",
        name=name,
        state=state,
        exit_code=code,
        sandbox_id=sandbox,
        hash=container_hash(name, IMAGE) if hash_ is None else hash_,
        created_at_ns=created,
    )


def view(*containers, sandboxes=(READY,)):
    return PodView(sandboxes=tuple(sandboxes), containers=tuple(containers))


def act(a_pod, a_view, **probes):
    """probes: container ID with `-` as `_` to {probe: result}."""
    return compute_actions(a_pod, a_view, lambda identity, probe: probes.get(identity.replace("-", "_"), {}).get(probe))


def names(containers):
    return [container.name for container in containers]


def test_a_new_pod_gets_a_sandbox_and_all_its_containers():
    actions = act(pod("a", "b"), view(sandboxes=()))
    assert (actions.create_sandbox, actions.attempt, actions.kill_pod) == (True, 0, False)
    assert names(actions.start) == ["a", "b"]


@pytest.mark.parametrize(
    ("a_pod", "a_view", "work"),
    [
        (pod("a"), view(ran("a")), False),
        (pod("a", "b", restart="Never"), view(ran("a"), ran("b", "exited")), False),
        (pod("a"), view(sandboxes=()), True),
        (pod("a"), view(), True),
        (pod("a", init=[initc("i")]), view(), True),
        (pod("a", "b"), view(ran("a"), ran("b", "exited")), True),
        (pod("a", restart="Never"), view(ran("a", "exited")), True),
    ],
    ids=["runs", "one has ended", "new", "no container", "init", "one restarts", "all have ended"],
)
def test_only_a_pod_with_work_has_actions(a_pod, a_view, work):
    assert bool(act(a_pod, a_view)) is work


def test_with_init_containers_only_the_first_one_starts():
    actions = act(pod("a", init=[initc("i"), initc("j")]), view(sandboxes=()))
    assert (names(actions.init), names(actions.start)) == (["i"], [])


@pytest.mark.parametrize(
    ("sandboxes", "attempt"),
    [
        ([SandboxView(id="s0", state="notready", attempt=3, ips=("10.0.0.2",))], 4),
        ([READY, SandboxView(id="s1", state="ready", attempt=1, ips=("10.0.0.3",))], 1),
        ([SandboxView(id="s0", state="ready", attempt=0, ips=())], 1),
    ],
    ids=["not ready", "two ready", "no address"],
)
def test_a_broken_sandbox_is_replaced_with_all_in_it(sandboxes, attempt):
    actions = act(pod("a"), view(ran("a"), sandboxes=sandboxes))
    assert (actions.kill_pod, actions.create_sandbox, actions.attempt) == (True, True, attempt)
    assert names(actions.start) == ["a"]


def test_new_sandbox_counts_though_the_clock_was_set_back():
    """Its predecessor was created "later"; another sandbox would take its attempt again."""
    old = SandboxView(id="s0", state="notready", attempt=0, created_at_ns=9, ips=("10.0.0.2",))
    new = SandboxView(id="s1", state="ready", attempt=1, created_at_ns=1, ips=("10.0.0.3",))
    actions = act(pod("a"), PodView.of((old, new), (ran("a", "exited", 1),)))
    assert (actions.create_sandbox, actions.sandbox_id, names(actions.start)) == (False, "s1", ["a"])


def test_a_host_network_pod_needs_no_address():
    sandbox = SandboxView(id="s0", state="ready", ips=(), host_network=True)
    assert not act(pod("a", host_network=True), view(ran("a"), sandboxes=[sandbox])).create_sandbox


@pytest.mark.parametrize(
    ("wanted", "sandbox", "replaced"),
    [
        (True, SandboxView(id="s0", ips=("10.0.0.2",), complete=True), True),
        (True, SandboxView(id="s0", host_network=True, complete=True), False),
        (False, SandboxView(id="s0", host_network=True, complete=True), True),
        (False, SandboxView(id="s0", ips=("10.0.0.2",), complete=True), False),
        (True, SandboxView(id="s0"), False),  # listed only: its network is not known
    ],
)
def test_sandbox_of_the_other_network_is_replaced(wanted, sandbox, replaced):
    actions = act(pod("a", host_network=wanted), view(ran("a"), sandboxes=[sandbox]))
    assert (actions.kill_pod, actions.create_sandbox, actions.attempt) == (replaced, replaced, int(replaced))


@pytest.mark.parametrize(("restart", "again"), [("Always", True), ("OnFailure", True), ("Never", False)])
def test_pod_outside_its_cgroup_is_ended_and_starts_in_a_new_sandbox(restart, again):
    subject, running = pod("a", "b", restart=restart), view(ran("a"), ran("b"))
    assert not compute_actions(subject, running, lambda *_: None, misplaced=False)
    actions = compute_actions(subject, running, lambda *_: None, misplaced=True)
    assert (actions.kill_pod, actions.create_sandbox) == (True, again)
    assert (actions.attempt, [one.name for one in actions.start]) == ((1, ["a", "b"]) if again else (0, []))


def test_lost_sandbox_is_not_replaced_under_never():
    gone = SandboxView(id="s0", state="notready", attempt=0, ips=("10.0.0.2",))
    actions = act(pod("a", restart="Never"), view(ran("a", "exited", 1), sandboxes=[gone]))
    assert (actions.kill_pod, actions.create_sandbox) == (True, False)


@pytest.mark.parametrize(
    ("restart", "code", "starts"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 0, False),
        ("Never", 1, False),
    ],
)
def test_an_exited_container_restarts_by_policy(restart, code, starts):
    actions = act(pod("a", "b", restart=restart), view(ran("a", "exited", code), ran("b")))
    assert names(actions.start) == (["a"] if starts else [])
    assert not actions.kill_pod


def test_when_nothing_runs_and_nothing_starts_the_pod_is_ended():
    assert act(pod("a", restart="Never"), view(ran("a", "exited", 0))).kill_pod


def test_a_created_container_that_never_started_is_started_anew():
    assert names(act(pod("a"), view(ran("a", "created"))).start) == ["a"]


@pytest.mark.parametrize("probe", ["liveness", "startup"])
def test_container_failing_a_probe_is_killed_and_restarted(probe):
    actions = act(pod("a"), view(ran("a")), a_1={probe: "failure"})
    assert [kill.message for kill in actions.kill] == [f"Container a failed {probe} probe, will be restarted"]
    assert names(actions.start) == ["a"]


def test_liveness_failure_under_never_only_kills():
    actions = act(pod("a", "b", restart="Never"), view(ran("a"), ran("b")), a_1={"liveness": "failure"})
    assert [kill.message for kill in actions.kill] == ["Container a failed liveness probe"]
    assert actions.start == ()


def test_readiness_kills_nothing():
    assert act(pod("a"), view(ran("a")), a_1={"readiness": "failure"}).kill == ()


def test_a_changed_image_restarts_the_container():
    actions = act(pod("a"), view(ran("a", hash_="deadbeef")))
    assert [kill.reason for kill in actions.kill] == ["Changed"]
    assert names(actions.start) == ["a"]


def test_init_containers_run_one_after_another():
    a_pod = pod("a", init=[initc("i"), initc("j")])
    assert act(a_pod, view(ran("i"))).init == ()
    assert names(act(a_pod, view(ran("i", "exited", 0))).init) == ["j"]
    done = act(a_pod, view(ran("j", "exited", 0, created=2), ran("i", "exited", 0)))
    assert (done.init, names(done.start)) == ((), ["a"])


def test_a_failed_init_container_is_tried_again_unless_never():
    a_view = view(ran("i", "exited", 1))
    assert names(act(pod("a", init=[initc("i")]), a_view).init) == ["i"]
    never = act(pod("a", init=[initc("i")], restart="Never"), a_view)
    assert (never.init, never.kill_pod) == ((), True)


def test_init_containers_do_not_run_again_once_main_ones_exist():
    actions = act(pod("a", init=[initc("i")]), view(ran("a", "exited", 1, created=2)))
    assert (actions.init, names(actions.start)) == ((), ["a"])


def test_init_containers_run_again_in_a_new_sandbox():
    sandboxes = [SandboxView(id="s1", state="ready", attempt=1, ips=("10.0.0.2",))]
    actions = act(pod("a", init=[initc("i")]), view(ran("i", "exited", 0), ran("a", "exited", 0), sandboxes=sandboxes))
    assert names(actions.init) == ["i"]


def test_a_sidecar_lets_the_next_start_once_it_has_started():
    sidecar = initc("s", restart_policy="Always", startup_probe=Probe())
    a_pod = pod("a", init=[sidecar])
    assert act(a_pod, view(ran("s")), s_1={"startup": "unknown"}).start == ()
    assert names(act(a_pod, view(ran("s")), s_1={"startup": "success"}).start) == ["a"]


def test_a_sidecar_is_restarted_next_to_running_main_containers():
    a_pod = pod("a", init=[initc("s", restart_policy="Always")])
    actions = act(a_pod, view(ran("a", created=2), ran("s", "exited", 1)))
    assert (names(actions.init), actions.start, actions.kill_pod) == (["s"], (), False)


def sidecar(name, **fields):
    return initc(name, restart_policy="Always", **fields)


STARTUP = {"startup_probe": Probe()}
LIVENESS = {"liveness_probe": Probe()}


@pytest.mark.parametrize(
    ("init", "lives", "probes", "starts", "kills", "main"),
    [
        ([sidecar("s"), initc("i")], [ran("s")], {}, ["i"], [], []),
        ([sidecar("s"), initc("i")], [ran("s"), ran("i")], {}, [], [], []),
        ([sidecar("s"), initc("i")], [ran("s", "exited", 1), ran("i")], {}, ["s"], [], []),
        ([sidecar("s"), initc("i")], [ran("s", "exited", 1), ran("i", "exited", 0)], {}, ["s"], [], ["a"]),
        ([sidecar("s"), initc("i")], [ran("i", "exited", 0)], {}, ["s"], [], ["a"]),
        ([initc("i"), sidecar("s")], [ran("s")], {}, [], [], ["a"]),
        ([initc("i"), sidecar("s")], [ran("s", "exited", 0)], {}, ["s"], [], []),
        ([initc("i"), sidecar("s")], [ran("s", "created")], {}, ["s"], [], []),
        ([sidecar("s", **STARTUP), initc("i")], [ran("s")], {}, [], [], []),
        ([sidecar("s", **STARTUP), initc("i")], [ran("s")], {"s_1": {"startup": "unknown"}}, [], [], []),
        ([sidecar("s", **STARTUP), initc("i")], [ran("s")], {"s_1": {"startup": "success"}}, ["i"], [], []),
        (
            [sidecar("s", **STARTUP), initc("i")],
            [ran("s")],
            {"s_1": {"startup": "failure"}},
            ["s"],
            [("StartupProbe", "Init container s failed startup probe")],
            [],
        ),
        (
            [sidecar("s", **LIVENESS), initc("i")],
            [ran("s")],
            {"s_1": {"liveness": "failure"}},
            ["s", "i"],
            [("LivenessProbe", "Init container s failed liveness probe")],
            [],
        ),
        (
            [sidecar("s")],
            [ran("s", hash_="deadbeef"), ran("a", created=2)],
            {},
            ["s"],
            [("Changed", "Init container s definition changed")],
            [],
        ),
        (
            [sidecar("s")],
            [ran("s", "unknown"), ran("a", created=2)],
            {},
            ["s"],
            [("Unknown", 'Init container is in "unknown" state, try killing it before restart')],
            [],
        ),
        ([sidecar("s"), initc("i"), sidecar("t")], [ran("a", created=2)], {}, ["s", "t"], [], []),
        ([sidecar("s", **LIVENESS)], [ran("s"), ran("a", created=2)], {"s_1": {"liveness": "success"}}, [], [], []),
    ],
    ids=[
        "running lets the next start", "a regular one runs", "restarted while one after it runs", "restarted after all",
        "forgotten by the runtime", "the last one", "the last one has ended", "made and never started",
        "startup unknown", "startup not over", "startup over", "startup failed", "liveness failed", "changed", "lost",
        "only sidecars once initialized", "healthy",
    ],
)  # fmt: skip
def test_what_init_containers_need_next(init, lives, probes, starts, kills, main):
    actions = act(pod("a", init=init), view(*lives), **probes)
    assert names(actions.init) == starts
    assert [(kill.reason, kill.message) for kill in actions.kill] == kills
    assert names(actions.start) == main
    assert not actions.kill_pod


@pytest.mark.parametrize(
    ("policy", "own", "state", "code", "fails"),
    [
        ("Never", None, "exited", 1, True),
        ("Never", "OnFailure", "exited", 1, False),
        ("Always", "Never", "exited", 1, True),
        ("Always", None, "unknown", 0, False),
        ("Never", None, "unknown", 0, True),
    ],
)
def test_init_container_failed_for_good_fails_the_pod(policy, own, state, code, fails):
    a_pod = pod("a", init=[initc("i", restart_policy=own)], restart=policy)
    actions = act(a_pod, view(ran("i", state, code)))
    assert actions.kill_pod is fails
    assert names(actions.init) == ([] if fails else ["i"])


RULE_137 = ContainerRestartRule(
    action="Restart", exit_codes=ContainerRestartRuleOnExitCodes(operator="In", values=(137,))
)


@pytest.mark.parametrize(
    ("policy", "own", "state", "fails"),
    [
        ("Never", "Never", "unknown", True),
        ("Always", "Never", "unknown", True),
        ("Never", "OnFailure", "unknown", False),
        ("Never", "Never", "exited", False),
    ],
)
def test_rules_do_not_apply_to_a_lost_init_container(policy, own, state, fails):
    """It may not have exited, so there is no exit code."""
    init = initc("i", restart_policy=own, restart_policy_rules=(RULE_137,))
    actions = act(pod("a", init=[init], restart=policy), view(ran("i", state, 137)))
    assert (actions.kill_pod, names(actions.init)) == (fails, [] if fails else ["i"])


@pytest.mark.parametrize(("policy", "fails"), [("Always", False), ("OnFailure", False), ("Never", True)])
def test_init_container_with_an_oom_kill_has_failed_with_code_0(policy, fails):
    """A shell whose child was killed can exit with 0, after half of the work."""
    killed = dataclasses.replace(ran("i", "exited", 0), reason="OOMKilled")
    actions = act(pod("a", init=[initc("i")], restart=policy), view(killed))
    assert (actions.kill_pod, actions.start) == (fails, ())
    assert names(actions.init) == ([] if fails else ["i"])


def test_sidecars_do_not_keep_a_pod_alive():
    a_pod = pod("a", init=[sidecar("s")], restart="Never")
    actions = act(a_pod, view(ran("s", "exited", 1), ran("a", "exited", 0, created=2)))
    assert (actions.kill_pod, actions.create_sandbox, actions.init) == (True, False, ())


LAST = [initc("i"), sidecar("s", **STARTUP)]
STARTED = {"s_1": {"startup": "success"}}


@pytest.mark.parametrize(
    ("init", "lives", "probes", "starts", "main"),
    [
        (LAST, [ran("s", "exited", 1)], {}, ["s"], []),
        (LAST, [ran("s")], {}, [], []),
        (LAST, [ran("s")], STARTED, [], ["a"]),
        (LAST, [], {}, ["s"], []),
        ([sidecar("s"), initc("i")], [ran("s", "exited", 1)], {}, ["s"], ["a"]),
    ],
    ids=["sidecar is down", "sidecar starts", "sidecar has started", "sidecar was removed", "a regular one is last"],
)
def test_ended_main_containers_wait_for_their_last_sidecar(init, lives, probes, starts, main):
    ended = ran("a", "exited", 1, created=2)
    actions = act(pod("a", init=init), view(ended, *lives), **probes)
    assert (names(actions.init), names(actions.start), actions.kill_pod) == (starts, main, False)
    beside = act(pod("a", "b", init=init), view(ended, ran("b", created=2), *lives), **probes)
    assert (names(beside.init), names(beside.start)) == (starts, ["a"]), "where another one runs, it does not wait"


def with_ephemeral(a_pod, *found):
    return replace(
        a_pod, spec=replace(a_pod.spec, ephemeral_containers=tuple(EphemeralContainer(name=one) for one in found))
    )


@pytest.mark.parametrize(
    ("lives", "starts"),
    [
        ([], ["e", "f"]),
        ([ran("e")], ["f"]),
        ([ran("e", "exited", 0), ran("f", "exited", 1)], []),
        ([ran("e", "created")], ["e", "f"]),
        ([ran("e", "unknown")], ["f"]),
    ],
    ids=["new", "running", "ended", "made and never started", "lost"],
)
def test_ephemeral_containers_start_once(lives, starts):
    for init, extra in (([], [ran("a")]), ([initc("i")], [ran("i")])):
        a_pod = with_ephemeral(pod("a", init=init), "e", "f")
        actions = act(a_pod, view(*lives, *extra))
        assert names(actions.ephemeral) == starts
        assert not actions.kill_pod


def test_ephemeral_containers_keep_no_pod_alive():
    over = with_ephemeral(pod("a", restart="Never"), "e")
    assert act(over, view(ran("a", "exited", 0), ran("e"))).kill_pod
    assert act(with_ephemeral(pod("a"), "e"), view(sandboxes=())).ephemeral == ()


def test_a_rule_resets_the_pod_before_anything_else():
    codes = ContainerRestartRuleOnExitCodes(operator="In", values=(88,))
    rules = (ContainerRestartRule(action="RestartAllContainers", exit_codes=codes),)
    trigger = Container(name="x", image=IMAGE, restart_policy="Never", restart_policy_rules=rules)
    a_pod = pod("a", restart="Never")
    a_pod = replace(a_pod, spec=replace(a_pod.spec, containers=(*a_pod.spec.containers, trigger)))
    actions = act(a_pod, view(ran("a", "exited", 1), ran("x", "exited", 88)))
    assert [one.name for one in actions.reset] == ["a", "x"]
    assert (actions.kill_pod, actions.start, actions.create_sandbox) == (False, (), False)
    left = act(a_pod, view(ran("x", "exited", 88)))
    assert [one.name for one in left.reset] == ["x"], "killed in the middle of it, we go on"
    assert names(act(a_pod, view()).start) == ["a", "x"]
    lost = [SandboxView(id="s0", state="notready", ips=("10.0.0.2",))]
    held_back = act(a_pod, view(ran("x", "exited", 88), sandboxes=lost))
    assert ([one.name for one in held_back.reset], held_back.create_sandbox) == (["x"], False)
    after = act(a_pod, view(sandboxes=lost))
    assert (after.create_sandbox, names(after.start)) == (True, ["a", "x"])
    going_on = compute_actions(a_pod, view(ran("a")), lambda *_: None, resetting=True)
    assert [one.name for one in going_on.reset] == ["a"], "its cause is lost"


@pytest.mark.parametrize("period_s", [1.0, 60.0, 3600.0])
def test_resyncs_of_many_pods_fall_on_few_times(period_s):
    now, step_s = 1234.567, period_s / RESYNC_STEPS
    waits_s = [resync_s(now + number / 100, period_s, number / 100) for number in range(100)]
    assert all(period_s < wait_s <= 1.5 * period_s for wait_s in waits_s)
    assert waits_s[0] <= period_s + step_s
    of_one_time = [resync_s(now, period_s, number / 100) for number in range(100)]
    assert of_one_time == sorted(of_one_time), "a larger chance, a longer wait"
    assert waits_s[-1] > 1.5 * period_s - step_s - period_s / 200
    dues = {round((now + number / 100 + wait_s) / step_s, 3) for number, wait_s in enumerate(waits_s)}
    assert all(due == int(due) for due in dues)
    assert len(dues) <= 2 + RESYNC_STEPS // 2 + 1 / step_s


def test_pods_that_are_looked_at_together_part_again():
    now = 75.003
    dues = Counter(round(now + resync_s(now, 60.0, number / 100)) for number in range(100))
    assert dues == {150: 50, 165: 50}


@pytest.mark.parametrize("period_s", [0.0, 1e-9, 0.1])
@pytest.mark.parametrize("now", [0.0, 1234.567, 1e8])
@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_resync_of_a_tiny_period_waits_all_the_same(period_s, now, chance):
    assert SHORTEST_STEP_S <= resync_s(now, period_s, chance) <= 1.5 * period_s + SHORTEST_STEP_S + 1e-6

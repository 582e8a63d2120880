"""Restarts after an exit: tables of container rules, container policies and pod policies."""

import pytest

from actors.pod_workers.model.restart_policy import (
    matching_rule,
    may_restart_all,
    restarts_after,
    should_restart,
    to_reset,
)
from actors.pod_workers.model.view import ContainerView, PodView, SandboxView
from proto.v1 import (
    Container,
    ContainerRestartRule,
    ContainerRestartRuleOnExitCodes,
    EphemeralContainer,
    ObjectMeta,
    Pod,
    PodSpec,
)


def rule(action, operator, *values):
    return ContainerRestartRule(
        action=action, exit_codes=ContainerRestartRuleOnExitCodes(operator=operator, values=values)
    )


def pod(*containers, policy="Always", init=(), ephemeral=()):
    spec = PodSpec(containers=containers, init_containers=init, ephemeral_containers=ephemeral, restart_policy=policy)
    return Pod(metadata=ObjectMeta(name="p", uid="u"), spec=spec)


@pytest.mark.parametrize(
    ("of_pod", "own", "after_0", "after_1"),
    [
        ("Always", None, True, True),
        ("OnFailure", None, False, True),
        ("Never", None, False, False),
        ("Never", "Always", True, True),
        ("Never", "OnFailure", False, True),
        ("Always", "OnFailure", False, True),
        ("Always", "Never", False, False),
    ],
)
def test_a_containers_own_policy_goes_before_its_pods(of_pod, own, after_0, after_1):
    one = Container(name="c", restart_policy=own)
    assert [restarts_after(one, pod(one, policy=of_pod), code) for code in (0, 1)] == [after_0, after_1]


@pytest.mark.parametrize(
    ("rules", "code", "restarts"),
    [
        ([rule("Restart", "In", 42)], 42, True),
        ([rule("Restart", "In", 42)], 1, False),
        ([rule("Restart", "NotIn", 0, 1)], 2, True),
        ([rule("Restart", "NotIn", 0, 1)], 1, False),
        ([rule("Restart", "In")], 0, False),
        ([rule("Restart", "NotIn")], 0, True),
        ([rule("RestartAllContainers", "In", 42)], 42, True),
        ([rule("Elsewhere", "In", 42), rule("Restart", "In", 42)], 42, False),
        ([rule("Restart", "Near", 42)], 42, False),
        ([ContainerRestartRule(action="Restart")], 42, False),
    ],
    ids=[
        "in", "not in", "not among", "among", "in nothing", "not in nothing", "all", "the first match decides",
        "unknown operator", "no exit codes",
    ],
)  # fmt: skip
def test_rules_go_before_the_containers_policy(rules, code, restarts):
    one = Container(name="c", restart_policy="Never", restart_policy_rules=tuple(rules))
    assert restarts_after(one, pod(one), code) is restarts


def test_restart_rules_need_the_containers_own_policy():
    one = Container(name="c", restart_policy_rules=(rule("Restart", "In", 42),))
    assert matching_rule(one, 42) is None
    assert not restarts_after(one, pod(one, policy="Never"), 42)


@pytest.mark.parametrize(
    ("state", "restarts"), [(None, True), ("created", True), ("unknown", True), ("running", False), ("exited", False)]
)
def test_what_has_not_ended_starts_unless_it_runs(state, restarts):
    one = Container(name="c")
    found = None if state is None else ContainerView(id="1", name="c", state=state, exit_code=0)
    assert should_restart(one, pod(one, policy="Never"), found) is restarts


ALL = rule("RestartAllContainers", "In", 88)
SANDBOX = SandboxView(id="s", state="ready", ips=("10.0.0.1",))


def life(name, state="running", code=0, sandbox="s", at=1):
    return ContainerView(id=f"{name}{at}", name=name, state=state, exit_code=code, sandbox_id=sandbox, created_at_ns=at)


TRIGGER = Container(name="x", restart_policy="Never", restart_policy_rules=(ALL,))
WHOLE = pod(
    TRIGGER, Container(name="c"), init=(Container(name="i"),), ephemeral=(EphemeralContainer(name="e"),), policy="Never"
)


def reset(*lives, of=WHOLE):
    view = PodView.of((SANDBOX,), lives)
    return [one.id for one in to_reset(of, view)]


def test_reset_removes_the_matching_container_last():
    lives = [life("i", "exited"), life("x", "exited", 88, at=3), life("x", "exited", 1, at=2), life("c"), life("e")]
    assert reset(*lives)[-1] == "x3"
    assert sorted(reset(*lives)) == ["c1", "i1", "x2", "x3"], "ephemeral ones stay"


@pytest.mark.parametrize(
    "lives",
    [
        [life("x"), life("c")],
        [life("x", "exited", 1), life("c")],
        [life("x", "exited", 88, sandbox="before"), life("c")],
        [life("x", "running", at=2), life("x", "exited", 88), life("c")],
        [life("c", "exited", 88)],
    ],
    ids=["nothing ended", "another code", "in an earlier sandbox", "an earlier life", "another container"],
)
def test_what_does_not_reset_a_pod(lives):
    assert reset(*lives) == []


def test_a_reset_that_has_begun_goes_on_without_its_cause():
    lives = [life("c", at=3), life("x", "exited", 88, sandbox="before"), life("i", "exited"), life("e")]
    view = PodView.of((SANDBOX,), lives)
    assert to_reset(WHOLE, view) == ()
    assert {one.id for one in to_reset(WHOLE, view, begun=True)} == {"c3", "x1", "i1"}
    assert to_reset(WHOLE, PodView.of((SANDBOX,), [life("e")]), begun=True) == ()


def test_a_pod_without_such_a_rule_is_never_reset():
    plain = pod(Container(name="x", restart_policy="Never", restart_policy_rules=(rule("Restart", "In", 88),)))
    assert not may_restart_all(plain)
    assert reset(life("x", "exited", 88), of=plain) == []

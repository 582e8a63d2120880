"""Statuses of pods whose containers all start anew (KEP-5532)."""

from actors.pod_workers.model import reasons
from actors.pod_workers.model.view import ContainerView
from proto.v1 import PodStatus
from tests.pod_workers.status.pods import ONCE, SANDBOX, condition, life, of, pod, view

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

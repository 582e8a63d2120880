"""The conditions of a pod."""

import pytest

from actors.pod_workers.model.view import SandboxView
from proto.v1 import Pod, PodCondition
from proto.v1.codec import from_dict, to_dict
from tests.pod_workers.status.pods import ONCE, SANDBOX, SIDE, condition, life, of, pod, view


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


def test_conditions_of_a_resize_are_told_until_the_pod_is_over():
    waits = (PodCondition(type="PodResizePending", status="True", reason="Deferred", observed_generation=2),)
    stale = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]}
    subject = from_dict(Pod, {**to_dict(pod()), "status": stale})
    assert condition(of(subject, view(life()), resize=waits), "PodResizePending")[1] == "Deferred"
    for over in (of(subject, view(life())), of(subject, view(life(state="exited")), resize=waits, terminal=True)):
        assert "PodResizePending" not in [one.type for one in over.conditions]

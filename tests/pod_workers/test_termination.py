"""Grace periods and the order of ends: tables."""

import pytest

from actors.pod_workers.decide.termination import (
    end_grace_s,
    find_container,
    grace_of_kill_s,
    grace_period_s,
    kill_wait_s,
    stop_timeout_s,
    waits_for,
)
from actors.pod_workers.model.orphans import orphan_pod
from actors.pod_workers.model.termination_request import TerminationRequest
from actors.pod_workers.model.view import ContainerView, PodView
from proto.v1 import Container, EphemeralContainer, ExecAction, ObjectMeta, Pod, PodSpec, Probe


def pod(spec_s=None, deletion_s=None, main=("c",), init=()):
    return Pod(
        metadata=ObjectMeta(name="p", deletion_grace_period_seconds=deletion_s),
        spec=PodSpec(
            termination_grace_period_seconds=spec_s,
            containers=tuple(Container(name=name) for name in main),
            init_containers=tuple(init),
            ephemeral_containers=(EphemeralContainer(name="e"),),
        ),
    )


@pytest.mark.parametrize(
    ("spec", "deletion", "override", "expected"),
    [(None, None, None, 30), (5, None, None, 5), (5, 2, None, 2), (5, 2, 0, 0), (0, None, None, 0)],
)
def test_grace_period(spec, deletion, override, expected):
    assert grace_period_s(pod(spec, deletion), override) == expected
    assert end_grace_s(pod(spec, deletion), override) == max(1, expected), "the end of a pod has a second at least"


@pytest.mark.parametrize(
    ("spec", "override", "reason", "expected"),
    [
        (30, None, "Evicted", 45),
        (30, 1, "Evicted", 10),
        (7, None, "Preempting", 10),
        (25, None, "Terminated", 37),
        (30, None, "DeadlineExceeded", None),
        (30, None, "", None),
    ],
)
def test_only_kills_by_the_node_have_a_limit(spec, override, reason, expected):
    assert kill_wait_s(pod(spec), TerminationRequest(grace_period_s=override, reason=reason)) == expected


PROBED = Container(
    name="c",
    liveness_probe=Probe(termination_grace_period_seconds=7),
    startup_probe=Probe(termination_grace_period_seconds=8),
    readiness_probe=Probe(termination_grace_period_seconds=9),
)


@pytest.mark.parametrize(
    ("reason", "deletion", "expected"),
    [
        ("LivenessProbe", None, 7),
        ("StartupProbe", None, 8),
        ("Changed", None, 60),
        ("Unknown", None, 60),
        ("FailedPostStartHook", None, 60),
        ("LivenessProbe", 3, 3),
    ],
)
def test_grace_of_one_containers_end(reason, deletion, expected):
    assert grace_of_kill_s(pod(60, deletion), PROBED, reason) == expected


def test_a_probe_without_a_grace_period_leaves_the_pods():
    plain = Container(name="c", liveness_probe=Probe())
    assert grace_of_kill_s(pod(60), plain, "LivenessProbe") == 60
    assert grace_of_kill_s(pod(60), None, "LivenessProbe") == 60


@pytest.mark.parametrize(
    ("left_s", "timeout_s"), [(30.0, 30), (29.2, 30), (2.5, 3), (2.0, 2), (1.0, 2), (0.0, 2), (-600.0, 2)]
)
def test_every_stop_gets_two_seconds_at_least(left_s, timeout_s):
    assert stop_timeout_s(left_s) == timeout_s


def sidecars(*names):
    return [Container(name=name, restart_policy="Always" if name.startswith("s") else None) for name in names]


@pytest.mark.parametrize(
    ("init", "running", "expected"),
    [
        ([], "cde", {}),
        (["i"], "icd", {}),
        (["s1"], ["c", "d", "s1"], {"s1": {"c", "d"}}),
        (["s1"], ["s1"], {"s1": set()}),
        (["s1"], ["c"], {}),
        (["s1", "s2", "s3"], ["c", "s1", "s2", "s3"], {"s3": {"c"}, "s2": {"c", "s3"}, "s1": {"c", "s2"}}),
        (["s1", "s2", "s3"], ["c", "s1", "s3"], {"s3": {"c"}, "s1": {"c", "s3"}}),
        (["s1", "i", "s2"], ["s1", "i"], {"s1": set()}),
        (["s1"], ["c", "e", "s1"], {"s1": {"c"}}),
    ],
    ids=[
        "no sidecar", "a regular init container", "after the main ones", "alone", "not running", "in reverse order",
        "one of three has ended", "while the pod initializes", "not for an ephemeral one",
    ],
)  # fmt: skip
def test_sidecar_waits_for_main_containers_and_later_sidecar(init, running, expected):
    order = waits_for(pod(main=("c", "d"), init=sidecars(*init)), set(running))
    assert {name: set(others) for name, others in order.items()} == expected


def test_containers_of_every_kind_are_found():
    one = pod(init=sidecars("s"))
    for name in ("c", "s", "e"):
        found = find_container(one, name)
        assert found is not None
        assert found.name == name
    assert find_container(one, "x") is None


def test_an_orphans_hooks_come_from_its_annotations():
    lives = (
        ContainerView(
            id="1",
            name="c",
            grace_period_s=7,
            pre_stop_handler='{"httpGet":{"path":"/bye","port":"web"}}',
            ports='[{"name":"web","containerPort":80,"protocol":"TCP"}]',
        ),
        ContainerView(id="2", name="d", pre_stop_handler='{"exec":{"command":["bye"]}}'),
        ContainerView(id="3", name="bad", pre_stop_handler="{"),
        ContainerView(id="4", name="worse", pre_stop_handler='{"exec":7}', ports="no"),
    )
    orphan = orphan_pod("u", PodView(containers=lives))
    assert orphan.spec.termination_grace_period_seconds == 7
    found = {one.name: one for one in orphan.spec.containers}
    http = found["c"].lifecycle.pre_stop.http_get
    assert (http.path, http.port, found["c"].ports[0].container_port) == ("/bye", "web", 80)
    assert found["d"].lifecycle.pre_stop.exec == ExecAction(command=("bye",))
    assert found["bad"].lifecycle is None
    assert (found["worse"].lifecycle, found["worse"].ports) == (None, ())

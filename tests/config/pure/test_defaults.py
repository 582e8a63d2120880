"""Defaults are the API server's."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.config.defaulting.defaults import default_pod
from actors.config.defaulting.images import image_tag, pull_policy
from proto import v1

STORED = json.loads((Path(__file__).parents[1] / "pod-spec-as-stored-probed.json").read_text())


def defaulted(**spec: Any) -> dict[str, Any]:
    return v1.to_dict(default_pod(v1.from_dict(v1.Pod, {"spec": spec})).spec)  # type: ignore[no-any-return]


def container(**fields: Any) -> dict[str, Any]:
    return defaulted(containers=[{"name": "c", "image": "x:1", **fields}])["containers"][0]


def volume(**fields: Any) -> dict[str, Any]:
    return defaulted(volumes=[{"name": "v", **fields}])["volumes"][0]


def test_stored_spec_needs_no_defaults() -> None:
    pod = v1.from_dict(v1.Pod, {"spec": STORED})
    assert default_pod(pod) == pod


def test_fields_that_the_api_server_defaults_are_set() -> None:
    # The stored spec again, without each field that the API server's defaulting (not its admission) adds.
    plain = json.loads(json.dumps(STORED))
    for name in ("dnsPolicy", "restartPolicy", "schedulerName", "securityContext", "enableServiceLinks"):
        del plain[name]
    (one,) = plain["containers"]
    for name in ("imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy"):
        del one[name]
    one["imagePullPolicy"] = "IfNotPresent"  # was asked for; the image's tag is latest
    del one["ports"][0]["protocol"]
    del one["env"][1]["valueFrom"]["fieldRef"]["apiVersion"]
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        for name in ("failureThreshold", "successThreshold", "timeoutSeconds"):
            del one[probe][name]
    del one["readinessProbe"]["httpGet"]["scheme"]
    for each in plain["volumes"]:
        for source in ("secret", "projected"):
            each.get(source, {}).pop("defaultMode", None)
    assert defaulted(**plain) == STORED


@pytest.mark.parametrize(
    ("image", "tag", "policy"),
    [
        ("busybox", "latest", "Always"),
        ("busybox:latest", "latest", "Always"),
        ("busybox:1.36", "1.36", "IfNotPresent"),
        ("registry:5000/busybox", "latest", "Always"),
        ("registry:5000/a/b:1", "1", "IfNotPresent"),
        ("busybox@sha256:00", "", "IfNotPresent"),
        ("busybox:latest@sha256:00", "latest", "Always"),
    ],
)
def test_pull_policy_follows_the_tag(image: str, tag: str, policy: str) -> None:
    assert (image_tag(image), pull_policy(image)) == (tag, policy)


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"hostPath": {"path": "/x"}}, {"hostPath": {"path": "/x", "type": ""}}),
        ({}, {"emptyDir": {}}),
        ({"configMap": {"name": "m"}}, {"configMap": {"name": "m", "defaultMode": 420}}),
        ({"downwardAPI": {}}, {"downwardAPI": {"defaultMode": 420}}),
        ({"image": {"reference": "a"}}, {"image": {"reference": "a", "pullPolicy": "Always"}}),
        ({"secret": {"secretName": "s", "defaultMode": 0}}, {"secret": {"secretName": "s", "defaultMode": 0}}),
    ],
)
def test_volumes(given_: dict[str, Any], expected: dict[str, Any]) -> None:
    assert volume(**given_) == {"name": "v", **expected}


def test_requests_come_from_limits() -> None:
    resources = container(resources={"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}})["resources"]
    assert resources["requests"] == {"cpu": "100m", "memory": "1Gi"}


def test_host_network_makes_ports_host_ports() -> None:
    spec = defaulted(hostNetwork=True, containers=[{"name": "c", "ports": [{"containerPort": 80}]}])
    assert spec["containers"][0]["ports"] == [{"hostPort": 80, "containerPort": 80, "protocol": "TCP"}]


def test_pod_level_requests_are_the_containers_sum() -> None:
    containers = [{"name": n, "resources": {"requests": {"cpu": "100m"}}} for n in "ab"]
    resources = defaulted(resources={"limits": {"cpu": "1", "memory": "1Gi"}}, containers=containers)["resources"]
    assert resources["requests"] == {"cpu": "200m", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        ({"requests": {"cpu": "1"}}, {"cpu": "2", "memory": "1Gi"}, {"requests": {"cpu": "1"}}),
        (
            {"requests": {"cpu": "1"}},
            {"cpu": "2", "hugepages-2Mi": "4Mi"},
            {"requests": {"cpu": "1", "hugepages-2Mi": "4Mi"}, "limits": {"hugepages-2Mi": "4Mi"}},
        ),
        (
            {"requests": {"cpu": "1", "hugepages-2Mi": "8Mi"}},
            {"cpu": "2", "hugepages-2Mi": "4Mi"},
            {"requests": {"cpu": "1", "hugepages-2Mi": "8Mi"}},
        ),
    ],
)
def test_pod_level_limits_are_of_huge_pages_only(
    own: dict[str, Any], limits: dict[str, Any], expected: dict[str, Any]
) -> None:
    containers = [{"name": "c", "resources": {"limits": limits}}]
    assert defaulted(resources=own, containers=containers)["resources"] == expected


def test_grace_period_of_zero_is_kept() -> None:
    assert defaulted(terminationGracePeriodSeconds=0)["terminationGracePeriodSeconds"] == 0
    assert defaulted()["terminationGracePeriodSeconds"] == 30


def test_negative_grace_period_is_one_second() -> None:
    assert defaulted(terminationGracePeriodSeconds=-1)["terminationGracePeriodSeconds"] == 1
    probe = {"grpc": {"port": 1}, "terminationGracePeriodSeconds": -1}
    assert container(livenessProbe=probe)["livenessProbe"]["terminationGracePeriodSeconds"] == -1


@given(st.booleans(), st.sampled_from(["", "a:1", "a"]), st.sampled_from([{}, {"limits": {"cpu": "1"}}]))
def test_defaulting_twice_changes_nothing(host: bool, image: str, resources: dict[str, Any]) -> None:
    spec = {
        "hostNetwork": host,
        "resources": resources,
        "volumes": [{"name": "a"}, {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
        "containers": [{"name": "c", "image": image, "livenessProbe": {"grpc": {"port": 1}}, "resources": resources}],
    }
    once = default_pod(v1.from_dict(v1.Pod, {"spec": spec}))
    assert default_pod(once) == once

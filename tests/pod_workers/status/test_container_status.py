"""The statuses of containers: states, last states, probes, resources, health."""

import pytest

from actors.pod_workers.model import reasons
from actors.pod_workers.model.allocation import resources_of
from actors.pod_workers.model.view import ContainerView, ResourcesView, UserView
from actors.pod_workers.shared.managed_resources import ResourceHealths
from proto.cri import api_pb2 as pb
from proto.pods.pod_workers import PodHealth, SetResourceHealth
from proto.v1.codec import to_dict
from proto.v1.status import ResourceHealth, ResourceStatus
from tests.pod_workers.status.pods import ONCE, PROBE, SIDE, STATIC, condition, life, of, pod, view


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


ID = "sha256:" + "7" * 64


@pytest.mark.parametrize(
    ("mounted", "shown"),
    [
        ({"image": ID}, ID),
        ({"image": "busybox", "image_ref": ID}, ID),
        ({"image": "r/" + "x" * 254}, "r/" + "x" * 254),
        ({"image": "r/" + "x" * 255}, None),
        ({}, None),
    ],
)
def test_image_of_an_image_volume_is_shown_with_the_gate(mounted, shown):
    mounts = [{"name": "i", "mountPath": "data"}, {"name": "e", "mountPath": "/empty"}]
    subject = pod(containers=[{"name": "c", "image": "i", "volumeMounts": mounts}])
    answer = pb.ContainerStatusResponse()
    answer.status.mounts.add(container_path="/data", image=pb.ImageSpec(**mounted))
    answer.status.mounts.add(container_path="/empty", host_path="/host")
    seen = view(life(image_mounts=ContainerView.from_status(answer).image_mounts))

    with_gate = of(subject, seen, image_digests=True)
    data, empty = with_gate.container_statuses[0].volume_mounts
    assert to_dict(data).get("volumeStatus") == (shown and {"image": {"imageRef": shown}})
    assert empty.volume_status is None
    without = of(subject, seen).container_statuses[0].volume_mounts
    assert [one.volume_status for one in without] == [None, None]
    lost = of(subject, view(), old=with_gate, image_digests=True).container_statuses[0]
    assert [one.volume_status for one in lost.volume_mounts] == [None, None], "the next instance may have another"


def test_the_user_is_shown_where_the_runtime_tells():
    (one,) = of(pod(), view(life(user=UserView(5, 6, (7,))))).container_statuses
    assert to_dict(one.user) == {"linux": {"uid": 5, "gid": 6, "supplementalGroups": [7]}}


@pytest.mark.parametrize(
    ("wanted", "told", "shown"),
    [
        ("SIGUSR1", "SIGUSR1", "SIGUSR1"),
        ("SIGUSR1", "", None),
        ("SIGRTMIN+3", "SIGRTMIN+3", "SIGRTMIN+3"),
        (None, "SIGTERM", None),
    ],
)
def test_stop_signal_is_the_runtimes_if_the_spec_has_one(wanted, told, shown):
    lifecycle = {"stopSignal": wanted} if wanted else {}
    subject = pod(os={"name": "linux"}, containers=[{"name": "c", "image": "i", "lifecycle": lifecycle}])
    (one,) = of(subject, view(life(stop_signal=told))).container_statuses
    assert one.stop_signal == shown


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

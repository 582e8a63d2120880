"""Views made from CRI messages, and their queries."""

import json
from pathlib import Path

import pytest
from google.protobuf import json_format

from actors.pod_workers.model.view import ContainerView, PodView, SandboxView, sorted_ips
from proto.cri import api_pb2 as pb

GOLDEN = Path(__file__).parents[1] / "golden"
LABELS = {"io.kubernetes.pod.uid": "u", "io.kubernetes.pod.name": "p", "io.kubernetes.pod.namespace": "ns"}


def status_of_probed(**info) -> pb.ContainerStatusResponse:
    """containerd's ContainerStatus of the golden container."""
    said = json.loads((GOLDEN / "cri-container.json").read_text())["status"]
    said["createdAt"], said["startedAt"], said["finishedAt"] = "5", "6", "-6795364578871345152"  # Go's zero time
    answer = pb.ContainerStatusResponse(info=info)
    json_format.ParseDict(said, answer.status, ignore_unknown_fields=True)
    return answer


@pytest.mark.parametrize(
    ("annotated", "attempt", "count"),
    [("3", 3, 3), ("", 2, 2), ("4", 0, 4), ("9" * 5000, 1, 1), ("9999999999", 1, 1), ("-1", 1, 1), ("two", 2, 2)],
)
def test_restart_count_is_that_of_annotation_or_name(annotated, attempt, count):
    answer = status_of_probed()
    answer.status.metadata.attempt = attempt
    answer.status.annotations["io.kubernetes.container.restartCount"] = annotated
    assert ContainerView.from_status(answer).restart_count == count


def test_a_container_as_containerd_answers():
    view = ContainerView.from_status(status_of_probed(info='{"sandboxID":"s","pid":42,"runtimeSpec":{"a":[1]}}'))
    assert (view.name, view.state, view.pid, view.sandbox_id) == ("web", "running", 42, "s")
    assert (view.created_at_ns, view.started_at_ns, view.finished_at_ns) == (5, 6, 0)
    assert (view.hash, view.restart_count, view.grace_period_s) == ("90b33c84", 0, 2)
    assert (view.pod_name, view.pod_namespace) == ("probed", "golden")
    assert view.image == "docker.io/library/busybox:latest"
    assert view.image_ref.startswith("sha256:10d4c5")
    assert view.termination_message_policy == "File"
    assert view.termination_message_host_path.endswith("/containers/web/8c32ca09")
    assert view.log_path.endswith("/web/0.log")
    assert view.user is None
    assert view.stop_signal == ""


@pytest.mark.parametrize(
    ("annotated", "mounted", "found"),
    [
        ("msg/log", "/msg/log", True),
        ("//dev/log", "/dev/log", True),
        ("msg/log", "msg/log", True),  # of an older container
        ("/dev/log", "/dev/other", False),
        ("", "/", False),
    ],
)
def test_termination_message_is_found_at_its_path(annotated, mounted, found):
    answer = status_of_probed()
    answer.status.annotations["io.kubernetes.container.terminationMessagePath"] = annotated
    del answer.status.mounts[:]
    answer.status.mounts.add(container_path=mounted, host_path="/r/words")
    view = ContainerView.from_status(answer)
    assert view.termination_message_path == annotated
    assert view.termination_message_host_path == ("/r/words" if found else "")


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (pb.SIGNAL_SIGTERM, "SIGTERM"),
        (pb.SIGNAL_SIGRTMIN, "SIGRTMIN"),
        (pb.SIGNAL_SIGRTMINPLUS3, "SIGRTMIN+3"),
        (pb.SIGNAL_SIGRTMAXMINUS14, "SIGRTMAX-14"),
        (0, ""),
        (66, ""),
        (2**31 - 1, ""),
        (-1, ""),
    ],
)
def test_stop_signal_has_the_apis_name_or_none(number: int, name: str) -> None:
    answer = status_of_probed()
    answer.status.stop_signal = number
    assert ContainerView.from_status(answer).stop_signal == name


def test_unknown_verbose_info_only_lacks_the_pid():
    for info in ({}, {"info": "not json"}, {"info": '{"pid":"x"}'}, {"pid": "1"}):
        assert ContainerView.from_status(status_of_probed(**info)).pid == 0


def test_a_sandbox_with_more_than_one_address():
    answer = pb.PodSandboxStatusResponse(info={"info": '{"pid":7}'})
    answer.status.id = "s"
    answer.status.metadata.attempt = 3
    answer.status.network.ip = "10.0.0.1"
    answer.status.network.additional_ips.add(ip="fd00::1")
    view = SandboxView.from_status(answer)
    assert (view.ips, view.pid, view.attempt, view.state) == (("10.0.0.1", "fd00::1"), 7, 3, "ready")
    answer.status.linux.namespaces.options.network = pb.NODE
    assert SandboxView.from_status(answer).ips == ()


V4, V6 = "10.0.0.1", "fd01::1234"


# TestSortPodIPs of pkg/kubelet/kubelet_pods_test.go, and TestMakeEnvironmentVariables
@pytest.mark.parametrize(
    ("node_ip", "ips", "wanted"),
    [
        ("", (V4,), (V4,)),
        ("", (V6,), (V6,)),
        ("", (V4, V6), (V4, V6)),
        ("", (V6, V4), (V4, V6)),
        ("192.168.1.1", (V6, V4), (V4, V6)),
        ("fd01::1", (V4, V6), (V6, V4)),
        ("::", (V4, V6), (V6, V4)),
        ("0.0.0.0", (V6, V4), (V4, V6)),
        ("fd01::1, 192.168.1.1", (V4, V6), (V6, V4)),
        ("", (V4, "10.0.0.2", V6, "fd01::2"), (V4, V6)),
        ("", ("010.000.000.001", "fd01:0:0:0:0:0:0:1234"), (V4, V6)),
        ("", ("192.168.1.1.", "1.2.3.4", "fd00::6"), ("1.2.3.4", "fd00::6")),
        ("", ("::ffff:10.0.0.1", "fe80::1%eth0", "0x0a.0.0.1", "1..2.3", "\n", "x" * 99, "0" * 99), (V4,)),
    ],
)
def test_a_pods_addresses_are_parsed_and_sorted_by_node_ip(node_ip, ips, wanted):
    assert sorted_ips(ips, node_ip) == wanted


def listed(
    identity: str, created: int, name: str = "c", sandbox: str = "s", labels: dict | None = None
) -> pb.Container:
    own = {**(LABELS if labels is None else labels), "io.kubernetes.container.name": name}
    return pb.Container(id=identity, pod_sandbox_id=sandbox, created_at=created, labels=own, state=pb.CONTAINER_RUNNING)


def test_lists_are_split_by_pod_and_what_is_not_ours_is_left_out():
    sandboxes = [pb.PodSandbox(id="s", labels=LABELS), pb.PodSandbox(id="x", labels={"app": "by hand"})]
    views = PodView.by_pod(sandboxes, [listed("1", 1), listed("2", 2), listed("y", 3, labels={})])
    assert set(views) == {"u"}
    assert [container.id for container in views["u"].containers] == ["2", "1"]
    assert (views["u"].pod_name, views["u"].pod_namespace) == ("p", "ns")
    assert not views["u"].containers[0].complete


def test_lives_are_newest_first():
    view = PodView.listed([], [listed("1", 1), listed("3", 3), listed("2", 2), listed("o", 9, "other", "t")])
    assert [found.id if found else None for found in (view.container("c"), view.previous("c"))] == ["3", "2"]
    assert view.previous("other") is None
    assert view.in_sandbox("c", "t") is None
    assert view.in_sandbox("other", "t").id == "o"


def test_attempt_tells_the_newest_after_the_clock_was_set_back():
    sandboxes = [SandboxView(id=f"s{one}", attempt=one, created_at_ns=9 - one) for one in range(3)]
    containers = [ContainerView(id=f"c{one}", name="c", attempt=one, created_at_ns=9 - one) for one in range(3)]
    same = ContainerView(id="same", name="c", attempt=2, created_at_ns=8)
    view = PodView.of(sandboxes, containers)
    for added in (view, PodView().with_sandbox(sandboxes[2]).with_sandbox(sandboxes[0]).with_sandbox(sandboxes[1])):
        assert [one.id for one in added.sandboxes] == ["s2", "s1", "s0"]
    assert [one.id for one in view.with_container(same).containers] == ["same", "c2", "c1", "c0"]


def test_view_change_replaces_same_id_and_keeps_its_sandbox():
    view = PodView.listed([pb.PodSandbox(id="s", labels=LABELS)], [listed("1", 1)])
    changed = view.with_container(ContainerView(id="1", name="c", state="exited", created_at_ns=1))
    assert (changed.container("c").state, changed.container("c").sandbox_id) == ("exited", "s")
    assert [changed.is_alive(identity) for identity in ("1", "s", "none")] == [False, True, False]
    assert view.is_alive("1")
    assert changed.without("1").ids() == ("s",)
    stopped = changed.with_stopped_sandbox("s")
    assert (stopped.ready_sandbox, stopped.is_alive("s")) == (None, False)
    assert stopped.with_sandbox(SandboxView(id="t", created_at_ns=1)).sandboxes[0].id == "t"


def test_status_without_verbose_info_keeps_pid_while_it_runs():
    view = PodView.of([], [ContainerView(id="1", name="c", state="running", pid=7, sandbox_id="s")])
    again = view.with_container(ContainerView(id="1", name="c", state="running"))
    assert (again.container("c").pid, again.container("c").sandbox_id) == (7, "s")
    assert again.with_container(ContainerView(id="1", name="c", state="exited")).container("c").pid == 0


@pytest.mark.parametrize(
    ("state", "exit_code", "complete", "stays"),
    [("exited", 1, True, True), ("exited", 137, True, False), ("exited", 1, False, False), ("running", 0, True, False)],
)
def test_list_replaces_no_final_record(state, exit_code, complete, stays):
    known = ContainerView(id="1", name="c", state=state, exit_code=exit_code, complete=complete, reason="read")
    seen = ContainerView(id="1", name="c", state="exited")
    view = PodView.of([SandboxView(id="s", state="notready")], [seen]).with_final_of(
        PodView.of([SandboxView(id="s", state="notready", ips=("10.0.0.1",), complete=True)], [known])
    )
    assert view.container("c") is (known if stays else seen)
    assert view.sandbox("s").ips == ("10.0.0.1",)
    assert view.changeable_ids == (set() if stays else {"1"})


@pytest.mark.parametrize("uid", ["", "../..", "a/b", ".."])
def test_sandbox_with_unsafe_uid_is_ignored(uid):
    labels = {"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": "p", "io.kubernetes.pod.namespace": "ns"}
    assert PodView.by_pod([pb.PodSandbox(id="s", labels=labels)], []) == {}

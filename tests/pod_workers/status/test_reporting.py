"""Facts that a report keeps from published statuses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from actors.pod_workers.model.view import ContainerView, PodView, SandboxView
from actors.pod_workers.shared.pod_scope import PodScope
from actors.pod_workers.shared.pod_tracer import PodTracer
from actors.pod_workers.status.reporting import StatusReporter
from proto.agent.settings import Settings
from proto.v1 import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
)


def scope(pod: Pod, context: Any = None) -> PodScope:
    return PodScope(context, pod, pod, None, None, PodTracer(pod))  # type: ignore[arg-type]


POD = Pod(metadata=ObjectMeta(name="p", namespace="default", uid="u"), spec=PodSpec(containers=(Container(name="c"),)))
NEW, OLD = "containerd://new", "containerd://old"
RUNNING = ContainerState(running=ContainerStateRunning())
WAITING = ContainerState(waiting=ContainerStateWaiting(reason="CrashLoopBackOff"))
NOTHING = ContainerState()


def ended(identity: str) -> ContainerState:
    return ContainerState(terminated=ContainerStateTerminated(exit_code=1, container_id=identity))


@pytest.mark.parametrize(
    ("state", "last", "count", "expected"),
    [
        pytest.param(RUNNING, NOTHING, 0, 0, id="running"),
        pytest.param(RUNNING, ended(OLD), 3, 3, id="running again"),
        pytest.param(ended(NEW), NOTHING, 2, 2, id="ended"),
        pytest.param(WAITING, NOTHING, 0, None, id="made and never started: its number is free"),
        pytest.param(WAITING, ended(NEW), 4, 4, id="ended, held back"),
        pytest.param(WAITING, ended(OLD), 4, 3, id="ended, the next one made and not started"),
    ],
)
def test_a_container_that_never_started_takes_no_number(state, last, count, expected):
    status = ContainerStatus(name="c", state=state, last_state=last, restart_count=count, container_id=NEW)
    report = StatusReporter(scope(POD), None, PodStatus(container_statuses=(status,)), ())
    assert report.published_restarts("c") == expected


@pytest.mark.parametrize(
    ("old", "sandbox_s", "expected"),
    [
        pytest.param(PodStatus(start_time="2026-01-02T03:04:05Z"), 0, 1767323045, id="published, no sandbox yet"),
        pytest.param(
            PodStatus(start_time="2026-01-02T03:04:05Z"), 1767400000, 1767323045, id="its first sandbox is gone"
        ),
        pytest.param(None, 1767400000, 1767400000, id="never published"),
        pytest.param(PodStatus(start_time="once"), 1767400000, 1767400000, id="not a time"),
    ],
)
def test_a_pod_began_when_that_was_published_first(old, sandbox_s, expected):
    sandboxes = (SandboxView(id="s", state="ready", attempt=0, created_at_ns=sandbox_s * 10**9),) if sandbox_s else ()
    pod = msgspec.structs.replace(POD, spec=msgspec.structs.replace(POD.spec, active_deadline_seconds=60))
    report = StatusReporter(scope(pod), PodView(sandboxes), old, ())
    assert report.start_time == expected
    assert report.deadline_in_s(expected + 50) == 10


@pytest.mark.parametrize(("node_ip", "ips"), [("", ["10.0.0.1", "fd00::1"]), ("fd00::9", ["fd00::1", "10.0.0.1"])])
def test_published_pod_ips_begin_with_node_ips_family(node_ip, ips):
    published = SimpleNamespace(status=lambda *_, **__: None)
    context = SimpleNamespace(
        settings=Settings(node_ip=node_ip), host_ips=("192.0.2.2", "2001:db8::2"), host_ips_told=True, actuated={},
        runtime_name="containerd", health=SimpleNamespace(of_pod=lambda _: None), published=published,
    )  # fmt: skip
    report = StatusReporter(scope(POD, context), None, None, ())
    report.publish(PodView((SandboxView(id="s", ips=("fd00::1", "10.0.0.1")),)))
    assert report.last is not None
    assert [one.ip for one in report.last.pod_ips] == ips


def test_ips_of_a_host_network_pod_change_with_its_containers_and_after_a_restart() -> None:
    """As the kubelet's, whose cached status keeps them until a relist or its restart makes a new one."""
    published = SimpleNamespace(status=lambda *_, **__: None)
    context = SimpleNamespace(
        settings=Settings(), host_ips=("192.0.2.2",), host_ips_told=True, actuated={},
        runtime_name="containerd", health=SimpleNamespace(of_pod=lambda _: None), published=published,
    )  # fmt: skip
    pod = msgspec.structs.replace(POD, spec=msgspec.structs.replace(POD.spec, host_network=True))

    def restarted(old: PodStatus | None) -> StatusReporter:
        return StatusReporter(scope(pod, context), None, old, ())

    def ips(report: StatusReporter, state: Any, ips: tuple[str, ...]) -> list[str]:
        context.host_ips = ips
        container = ContainerView("i", "c", state=state)
        report.publish(PodView.of([SandboxView(id="s")], [container]))
        assert report.last is not None
        return [one.ip for one in report.last.pod_ips]

    report = restarted(None)
    assert ips(report, "running", ("192.0.2.2",)) == ["192.0.2.2"]
    assert ips(report, "running", ("192.0.2.3",)) == ["192.0.2.2"], "the Node has changed, the pod has not"
    assert ips(report, "exited", ()) == ["192.0.2.2"], "the Node has none"
    assert ips(report, "exited", ("192.0.2.4",)) == ["192.0.2.4"], "it has one again, and the container has ended"
    assert ips(report, "exited", ("192.0.2.5",)) == ["192.0.2.4"]
    context.host_ips_told = False
    report = restarted(report.last)
    assert ips(report, "exited", ("192.0.2.5",)) == ["192.0.2.4"], "node has not told yet"
    context.host_ips_told = True
    assert ips(report, "exited", ("192.0.2.6",)) == ["192.0.2.6"]


def test_last_lines_of_a_log_count_that_come_after_the_exit(tmp_path: Path) -> None:
    published = SimpleNamespace(status=lambda *_, **__: None)
    context = SimpleNamespace(
        settings=Settings(), host_ips=("192.0.2.2",), host_ips_told=True, actuated={},
        runtime_name="containerd", health=SimpleNamespace(of_pod=lambda _: None), published=published,
    )  # fmt: skip
    log = tmp_path / "0.log"
    report = StatusReporter(scope(POD, context), None, None, ())

    def message() -> str | None:
        one = ContainerView(
            "i", "c", state="exited", exit_code=1, log_path=str(log),
            termination_message_policy="FallbackToLogsOnError",
        )  # fmt: skip
        report.publish(PodView.of([SandboxView(id="s")], [one]))
        assert report.last is not None
        state = report.last.container_statuses[0].state
        return state.terminated.message if state.terminated else state.waiting.message

    assert not message()
    log.write_text("2026-01-01T00:00:00.000000000Z stdout F why\n")
    assert message() == "why\n"
    log.unlink()
    assert message() == "why\n", "the log was removed, and was known"

"""critest's expectations of pods and containers that no other test covers: life cycle, lists and statistics."""

from __future__ import annotations

import contextlib
import socket
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from actors.runtime.stats import metrics
from proto.cri import api_pb2 as pb
from supervisor.cli.streams.transport.remote import exit_code_of
from tests.runtime.critest.critest import CALL_S, Critest, Pod, pod_config, refused
from tests.runtime.inside import PROCESSES
from tests.runtime.instance import EmbeddedInstance, wait_for
from tests.runtime.streaming.clients import SpdySession
from tests.runtime.streaming.test_port_forward import Forward
from tests.runtime.streaming.test_streaming import V4

NOBODY = str(uuid.uuid4())


@pytest.fixture(scope="module")
def critest(embedded: EmbeddedInstance) -> Iterator[Critest]:
    client = Critest(embedded.endpoint)
    yield client
    client.close()
    embedded.remove_pods()


@pytest.fixture(scope="module")
def pod(critest: Critest, tmp_path_factory: pytest.TempPathFactory) -> Pod:
    """A sandbox for most tests, with a log directory; its containers share a pid namespace, CRI's default."""
    return critest.pod(log_directory=str(tmp_path_factory.mktemp("logs")), hostname="test-hostname")


@pytest.mark.needs("mounts")
def test_exec_after_its_time_limit_leaves_no_process(critest: Critest, pod: Pod) -> None:
    container = critest.run(pod)
    request = pb.ExecSyncRequest(container_id=container, cmd=["sleep", "4321"], timeout=1)
    assert refused(critest.runtime.ExecSync, request) == "DEADLINE_EXCEEDED"
    assert "sleep" not in critest.exec(container, *PROCESSES).out


def test_a_container_is_removed_in_any_state_and_again(critest: Critest, pod: Pod) -> None:
    runtime = critest.runtime
    created, running, stopped = critest.create(pod), critest.run(pod), critest.run(pod)
    runtime.StopContainer(pb.StopContainerRequest(container_id=stopped, timeout=(1 << 63) - 1), timeout=CALL_S)
    assert critest.status(stopped).state == pb.CONTAINER_EXITED
    for container in (created, running, stopped, created, running, stopped, NOBODY):
        runtime.RemoveContainer(pb.RemoveContainerRequest(container_id=container), timeout=CALL_S)
        runtime.StopContainer(pb.StopContainerRequest(container_id=container), timeout=CALL_S)
        listed = runtime.ListContainers(pb.ListContainersRequest(filter=pb.ContainerFilter(id=container)))
        assert list(listed.containers) == []


def test_a_sandbox_is_stopped_and_removed_again(critest: Critest) -> None:
    runtime, pod = critest.runtime, critest.pod()
    for id_ in (pod.id, pod.id, NOBODY):
        runtime.StopPodSandbox(pb.StopPodSandboxRequest(pod_sandbox_id=id_), timeout=CALL_S)
    status = runtime.PodSandboxStatus(pb.PodSandboxStatusRequest(pod_sandbox_id=pod.id)).status
    assert status.state == pb.SANDBOX_NOTREADY
    for id_ in (pod.id, pod.id, NOBODY):
        runtime.RemovePodSandbox(pb.RemovePodSandboxRequest(pod_sandbox_id=id_), timeout=CALL_S)
    assert refused(runtime.PodSandboxStatus, pb.PodSandboxStatusRequest(pod_sandbox_id=pod.id)) == "NOT_FOUND"


def test_one_sandbox_for_each_attempt_of_a_pod(critest: Critest) -> None:
    config = pod_config(labels={"once": NOBODY})

    def ask(_: int) -> str:
        with contextlib.suppress(grpc.RpcError):
            request = pb.RunPodSandboxRequest(config=config)
            return str(critest.runtime.RunPodSandbox(request, timeout=CALL_S).pod_sandbox_id)
        return ""

    def listed() -> list[str]:
        wanted = pb.ListPodSandboxRequest(filter=pb.PodSandboxFilter(label_selector=config.labels))
        return [one.id for one in critest.runtime.ListPodSandbox(wanted).items]

    with ThreadPoolExecutor(5) as pool:
        (id_,) = [one for one in pool.map(ask, range(5)) if one]
    assert listed() == [id_]
    critest.runtime.StopPodSandbox(pb.StopPodSandboxRequest(pod_sandbox_id=id_), timeout=CALL_S)
    assert refused(critest.runtime.RunPodSandbox, pb.RunPodSandboxRequest(config=config)) == "ALREADY_EXISTS"
    config.metadata.attempt += 1
    next_id = ask(0)
    assert sorted(listed()) == sorted([id_, next_id])
    config.metadata.attempt -= 1
    critest.remove(Pod(id_, config))
    again = ask(0)
    assert sorted(listed()) == sorted([again, next_id])
    for one in (again, next_id):
        critest.remove(Pod(one, config))


def test_log_path_and_reopening_of_a_moved_log(critest: Critest, pod: Pod) -> None:
    container = critest.run(pod, ["sh", "-c", "while true; do echo hello World; sleep 0.05; done"], log_path="loop.log")
    log = Path(critest.status(container).log_path)
    assert log == Path(pod.config.log_directory, "loop.log")
    wait_for(lambda: "stdout F hello World\n" in log.read_text())
    moved = log.rename(log.with_suffix(".new"))
    critest.runtime.ReopenContainerLog(pb.ReopenContainerLogRequest(container_id=container), timeout=CALL_S)
    was = moved.read_text()
    assert log.exists()
    wait_for(lambda: "stdout F hello World\n" in log.read_text())
    assert moved.read_text() == was
    critest.runtime.RemoveContainer(pb.RemoveContainerRequest(container_id=container), timeout=CALL_S)


def test_attached_shell_ends_with_its_input(critest: Critest, pod: Pod) -> None:
    container = critest.run(pod, ["/bin/sh"], stdin=True, stdin_once=True)
    asked = pb.AttachRequest(container_id=container, stdin=True, stdout=True, stderr=True)
    session = SpdySession(critest.runtime.Attach(asked).url, V4, "stdin", "stdout", "stderr")
    session.send("stdin", b"echo -n hello\n")
    session.wait(lambda: session.said["stdout"] == b"hello")
    session.send("stdin", b"", end=True)
    said = session.finish()
    assert (said["stdout"], said["stderr"]) == (b"hello", b"")
    assert exit_code_of(said["error"]) == 0


def test_host_network_pods_ports_are_the_machines(critest: Critest) -> None:
    options = pb.NamespaceOption(network=pb.NODE)
    pod = critest.pod(context={"namespace_options": options}, port_mappings=[pb.PortMapping(container_port=12003)])
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=lambda: listener.accept()[0].sendall(b"served"), daemon=True).start()
        forward = Forward(critest.runtime.PortForward(pb.PortForwardRequest(pod_sandbox_id=pod.id)).url)
        with contextlib.closing(forward.connection):
            data, _ = forward.connect(listener.getsockname()[1])
            forward.wait(lambda: forward.said[data] == b"served")
    critest.remove(pod)


# Lists and streams


def streamed(call: Any, request: Any, field: str) -> list[Any]:
    return [one for answer in call(request, timeout=CALL_S) for one in getattr(answer, field)]


def test_lists_are_filtered_and_streams_are_equal(critest: Critest) -> None:
    runtime, labels = critest.runtime, {"foo": NOBODY}
    pod = critest.pod(labels=labels, annotations={"abc": "def"})
    container = critest.run(pod, labels=labels)
    for wanted, found in (
        (pb.PodSandboxFilter(), True),
        (pb.PodSandboxFilter(id=pod.id), True),
        (pb.PodSandboxFilter(id="non-existent-id"), False),
        (pb.PodSandboxFilter(state=pb.PodSandboxStateValue(state=pb.SANDBOX_NOTREADY), label_selector=labels), False),
        (pb.PodSandboxFilter(label_selector={"foo": "no"}), False),
    ):
        listed = list(runtime.ListPodSandbox(pb.ListPodSandboxRequest(filter=wanted)).items)
        assert (pod.id in [one.id for one in listed]) == found
        parts = streamed(runtime.StreamPodSandboxes, pb.StreamPodSandboxesRequest(filter=wanted), "pod_sandboxes")
        assert parts == listed
    noted = pb.UpdatePodSandboxResourcesRequest(pod_sandbox_id=pod.id)
    runtime.UpdatePodSandboxResources(noted, timeout=CALL_S)
    noted.pod_sandbox_id = NOBODY
    assert refused(runtime.UpdatePodSandboxResources, noted) == "NOT_FOUND"
    (item,) = runtime.ListPodSandbox(pb.ListPodSandboxRequest(filter=pb.PodSandboxFilter(id=pod.id))).items
    assert (item.metadata, item.labels, item.annotations) == (pod.config.metadata, labels, {"abc": "def"})
    ran = pb.ContainerFilter(state=pb.ContainerStateValue(state=pb.CONTAINER_RUNNING), pod_sandbox_id=pod.id)
    (told,) = runtime.ListContainers(pb.ListContainersRequest(filter=ran)).containers
    assert streamed(runtime.StreamContainers, pb.StreamContainersRequest(filter=ran), "containers") == [told]
    assert (told.id, told.image_id) == (container, critest.status(container).image_id)
    critest.remove(pod)


@pytest.mark.needs("mounts", "cgroups")
def test_statistics_of_running_containers(critest: Critest) -> None:
    runtime, labels = critest.runtime, {"stats": NOBODY}
    pod = critest.pod(labels=labels)
    containers = {critest.run(pod, labels=labels) for _ in range(2)}
    for wanted, found in (
        (pb.ContainerStatsFilter(), containers),
        (pb.ContainerStatsFilter(label_selector=labels), containers),
        (pb.ContainerStatsFilter(label_selector={"stats": "baz"}), set()),
    ):
        listed = runtime.ListContainerStats(pb.ListContainerStatsRequest(filter=wanted)).stats
        parts = streamed(runtime.StreamContainerStats, pb.StreamContainerStatsRequest(filter=wanted), "container_stats")
        for stats in (listed, parts):
            assert {one.attributes.id for one in stats} & containers == found
    for container in containers:
        stats = runtime.ContainerStats(pb.ContainerStatsRequest(container_id=container)).stats
        assert stats.cpu.timestamp
        assert stats.memory.timestamp
    of_pod = pb.PodSandboxStatsFilter(id=pod.id)
    (told,) = runtime.ListPodSandboxStats(pb.ListPodSandboxStatsRequest(filter=of_pod)).stats
    assert told.attributes.id == pod.id
    request = pb.StreamPodSandboxStatsRequest(filter=of_pod)
    assert len(streamed(runtime.StreamPodSandboxStats, request, "pod_sandbox_stats")) == 1
    critest.remove(pod)


OPTIONAL = ("container_blkio_device_usage_total", "container_fs_reads", "container_fs_writes")
"""Skips values that the kernel does not count."""


@pytest.mark.needs("mounts", "cgroups")
def test_metrics_have_their_described_labels(critest: Critest) -> None:
    limits = pb.LinuxContainerResources(
        cpu_period=100_000, cpu_quota=20_000, cpu_shares=1024, memory_limit_in_bytes=64 << 20
    )
    runtime, pod = critest.runtime, critest.pod()
    container = critest.run(pod, resources=limits)
    described = runtime.ListMetricDescriptors(pb.ListMetricDescriptorsRequest()).descriptors
    assert all(one.help for one in described)
    labels = {one.name: len(one.label_keys) for one in described}
    assert len(labels) == len(described) == len((*metrics.CONTAINER, *metrics.POD))
    everything = runtime.ListPodSandboxMetrics(pb.ListPodSandboxMetricsRequest()).pod_metrics
    (told,) = [one for one in everything if one.pod_sandbox_id == pod.id]
    (inside,) = told.container_metrics
    found = {one.name: one for one in (*told.metrics, *inside.metrics)}
    assert inside.container_id == container
    assert {name for name in set(labels) - set(found) if not name.startswith(OPTIONAL)} == set()
    assert {name for name, one in found.items() if len(one.label_values) != labels[name]} == set()
    assert found["container_spec_memory_limit_bytes"].value.value == 64 << 20
    assert found["container_spec_cpu_quota"].value.value == 20_000
    assert found["container_processes"].value.value >= 1
    assert found["container_network_receive_bytes_total"].label_values[-1] == "eth0"
    parts = streamed(runtime.StreamPodSandboxMetrics, pb.StreamPodSandboxMetricsRequest(), "pod_sandbox_metrics")
    assert pod.id in [one.pod_sandbox_id for one in parts]
    critest.remove(pod)

"""The stats actor as a process on the real kernel, and on the real runtime where marked."""

import json
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import grpc
import pytest

from actors._cri.client import Cri
from actors._host.files import paths
from actors._host.machine import memory_capacity
from actors.stats import measure
from proto.agent.actor import Describe
from proto.cri import api_pb2 as pb
from proto.node.stats import (
    GetExposition,
    GetNodeStats,
    GetPodUsages,
    GetSummary,
    GetThrottling,
    NodeStats,
    Throttling,
)
from proto.pods.volume import GetVolumeUsages, VolumeUsages
from proto.wire.errors import Refused
from tests.cgroups import DRIVER, cgroup_name, remove_cgroups
from tests.containerd import ContainerdInstance
from tests.containerd.pods import container_config, sandbox_config
from tests.cri.fake import FakeRuntime
from tests.harness import Stalls, actor_process, wait_for


def test_node_figures_without_a_runtime() -> None:
    with actor_process("stats") as stats:
        node = stats.ask(GetNodeStats())
        assert node.memory_capacity_bytes == memory_capacity()
        assert 0 < node.memory_available_bytes < node.memory_capacity_bytes
        assert node.memory_available_bytes + node.memory_working_set_bytes == node.memory_capacity_bytes
        assert node.nodefs.capacity_bytes > node.nodefs.available_bytes > 0
        assert node.imagefs.capacity_bytes == 0, "nobody knows where images would be"
        assert node.pids_max > node.pids_running > 0


def test_young_measurement_is_shared_and_old_one_repeated() -> None:
    with actor_process("stats") as stats:
        first = stats.ask(GetNodeStats())
        assert stats.ask(GetNodeStats(max_age_s=60)).time == first.time
        assert stats.ask(GetNodeStats(max_age_s=0)).time > first.time
        answers: list[NodeStats] = []
        threads = [
            threading.Thread(target=lambda: answers.append(stats.ask(GetNodeStats(max_age_s=30)))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({answer.time for answer in answers}) == 1
        assert stats.ask(Describe()).state["measurements"] == 2


def test_unknown_container_is_held_back_by_no_limit() -> None:
    with actor_process("stats", cgroup_root="/nvtest-none") as stats:
        assert stats.ask(GetThrottling(pod_uid="u", container_id="c")) == Throttling()


STUCK = """
import time
from actors.stats.pages import hardware, render
hardware.hardware = lambda: time.sleep(1000)
render.READ_S = 0.5
"""


def test_scrapes_that_are_stuck_leave_threads_for_the_node() -> None:
    with actor_process("stats", prelude=STUCK, cgroup_root="/nvtest-none") as stats:
        for _ in range(6):
            with pytest.raises(Refused, match="cannot measure"):
                stats.ask(GetExposition(page="cadvisor", max_age_s=0.0))
        assert stats.ask(GetNodeStats(max_age_s=0.0)).memory_available_bytes > 0


def test_runtime_that_is_down_omits_only_its_own_figures(tmp_path: Path) -> None:
    endpoint = f"unix://{tmp_path}/none.sock"
    with actor_process("stats", ("pleg",), container_runtime_endpoint=endpoint, cgroup_root="/nvtest-none") as stats:
        assert stats.ask(GetNodeStats()).imagefs.capacity_bytes == 0
        assert stats.ask(GetPodUsages(with_containers=True)).pods == ()
        stats.restart()
        assert stats.ask(GetNodeStats()).memory_available_bytes > 0


def test_pods_on_a_real_runtime(containerd: ContainerdInstance, cri: Cri, tmp_path: Path) -> None:
    root = f"nvtest{uuid.uuid4().hex[:8]}"
    config = sandbox_config("usage")
    uid = config.metadata.uid
    config.linux.cgroup_parent = cgroup_name(root, "kubepods", "besteffort", f"pod{uid}")
    config.log_directory = str(tmp_path / f"default_usage_{uid}")
    (tmp_path / f"default_usage_{uid}").mkdir()
    sandbox = cri.run_pod_sandbox(config).result()
    write = "dd if=/dev/zero of=/written bs=1M count=3; echo done; "

    def start(attempt: int, rest: str) -> str:
        wanted = container_config(["sh", "-c", write + rest], log_path=f"main/{attempt}.log")
        wanted.metadata.attempt = attempt
        wanted.labels.update({"io.kubernetes.pod.uid": uid, "io.kubernetes.container.name": "main"})
        container: str = cri.create_container(sandbox, wanted, config).result()
        cri.start_container(container).result()
        return container

    try:
        ended = start(0, "exit 1")
        wait_for(lambda: state(cri, ended) == pb.CONTAINER_EXITED, 30, "the first attempt ends; its layer is kept")
        running = start(1, "exec sleep 1000")
        with actor_process(
            "stats",
            ("pleg", "volume"),
            container_runtime_endpoint=containerd.endpoint,
            cgroup_root=f"/{root}",
            cgroup_driver=DRIVER,
            pod_logs_dir=str(tmp_path),
        ) as stats:
            stats.peers["volume"].answers[GetVolumeUsages] = lambda _: VolumeUsages()
            node = stats.ask(GetNodeStats())
            assert node.imagefs.path.startswith(str(containerd.directory))
            assert node.imagefs.capacity_bytes > node.imagefs.available_bytes > 0

            (usage,) = stats.ask(GetPodUsages(max_age_s=0)).pods
            assert usage.pod_uid == uid
            assert usage.memory_working_set_bytes > 0
            assert usage.cpu_usage_ns > 0
            assert usage.tasks > 0
            assert usage.disk_bytes == 0, "not asked for"

            def layers() -> dict[str, int]:
                return {
                    one.attributes.id: one.writable_layer.used_bytes.value
                    for one in cri.list_container_stats().result()
                }

            def both_measured() -> bool:
                return min(layers().get(id_, 0) for id_ in (ended, running)) >= 3 << 20

            wait_for(both_measured, 30, "containerd's collector, every 10 s, sees the files of both attempts")
            (usage,) = stats.ask(GetPodUsages(max_age_s=0, with_disk=True)).pods
            assert usage.writable_layer_bytes == layers()[running], "the ended attempt's layer does not count"
            assert [one.name for one in usage.containers] == ["main"]
            assert usage.disk_bytes > usage.writable_layer_bytes, "the walk sees the log"
            began = time.monotonic()
            with Stalls() as machine:
                stats.ask(GetPodUsages(max_age_s=0))
            assert time.monotonic() - began < 1 + machine.longest_s
    finally:
        cri.stop_pod_sandbox(sandbox).result()
        cri.remove_pod_sandbox(sandbox).result()
        remove_cgroups(root)


def state(cri: Cri, container: str) -> int:
    return int(cri.container_status(container).result().status.state)


class SplitRuntime(FakeRuntime):
    """A runtime that reports the disks of images and of writable layers, as CRI-O does; containerd 1.6 reports one."""

    def __init__(self, socket: Path, images: Path, containers: Path | None) -> None:
        self.images, self.containers = images, containers
        super().__init__(socket)

    def ImageFsInfo(self, request: pb.ImageFsInfoRequest, context: Any) -> pb.ImageFsInfoResponse:  # noqa: ARG002, N802
        def usage(path: Path, used: int) -> pb.FilesystemUsage:
            return pb.FilesystemUsage(
                fs_id=pb.FilesystemIdentifier(mountpoint=str(path)),
                used_bytes=pb.UInt64Value(value=used),
                inodes_used=pb.UInt64Value(value=7),
            )

        return pb.ImageFsInfoResponse(
            image_filesystems=[usage(self.images, 1000)],
            container_filesystems=[usage(self.containers, 50)] if self.containers else [],
        )

    def ListContainerStats(self, request: pb.ListContainerStatsRequest, context: Any) -> pb.ListContainerStatsResponse:  # noqa: ARG002, N802
        return pb.ListContainerStatsResponse()


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Two small file systems."""
    found = (tmp_path / "images", tmp_path / "layers")
    for number, path in enumerate(found):
        path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={number + 2}m", "none", path], check=True)
    yield found
    for path in found:
        subprocess.run(["umount", path], check=True)


@pytest.mark.needs("root", "mounts")
def test_disk_of_writable_layers_is_told_apart(tmp_path: Path, disks: tuple[Path, Path]) -> None:
    images, layers = disks
    runtime = SplitRuntime(tmp_path / "r.sock", images, layers)
    settings = {"container_runtime_endpoint": runtime.endpoint, "cgroup_root": "/nvtest-none"}
    try:
        with actor_process("stats", ("pleg", "volume"), **settings) as stats:
            stats.peers["volume"].answers[GetVolumeUsages] = lambda _: VolumeUsages()
            node = stats.ask(GetNodeStats())
            assert node.containerfs is not None
            assert (node.imagefs.capacity_bytes, node.containerfs.capacity_bytes) == (2 << 20, 3 << 20)
            shown = json.loads(stats.ask(GetSummary()).data)["node"]["runtime"]
            assert [shown[name]["capacityBytes"] for name in ("imageFs", "containerFs")] == [2 << 20, 3 << 20]
            assert [shown[name]["usedBytes"] for name in ("imageFs", "containerFs")] == [1000, 50]
        (images / "below").mkdir()
        for path in (None, images, images / "below", tmp_path / "missing"):
            runtime.containers = path
            with actor_process("stats", ("pleg",), **settings) as stats:
                seen = stats.ask(GetNodeStats()).containerfs
                if path == tmp_path / "missing":
                    assert seen == measure.NO_FS, "it is not taken for the disk of images"
                else:
                    assert seen is None, "one disk, as on containerd 1.6"
        runtime.containers = layers
        with actor_process("stats", ("pleg",), separate_disk_gc=False, **settings) as stats:
            assert stats.ask(GetNodeStats()).containerfs is None
    finally:
        runtime.close()


class PodsWithoutCgroups(SplitRuntime):
    """A runtime with one container, for which it made no cgroup: that of an ordinary user's agent."""

    LABELS: ClassVar = {
        "io.kubernetes.pod.uid": "u1", "io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "default",
        "io.kubernetes.container.name": "main",
    }  # fmt: skip

    def ListPodSandbox(self, request: pb.ListPodSandboxRequest, context: Any) -> pb.ListPodSandboxResponse:  # noqa: ARG002, N802
        return pb.ListPodSandboxResponse()

    def ListContainers(self, request: pb.ListContainersRequest, context: Any) -> pb.ListContainersResponse:  # noqa: ARG002, N802
        return pb.ListContainersResponse(containers=[pb.Container(id="c1", labels=self.LABELS, created_at=1)])

    def ListContainerStats(self, request: pb.ListContainerStatsRequest, context: Any) -> pb.ListContainerStatsResponse:  # noqa: ARG002, N802
        cpu = pb.CpuUsage(usage_core_nano_seconds=pb.UInt64Value(value=7))
        stats = pb.ContainerStats(attributes=pb.ContainerAttributes(id="c1", labels=self.LABELS), cpu=cpu)
        return pb.ListContainerStatsResponse(stats=[stats])


class KeepsEnded(PodsWithoutCgroups):
    """A runtime whose statistics have ended containers, too, as containerd's. Its lists can fail."""

    broken = False

    def ListContainers(self, request: pb.ListContainersRequest, context: Any) -> pb.ListContainersResponse:  # noqa: N802
        if self.broken:
            context.abort(grpc.StatusCode.INTERNAL, "broken")
        made = {"new": pb.CONTAINER_RUNNING, "old": pb.CONTAINER_EXITED, "next": pb.CONTAINER_CREATED}
        wanted = [id_ for id_, state in made.items() if state == request.filter.state.state]
        return pb.ListContainersResponse(containers=[pb.Container(id=id_, labels=self.LABELS) for id_ in wanted])

    def ListContainerStats(self, request: pb.ListContainerStatsRequest, context: Any) -> pb.ListContainerStatsResponse:  # noqa: ARG002, N802
        layer = pb.FilesystemUsage(used_bytes=pb.UInt64Value(value=600))
        found = [pb.ContainerAttributes(id=id_, labels=self.LABELS) for id_ in ("new", "old", "next")]
        return pb.ListContainerStatsResponse(
            stats=[pb.ContainerStats(attributes=one, writable_layer=layer) for one in found]
        )


def test_only_running_containers_count_as_a_pods_disk_use(tmp_path: Path) -> None:
    runtime = KeepsEnded(tmp_path / "r.sock", tmp_path, None)
    for name in ("main", "init"):
        log = tmp_path / f"logs/default_web_u1/{name}/0.log"
        log.parent.mkdir(parents=True)
        log.write_bytes(b"x" * 100_000)
    settings = {"container_runtime_endpoint": runtime.endpoint, "cgroup_root": "/nvtest-none"}
    try:
        with actor_process("stats", ("pleg", "volume"), pod_logs_dir=str(tmp_path / "logs"), **settings) as stats:
            stats.peers["volume"].answers[GetVolumeUsages] = lambda _: VolumeUsages()
            (usage,) = stats.ask(GetPodUsages(max_age_s=0, with_disk=True)).pods
            assert usage.writable_layer_bytes == 600
            (main,) = usage.containers
            assert 100_000 <= usage.disk_bytes - 600 == main.log_bytes < 200_000, "init has ended"
            hosts = Path(paths.etc_hosts_path(stats.settings.root_dir, "u1"))
            hosts.parent.mkdir(parents=True)
            hosts.write_bytes(b"x" * 1_000_000)
            before = usage.disk_bytes
            (usage,) = stats.ask(GetPodUsages(max_age_s=0, with_disk=True)).pods
            assert 1_000_000 <= usage.disk_bytes - before < 1_100_000, "its containers may write to it"
            runtime.broken = True
            (usage,) = stats.ask(GetPodUsages(max_age_s=0, with_disk=True)).pods
            assert (usage.writable_layer_bytes, usage.containers) == (0, ())
            assert usage.disk_bytes >= 200_000
    finally:
        runtime.close()


def test_runtime_measures_containers_without_a_cgroup(tmp_path: Path) -> None:
    runtime = PodsWithoutCgroups(tmp_path / "r.sock", tmp_path, None)
    try:
        with actor_process(
            "stats", ("pleg", "volume"), container_runtime_endpoint=runtime.endpoint, cgroups_per_qos=False
        ) as stats:
            stats.peers["volume"].answers[GetVolumeUsages] = lambda _: VolumeUsages()
            (pod,) = json.loads(stats.ask(GetSummary()).data)["pods"]
            assert pod["podRef"] == {"name": "web", "namespace": "default", "uid": "u1"}
            assert (pod["cpu"]["usageCoreNanoSeconds"], pod["cpu"]["usageNanoCores"]) == (7, 0)
            assert [one["name"] for one in pod["containers"]] == ["main"]
            page = stats.ask(GetExposition(page="resource")).data.decode()
            assert 'pod_cpu_usage_seconds_total{pod="web",namespace="default"}' in page
            page = stats.ask(GetExposition(page="cadvisor")).data.decode()
            assert not any(label in page for label in ('name="c1"', 'pod="web"', 'container="main"'))
    finally:
        runtime.close()

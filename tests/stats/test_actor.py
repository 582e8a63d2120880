"""The stats actor as a process on the real kernel, and on the real runtime where marked."""

import threading
import time
import uuid
from pathlib import Path

from actors._cgroup import fs
from actors._cgroup.hierarchy import hierarchy
from actors._cri.client import Cri
from actors._host.machine import memory_capacity
from proto.agent.actor import Describe
from proto.node.stats import GetNodeStats, GetPodUsages, NodeStats
from proto.pods.volume import GetVolumeUsages, VolumeUsages
from tests.containerd import ContainerdInstance
from tests.containerd.pods import container_config, sandbox_config
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


def test_runtime_that_is_down_omits_only_its_own_figures(tmp_path: Path) -> None:
    endpoint = f"unix://{tmp_path}/none.sock"
    with actor_process("stats", ("pleg",), container_runtime_endpoint=endpoint, cgroup_root="/nvtest-none") as stats:
        assert stats.ask(GetNodeStats()).imagefs.capacity_bytes == 0
        assert stats.ask(GetPodUsages(with_containers=True)).pods == ()
        stats.restart()
        assert stats.ask(GetNodeStats()).memory_available_bytes > 0


def test_pods_on_a_real_runtime(containerd: ContainerdInstance, cri: Cri, tmp_path: Path) -> None:
    root = f"/nvtest-{uuid.uuid4().hex[:8]}"
    config = sandbox_config("usage")
    uid = config.metadata.uid
    config.linux.cgroup_parent = f"{root}/kubepods/besteffort/pod{uid}"
    config.log_directory = str(tmp_path / f"default_usage_{uid}")
    (tmp_path / f"default_usage_{uid}").mkdir()
    sandbox = cri.run_pod_sandbox(config).result()
    command = ["sh", "-c", "dd if=/dev/zero of=/written bs=1M count=3; echo done; exec sleep 1000"]
    wanted = container_config(command, log_path="main/0.log")
    wanted.labels.update({"io.kubernetes.pod.uid": uid, "io.kubernetes.container.name": "main"})
    container = cri.create_container(sandbox, wanted, config).result()
    cri.start_container(container).result()
    try:
        with actor_process(
            "stats",
            ("pleg", "volume"),
            container_runtime_endpoint=containerd.endpoint,
            cgroup_root=root,
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

            def with_disk() -> bool:
                (found,) = stats.ask(GetPodUsages(max_age_s=0, with_disk=True)).pods
                return found.writable_layer_bytes >= 3 << 20 and found.disk_bytes > found.writable_layer_bytes

            wait_for(with_disk, 30, "containerd's collector, every 10 s, sees the file; the walk sees the log")
            began = time.monotonic()
            with Stalls() as machine:
                stats.ask(GetPodUsages(max_age_s=0))
            assert time.monotonic() - began < 1 + machine.longest_s
    finally:
        cri.stop_pod_sandbox(sandbox).result()
        cri.remove_pod_sandbox(sandbox).result()
        wait_for(lambda: fs.remove(root, hierarchy()), 10, "the pod's cgroup goes")

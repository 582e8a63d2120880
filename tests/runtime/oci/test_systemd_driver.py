"""Containers of isolation levels 1 and 2 on a machine with systemd and cgroup v2, with the systemd driver."""

import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._cgroup.systemd import units
from actors._cri.client import Cri
from proto.cri import api_pb2 as pb
from tests.containerd.pods import container_config, sandbox_config
from tests.runtime.containers.test_containers import pid_of, status
from tests.runtime.instance import EmbeddedInstance, wait_for

pytestmark = [pytest.mark.needs("systemd", "mounts")]
LIMITS = {
    "cpu.weight": "39",
    "cpu.max": "20000 100000",
    "memory.max": str(64 << 20),
    "memory.swap.max": "0",
    "memory.high": str(60 << 20),
}


@pytest.fixture(scope="module", params=[pytest.param(1, marks=pytest.mark.needs("runc")), 2])
def instance(request: pytest.FixtureRequest) -> Iterator[EmbeddedInstance]:
    directory = Path(tempfile.mkdtemp(prefix="nvsd-"))
    with EmbeddedInstance(directory, isolation=request.param, cgroup_driver="systemd") as made:
        yield made


@pytest.fixture
def sandbox(instance: EmbeddedInstance) -> Iterator[pb.PodSandboxConfig]:
    slice_ = f"nvtest{uuid.uuid4().hex[:8]}.slice"
    config = sandbox_config("pod")
    config.linux.cgroup_parent = f"/{slice_}"
    units.ensure(slice_, [], [("TasksMax", ("t", 200))])
    yield config
    instance.remove_pods()
    units.stop(slice_)
    assert not Path(f"/sys/fs/cgroup/{slice_}").exists()


def start(cri: Cri, sandbox: pb.PodSandboxConfig, *containers: pb.ContainerConfig) -> list[str]:
    pod = cri.run_pod_sandbox(sandbox).result()
    made = [cri.create_container(pod, config, sandbox).result() for config in containers]
    for container in made:
        cri.start_container(container).result()
    return made


def limited(command: list[str]) -> pb.ContainerConfig:
    config = container_config(command)
    limits = {"memory_limit_in_bytes": 64 << 20, "memory_swap_limit_in_bytes": 64 << 20}
    limits |= {"cpu_shares": 1024, "cpu_quota": 20_000, "cpu_period": 100_000}
    config.linux.resources.CopyFrom(pb.LinuxContainerResources(**limits))
    return config


def greedy(name: str) -> pb.ContainerConfig:
    config = container_config(["sh", "-c", "x=a; while true; do x=$x$x; done"], name=name)
    config.linux.resources.memory_limit_in_bytes = config.linux.resources.memory_swap_limit_in_bytes = 16 << 20
    return config


def end_of(cri: Cri, container: str) -> tuple[int, str]:
    wait_for(lambda: status(cri, container).state == pb.CONTAINER_EXITED, 120)
    ended = status(cri, container)
    return ended.exit_code, ended.reason


def systemctl(*arguments: str) -> str:
    return subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=True, timeout=120).stdout


def cgroup_of(cri: Cri, container: str) -> Path:
    line = Path(f"/proc/{pid_of(cri, container)}/cgroup").read_text()
    return Path("/sys/fs/cgroup" + line.strip().removeprefix("0::"))


def test_limits_survive_a_reload_of_systemd(instance: EmbeddedInstance, sandbox: pb.PodSandboxConfig) -> None:
    config = limited(["sleep", "1000"])
    config.linux.resources.unified["memory.high"] = str(60 << 20)
    (container,) = start(instance.cri, sandbox, config)
    cgroup = cgroup_of(instance.cri, container)
    scope = Path("/sys/fs/cgroup", sandbox.linux.cgroup_parent[1:], f"nodevisor-{container}.scope")
    assert cgroup in (scope, scope / "container")  # the latter is crun's
    limits = {name: (cgroup / name).read_text().strip() for name in LIMITS}
    assert limits == LIMITS
    pids = (cgroup / "pids.max").read_text()
    systemctl("daemon-reload")
    assert {name: (cgroup / name).read_text().strip() for name in LIMITS} == LIMITS
    assert (cgroup / "pids.max").read_text() == pids
    changed = pb.LinuxContainerResources(memory_limit_in_bytes=80 << 20, cpu_quota=30_000, cpu_period=100_000)
    instance.cri.update_container_resources(container, changed).result()
    systemctl("daemon-reload")
    assert (cgroup / "memory.max").read_text().strip() == str(80 << 20)
    assert (cgroup / "cpu.max").read_text().strip() == "30000 100000"
    assert (cgroup / "cpu.weight").read_text().strip() == "39"
    instance.cri.stop_container(container, 0).result()
    wait_for(lambda: not scope.exists())
    wait_for(lambda: "not-found" in systemctl("show", "-p", "LoadState", scope.name))


def test_container_over_its_limit_is_oom_killed(instance: EmbeddedInstance, sandbox: pb.PodSandboxConfig) -> None:
    """Each: systemd removes the scope at about the moment at which the end is recorded."""
    failing = container_config(["sh", "-c", "exit 3"], name="failing")
    configs = [*(greedy(f"greedy{number}") for number in range(4)), failing]
    ended = [end_of(instance.cri, container) for container in start(instance.cri, sandbox, *configs)]
    assert ended == [(137, "OOMKilled")] * 4 + [(3, "Error")]


def test_only_the_container_that_was_killed_says_so(instance: EmbeddedInstance, sandbox: pb.PodSandboxConfig) -> None:
    calm, killed = start(instance.cri, sandbox, limited(["sleep", "1000"]), greedy("greedy"))
    assert end_of(instance.cri, killed) == (137, "OOMKilled")
    instance.cri.stop_container(calm, 0).result()
    assert end_of(instance.cri, calm) == (137, "Error")


def test_devices_stay_limited(instance: EmbeddedInstance, sandbox: pb.PodSandboxConfig) -> None:
    (container,) = start(instance.cri, sandbox, container_config(["sleep", "1000"]))
    script = "rm -f /log; mknod /log c 1 11 && : </dev/null && : </log"
    for _ in range(2):
        ran = instance.cri.exec_sync(container, ["sh", "-c", script], 30).result()
        assert (ran.exit_code != 0, b"/log" in ran.stderr, b"not permitted" in ran.stderr) == (True, True, True), ran
        systemctl("daemon-reload")


def test_statistics_have_pressure(instance: EmbeddedInstance, sandbox: pb.PodSandboxConfig) -> None:
    (container,) = start(instance.cri, sandbox, limited(["sh", "-c", "while true; do :; done"]))
    wait_for(lambda: instance.cri.container_stats(container).result().cpu.psi.Some.Total > 0, 60)
    stats = instance.cri.container_stats(container).result()
    assert stats.memory.HasField("psi")
    assert stats.io.HasField("psi")
    assert 0 < stats.memory.rss_bytes.value < 64 << 20

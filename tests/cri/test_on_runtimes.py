"""The CRI client on real runtimes, which behave alike."""

import ipaddress
import json
import time
from pathlib import Path

import pytest

from actors._cri.client import Cri
from actors._cri.discover import discover
from actors._cri.errors import CriDeadline, CriError, NotFound
from proto.cri import api_pb2 as pb
from tests.containerd import BUSYBOX, ContainerdInstance
from tests.containerd.pods import container_config, run_pod, sandbox_config
from tests.harness import wait_for


def test_discovery_finds_the_runtime(containerd: ContainerdInstance) -> None:
    found = discover(20, [containerd.endpoint])
    assert (found.runtime_name, found.api_version) == ("containerd", "v1")


def test_a_pod_from_its_start_to_its_end(cri: Cri, runtime_name: str) -> None:
    config = sandbox_config("life", labels={"io.kubernetes.pod.name": "life"})
    sandbox = cri.run_pod_sandbox(config).result()
    network = cri.pod_sandbox_status(sandbox).result().status.network
    assert ipaddress.ip_address(network.ip).is_private
    container = cri.create_container(sandbox, container_config(["sh", "-c", "exit 7"]), config).result()
    assert cri.container_status(container).result().status.state == pb.CONTAINER_CREATED
    cri.start_container(container).result()
    cri.stop_container(container, 0).result()
    if runtime_name == "containerd":  # if a container ends by itself, the stop may be answered before the exit shows
        wait_for(lambda: state_of(cri, container) == pb.CONTAINER_EXITED, what="the container's exit")
    status = cri.container_status(container).result().status
    assert status.state == pb.CONTAINER_EXITED
    assert status.image.image == BUSYBOX
    selector = pb.PodSandboxFilter(label_selector={"io.kubernetes.pod.name": "life"})
    assert [item.id for item in cri.list_pod_sandbox(selector).result()] == [sandbox]
    for _ in range(2):  # all are idempotent
        cri.stop_container(container, 0).result()
        cri.remove_container(container).result()
        cri.stop_pod_sandbox(sandbox).result()
        cri.remove_pod_sandbox(sandbox).result()
    assert not cri.list_pod_sandbox(selector).result()
    with pytest.raises(NotFound):
        cri.container_status(container).result()


def test_a_running_container_that_was_stopped_has_exited(cri: Cri) -> None:
    _, container = run_pod(cri, "stopped")
    cri.stop_container(container, 0).result()
    assert state_of(cri, container) == pb.CONTAINER_EXITED


def state_of(cri: Cri, container: str) -> int:
    return cri.container_status(container).result().status.state


def test_verbose_status_tells_the_pid(cri: Cri) -> None:
    _, container = run_pod(cri, "pid")
    info = json.loads(cri.container_status(container, verbose=True).result().info["info"])
    cmdline = Path(f"/proc/{info['pid']}/cmdline")
    end = time.monotonic() + 20
    while not cmdline.read_text().startswith("sleep\0"):  # started is when runc's or crun's init may become the command
        assert time.monotonic() < end, cmdline.read_text()
        time.sleep(0.01)


def test_exec_gives_output_and_exit_code_and_ends_at_its_timeout(cri: Cri) -> None:
    _, container = run_pod(cri, "exec")
    answer = cri.exec_sync(container, ["sh", "-c", "echo out; echo err >&2; exit 3"], 10).result()
    assert (answer.stdout, answer.stderr, answer.exit_code) == (b"out\n", b"err\n", 3)
    with pytest.raises(CriDeadline):
        cri.exec_sync(container, ["sleep", "60"], 1).result()


def test_missing_command_fails_the_start_with_the_runtimes_text(cri: Cri) -> None:
    config = sandbox_config("nocommand")
    sandbox = cri.run_pod_sandbox(config).result()
    container = cri.create_container(sandbox, container_config(["/no/such"]), config).result()
    with pytest.raises(CriError, match="no such file or directory") as caught:
        cri.start_container(container).result()
    assert caught.value.rpc == "StartContainer"


def test_logs_are_in_the_cri_format_and_reopen(cri: Cri, tmp_path: Path) -> None:
    config = sandbox_config("logs")
    config.log_directory = str(tmp_path)
    sandbox = cri.run_pod_sandbox(config).result()
    command = ["sh", "-c", "echo one; exec sleep 1000"]
    container = cri.create_container(sandbox, container_config(command, log_path="main/0.log"), config).result()
    (tmp_path / "main").mkdir(exist_ok=True)
    cri.start_container(container).result()
    log = tmp_path / "main" / "0.log"
    cri.exec_sync(container, ["true"], 10).result()
    log.rename(tmp_path / "main" / "0.log.1")
    cri.reopen_container_log(container).result()
    assert log.exists()


@pytest.mark.needs("cgroups")
def test_stats_of_containers_are_listed(cri: Cri) -> None:
    sandbox, container = run_pod(cri, "stats")
    stats = cri.list_container_stats(pb.ContainerStatsFilter(pod_sandbox_id=sandbox)).result()
    assert [item.attributes.id for item in stats] == [container]
    assert cri.container_stats(container).result().memory.working_set_bytes.value > 0


def test_limits_can_be_changed(cri: Cri) -> None:
    _, container = run_pod(cri, "limits")
    cri.update_container_resources(container, pb.LinuxContainerResources(cpu_shares=512)).result()
    resources = cri.container_status(container).result()
    assert resources.status.id == container


def test_images_are_listed_found_and_missed(cri: Cri) -> None:
    names = {tag for image in cri.list_images().result() for tag in image.repo_tags}
    assert BUSYBOX in names
    image = cri.image_status("busybox").result()
    assert image is not None
    assert BUSYBOX in image.repo_tags
    assert cri.image_status("example.invalid/none:1").result() is None
    cri.remove_image("example.invalid/none:1").result()
    with pytest.raises(CriError):
        cri.pull_image("example.invalid/none:1").result()
    assert cri.image_fs_info().result().image_filesystems

"""The pause process of a pod with a shared pid namespace, which a container with its user may trace."""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._cri.client import Cri
from actors.runtime.assembly import data_dir
from actors.runtime.model.records import read_started
from tests.containerd.pods import container_config, sandbox_config
from tests.runtime.containers.test_containers import pid_of
from tests.runtime.instance import EmbeddedInstance, wait_for

WITH_RUNC = pytest.param(1, marks=pytest.mark.needs("runc", "mounts"))
WITH_MOUNTS = pytest.param(2, marks=pytest.mark.needs("mounts"))
KINDS = ("net", "ipc", "uts")


@pytest.fixture(scope="module", params=[WITH_RUNC, WITH_MOUNTS])
def instance(request: pytest.FixtureRequest) -> Iterator[EmbeddedInstance]:
    with EmbeddedInstance(Path(tempfile.mkdtemp(prefix="nvpause-")), isolation=request.param) as made:
        yield made


@pytest.fixture
def cri(instance: EmbeddedInstance) -> Iterator[Cri]:
    yield instance.cri
    instance.remove_pods()


def pids(instance: EmbeddedInstance, *, host_network: bool) -> tuple[int, int]:
    """The pids of the pause process and of a container of one pod."""
    config = sandbox_config("paused", host_network=host_network)  # CRI's default is a shared pid namespace
    sandbox = instance.cri.run_pod_sandbox(config).result()
    container = instance.cri.create_container(sandbox, container_config(["sleep", "1000"]), config).result()
    instance.cri.start_container(container).result()
    started = read_started(data_dir(instance.settings) / "sandboxes" / sandbox)
    assert started is not None
    return started.pid, pid_of(instance.cri, container)


def namespace(pid: int | str, kind: str) -> str:
    return os.readlink(f"/proc/{pid}/ns/{kind}")


@pytest.mark.usefixtures("cri")
def test_pause_process_is_in_the_pods_namespaces(instance: EmbeddedInstance) -> None:
    pause, container = pids(instance, host_network=False)
    for kind in KINDS:
        assert namespace(pause, kind) == namespace(container, kind) != namespace("self", kind)


@pytest.mark.usefixtures("cri")
def test_pause_process_of_a_host_network_pod_shares_it(instance: EmbeddedInstance) -> None:
    pause, container = pids(instance, host_network=True)
    assert namespace(pause, "net") == namespace(container, "net") == namespace("self", "net")
    assert namespace(pause, "ipc") == namespace(container, "ipc") != namespace("self", "ipc")


@pytest.mark.usefixtures("cri")
def test_pause_process_has_a_seccomp_filter(instance: EmbeddedInstance) -> None:
    pause, _ = pids(instance, host_network=False)
    # The OCI runtime reports the start when its init may execute the command. runc's installs the filter after that.
    wait_for(lambda: "\nSeccomp:\t2\n" in Path(f"/proc/{pause}/status").read_text())


@pytest.mark.usefixtures("cri")
def test_pause_process_has_a_containers_view_of_proc(instance: EmbeddedInstance) -> None:
    """A container that may trace it opens files below /proc/PID/root."""
    pause, _ = pids(instance, host_network=False)
    proc = Path(f"/proc/{pause}/root/proc")
    assert os.statvfs(proc / "sys").f_flag & os.ST_RDONLY
    with pytest.raises(OSError, match="Read-only file system"):
        os.close(os.open(proc / "sys/vm/swappiness", os.O_WRONLY))
    assert (proc / "keys").read_bytes() == b""
    assert os.statvfs(f"/proc/{pause}/root/usr").f_flag & os.ST_NOSUID


@pytest.mark.usefixtures("cri")
def test_each_pause_process_waits_on_its_own_fifo(instance: EmbeddedInstance) -> None:
    found = []
    for name in ("one", "other"):
        config = sandbox_config(name)
        sandbox = instance.cri.run_pod_sandbox(config).result()
        started = read_started(data_dir(instance.settings) / "sandboxes" / sandbox)
        assert started is not None
        found.append(os.stat(f"/proc/{started.pid}/root/fifo"))
    assert found[0].st_ino != found[1].st_ino
    assert all(stat.S_ISFIFO(one.st_mode) for one in found)

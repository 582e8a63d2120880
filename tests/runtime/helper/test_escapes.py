"""Real attacks of a pod on the programs that create its containers, checked from the machine's side.

The pod's volume holds links and files of its choice before the container is created, as an init container would leave
them. The targets are harmless: files of the test, and a value of the pod's own UTS namespace.
"""

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._cri.client import Cri
from actors._cri.errors import CriError
from proto.cri import api_pb2 as pb
from tests.containerd.pods import container_config, sandbox_config
from tests.runtime.containers.test_containers import pid_of
from tests.runtime.instance import EmbeddedInstance, wait_for

WITH_RUNC = pytest.param(1, marks=pytest.mark.needs("runc", "mounts"))
WITH_MOUNTS = pytest.param(2, marks=pytest.mark.needs("mounts"))


@pytest.fixture(scope="module", params=[WITH_RUNC, WITH_MOUNTS, 3])
def instance(request: pytest.FixtureRequest) -> Iterator[EmbeddedInstance]:
    with EmbeddedInstance(Path(tempfile.mkdtemp(prefix="nvesc-")), isolation=request.param) as made:
        yield made


@pytest.fixture(scope="module")
def second() -> Iterator[EmbeddedInstance]:
    """Instances at the isolation level where our helper runs as root."""
    with EmbeddedInstance(Path(tempfile.mkdtemp(prefix="nvesc-")), isolation=2) as made:
        yield made


@pytest.fixture
def cri(instance: EmbeddedInstance) -> Iterator[Cri]:
    yield instance.cri
    instance.remove_pods()


@pytest.fixture
def helped(second: EmbeddedInstance) -> Iterator[Cri]:
    yield second.cri
    second.remove_pods()


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A directory that an earlier container of the pod could write to."""
    directory = tmp_path / "volume"
    directory.mkdir()
    return directory


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory of the machine that no container has."""
    directory = tmp_path / "outside"
    directory.mkdir(mode=0o777)
    directory.chmod(0o777)
    return directory


def create(
    cri: Cri, config: pb.ContainerConfig, volume: Path, at: str, pid: "pb.NamespaceMode.ValueType" = pb.CONTAINER
) -> str:
    """A created container with `volume` mounted at `at`."""
    sandbox = sandbox_config("attack")
    sandbox.linux.security_context.namespace_options.pid = pid
    config.linux.security_context.namespace_options.pid = pid
    config.mounts.insert(0, pb.Mount(container_path=at, host_path=str(volume)))
    sandbox_id = cri.run_pod_sandbox(sandbox).result()
    return cri.create_container(sandbox_id, config, sandbox).result()


def start(cri: Cri, config: pb.ContainerConfig, volume: Path, at: str, **more: "pb.NamespaceMode.ValueType") -> str:
    container = create(cri, config, volume, at, **more)
    cri.start_container(container).result()
    return container


@pytest.mark.needs("mounts")
def test_masks_never_use_a_pods_null_device(helped: Cri, volume: Path) -> None:
    (volume / "null").symlink_to("/proc/sys/kernel/hostname")
    config = container_config(["/bin/sleep", "1000"])
    config.linux.security_context.masked_paths.append("/proc/keys")
    container = start(helped, config, volume, "/dev")
    wait_for(lambda: b"sleep" in Path(f"/proc/{pid_of(helped, container)}/cmdline").read_bytes())
    masked = os.stat(f"/proc/{pid_of(helped, container)}/root/proc/keys")
    assert (stat.S_ISCHR(masked.st_mode), masked.st_rdev) == (True, os.makedev(1, 3))


@pytest.mark.parametrize("kind", ["a directory", "a file"])
def test_links_create_nothing_on_the_machine(
    cri: Cri, instance: EmbeddedInstance, volume: Path, outside: Path, tmp_path: Path, kind: str
) -> None:
    (volume / "out").symlink_to(f"/proc/{instance.pid}/root{outside}")
    config = container_config(["/bin/sleep", "1000"])
    source = tmp_path / "source"
    source.mkdir() if kind == "a directory" else source.touch()
    config.mounts.append(pb.Mount(container_path="/vol/out/made", host_path=str(source)))
    with contextlib.suppress(CriError):
        start(cri, config, volume, "/vol", pid=pb.NODE)
    assert os.listdir(outside) == []


@pytest.mark.needs("mounts")
def test_working_directory_link_creates_nothing_outside(
    helped: Cri, second: EmbeddedInstance, volume: Path, outside: Path
) -> None:
    (volume / "out").symlink_to(f"/proc/{second.pid}/root{outside}")
    config = container_config(["/bin/sleep", "1000"])
    config.working_dir = "/vol/out/made"
    with pytest.raises(CriError):
        start(helped, config, volume, "/vol", pid=pb.NODE)
    assert os.listdir(outside) == []


@pytest.mark.parametrize("at", ["/proc", "/proc/sys", "/vol/proc"])
def test_volume_cannot_cover_proc(cri: Cri, volume: Path, tmp_path: Path, at: str) -> None:
    (volume / "proc").symlink_to("/proc/sys")
    (tmp_path / "mine").mkdir()
    config = container_config(["/bin/sleep", "1000"])
    config.mounts.append(pb.Mount(container_path=at, host_path=str(tmp_path / "mine")))
    with pytest.raises(CriError, match="proc"):
        start(cri, config, volume, "/vol")


@pytest.mark.parametrize("number", range(3, 12))
@pytest.mark.needs("mounts")
def test_helpers_descriptors_cannot_be_working_directory(helped: Cri, volume: Path, number: int) -> None:
    config = container_config(["/bin/sleep", "1000"])
    config.working_dir = f"/proc/self/fd/{number}"
    with pytest.raises(CriError):
        start(helped, config, volume, "/vol")


@pytest.mark.needs("mounts")
def test_terminal_comes_from_the_containers_own_devpts(helped: Cri, volume: Path, tmp_path: Path) -> None:
    (volume / "ptmx").symlink_to("/proc/sys/kernel/hostname")
    (volume / "pts").mkdir()
    (volume / "pts/0").symlink_to("/proc/sys/kernel/hostname")
    config = container_config(["/bin/sh", "-c", "test -t 0 && echo terminal; sleep 1000"])
    config.tty = True
    container = start(helped, config, volume, "/dev")
    process = f"/proc/{pid_of(helped, container)}"
    assert os.major(os.stat(f"{process}/root/dev/console").st_rdev) == 136
    assert os.readlink(f"{process}/fd/0").startswith("/dev/pts/")
    mounts = Path(f"{process}/mountinfo").read_text().splitlines()
    assert not [line for line in mounts if "/sys/kernel/hostname" in line]


@pytest.mark.parametrize("level", [WITH_MOUNTS, 3])
def test_containers_cannot_write_to_the_interpreter(level: int, tmp_path: Path) -> None:
    """The helper's child becomes the container's program; /proc/self/exe is the helper's interpreter until then."""
    script = (
        "import fcntl, os; fd = os.open('/proc/self/exe', os.O_RDONLY); "
        "seals = 'memfd' in os.readlink(f'/proc/self/fd/{fd}') and fcntl.fcntl(fd, fcntl.F_GET_SEALS); "
        "safe = seals & fcntl.F_SEAL_WRITE or os.fstatvfs(fd).f_flag & os.ST_RDONLY; "
        "print('safe' if safe else 'writable', os.fstat(fd).st_size)"
    )
    with EmbeddedInstance(Path(tempfile.mkdtemp(prefix="nvesc-")), isolation=level) as made:
        assert interpreter_seen(made.cri, script) == f"safe {os.stat(os.path.realpath(sys.executable)).st_size}\n"


def interpreter_seen(helped: Cri, script: str) -> str:
    """The output of the script, run by the helper's interpreter as the container's program."""
    config = container_config(["/bin/sleep", "1000"])
    for path in ("/lib", "/lib64", "/usr/lib", sys.base_prefix):  # the interpreter's libraries
        if os.path.isdir(path):
            config.mounts.append(pb.Mount(container_path=path, host_path=os.path.realpath(path), readonly=True))
    config.envs.append(pb.KeyValue(key="PYTHONHOME", value=sys.base_prefix.encode()))
    sandbox = sandbox_config("interpreter")
    sandbox.linux.security_context.namespace_options.pid = pb.CONTAINER
    config.linux.security_context.namespace_options.pid = pb.CONTAINER
    sandbox_id = helped.run_pod_sandbox(sandbox).result()
    container = helped.create_container(sandbox_id, config, sandbox).result()
    helped.start_container(container).result()
    answer = helped.exec_sync(container, ["/proc/self/exe", "-S", "-c", script], 20).result()
    return bytes(answer.stdout + answer.stderr).decode()


@pytest.mark.needs("mounts")
def test_host_network_pod_cannot_set_the_machines_sysctls(helped: Cri) -> None:
    name = "net/ipv4/ip_default_ttl"
    value = Path("/proc/sys", name).read_text().strip()
    sandbox = sandbox_config("sysctl", host_network=True)
    sandbox.linux.sysctls[name.replace("/", ".")] = value
    with pytest.raises(CriError, match="ip_default_ttl"):
        helped.run_pod_sandbox(sandbox).result()

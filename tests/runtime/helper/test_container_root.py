"""Lookups in a container's root: dangling links lead to new files in it, and nowhere else. Working directories."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._cri.client import Cri
from actors.runtime.helper.container_root import ContainerRoot
from proto.cri import api_pb2 as pb
from tests.containerd.pods import container_config, sandbox_config
from tests.runtime.instance import EmbeddedInstance

ORDINARY_UID = 54321


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A directory that `looking` takes as a container's root."""
    directory = tmp_path / "root"
    (directory / "etc").mkdir(parents=True)
    yield directory
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


@pytest.fixture
def looking(root: Path) -> Iterator[ContainerRoot]:
    made = ContainerRoot()
    os.close(made.fd)
    made.fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    yield made
    os.close(made.fd)


def place(descriptor: int) -> Path:
    """The path of an open file."""
    try:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("target", "made"),
    [
        ("../run/systemd/resolve/stub-resolv.conf", "run/systemd/resolve/stub-resolv.conf"),
        ("/run/one", "run/one"),
        ("beside", "etc/beside"),
        ("../../../../../../up", "up"),
        ("/../../up", "up"),
    ],
)
def test_target_of_a_dangling_link_is_made_in_the_root(
    root: Path, looking: ContainerRoot, target: str, made: str
) -> None:
    (root / "etc/file").symlink_to(target)
    assert place(looking.file("/etc/file")) == root / made
    assert (root / made).is_file()
    (root / made).unlink()
    assert place(looking.directory("/etc/file/below")) == root / made / "below"
    assert (root / "etc/file").is_symlink()
    assert place(looking.mount_point("/etc/file/below/a/b", is_directory=False)) == root / made / "below/a/b"


def test_dangling_links_on_the_way_and_in_a_row_are_followed(root: Path, looking: ContainerRoot) -> None:
    (root / "real").mkdir()
    (root / "etc/moved").symlink_to("../real")
    (root / "real/up").symlink_to("../var/first")  # from /real, not from /etc/moved
    (root / "var").symlink_to("/srv/./var/")
    assert place(looking.file("/etc/moved/up/file")) == root / "srv/var/first/file"
    # The kernel allows 40 links, and counts each twice when a change elsewhere makes it begin its walk again.
    for number in range(19):
        (root / str(number)).symlink_to(str(number + 1))
    assert place(looking.file("/0")) == root / "19"


@pytest.mark.parametrize(
    ("links", "number"),
    [
        ({"a": "b", "b": "a"}, errno.ELOOP),
        ({"a": "a/x"}, errno.ELOOP),
        ({"a": "none/../a"}, errno.ENOENT),
        ({"a": "none/deep/../../etc/new"}, errno.ENOENT),
        ({"a": "none/.."}, errno.ENOENT),
        ({"a": "etc/conf/x"}, errno.ENOTDIR),
        ({str(number): f"{number + 1}/x" for number in range(45)} | {"a": "0"}, errno.ELOOP),
    ],
)
def test_links_that_lead_nowhere_make_nothing(
    root: Path, looking: ContainerRoot, links: dict[str, str], number: int
) -> None:
    (root / "etc/conf").touch()
    for name, target in links.items():
        (root / name).symlink_to(target)
    before = sorted(root.rglob("*"))
    for look in (looking.file, looking.directory):
        with pytest.raises(OSError, match=os.strerror(number)):
            look("/a")
    assert sorted(root.rglob("*")) == before


@pytest.mark.needs("mounts")
def test_dangling_link_into_proc_makes_nothing(looking: ContainerRoot) -> None:
    os.close(looking.fd)
    looking.fd = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "fd").symlink_to("/proc/self/no-such-file")
        Path(directory, "root").symlink_to(f"/proc/{os.getpid()}/root/tmp/nv-none")
        for name in ("fd", "root"):
            for look in (looking.file, looking.directory):
                with pytest.raises(OSError, match=r"proc|symbolic"):
                    look(f"{directory}/{name}")
    assert not os.path.exists("/tmp/nv-none")


# In containers


WITH_RUNC = pytest.param(1, marks=pytest.mark.needs("runc", "mounts"))
WITH_MOUNTS = pytest.param(2, marks=pytest.mark.needs("mounts"))


@pytest.fixture(scope="module", params=[WITH_RUNC, WITH_MOUNTS])
def instance(request: pytest.FixtureRequest) -> Iterator[EmbeddedInstance]:
    """With runc, which our helper does as, and with our helper as root."""
    with EmbeddedInstance(Path(tempfile.mkdtemp(prefix="nvroot-")), isolation=request.param) as made:
        yield made


@pytest.fixture
def cri(instance: EmbeddedInstance) -> Iterator[Cri]:
    yield instance.cri
    instance.remove_pods()


def start(cri: Cri, config: pb.ContainerConfig) -> str:
    sandbox = sandbox_config("root")
    container = cri.create_container(cri.run_pod_sandbox(sandbox).result(), config, sandbox).result()
    cri.start_container(container).result()
    return container


def output(cri: Cri, container: str, *command: str) -> str:
    answer = cri.exec_sync(container, list(command), 20).result()
    return bytes(answer.stdout + answer.stderr).decode()


def test_container_mounts_over_dangling_links(cri: Cri, tmp_path: Path) -> None:
    volume, given = tmp_path / "volume", tmp_path / "given"
    volume.mkdir()
    given.mkdir()
    (given / "file").write_text("given")
    (volume / "conf").symlink_to("../stub/resolve/conf")
    (volume / "run").symlink_to("/stub/run")
    config = container_config(["/bin/sleep", "1000"])
    config.mounts.append(pb.Mount(container_path="/vol", host_path=str(volume)))
    config.mounts.append(pb.Mount(container_path="/vol/conf", host_path=str(given / "file")))
    config.mounts.append(pb.Mount(container_path="/vol/run/secrets", host_path=str(given)))
    container = start(cri, config)
    shown = output(cri, container, "cat", "/stub/resolve/conf", "/vol/conf", "/stub/run/secrets/file")
    assert shown == "given" * 3
    assert sorted(path.name for path in volume.iterdir()) == ["conf", "run"]


@pytest.mark.parametrize("owner", [0, ORDINARY_UID])
def test_working_directory_may_be_another_users(cri: Cri, tmp_path: Path, owner: int) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    os.chown(private, owner, owner)
    config = container_config(["/bin/sleep", "1000"])
    config.mounts.append(pb.Mount(container_path="/private", host_path=str(private)))
    config.working_dir = "/private"
    config.linux.security_context.run_as_user.value = ORDINARY_UID
    config.linux.security_context.capabilities.drop_capabilities.append("ALL")
    container = start(cri, config)
    assert output(cri, container, "readlink", "/proc/self/cwd") == "/private\n"

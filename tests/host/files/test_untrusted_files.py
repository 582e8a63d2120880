"""The table of places that read files which a container, its image or a plugin can write.

Each place is offered a sparse file of 2 GB, a FIFO, a link, a link to a device, a directory, and a leased file. The
place must return at once, use little memory, and not read the target of a link.
"""

import errno
import fcntl
import multiprocessing
import os
import resource
import signal
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from actors._host.files import untrusted_files
from actors._host.files.disk_use import Walk
from actors._logs.reading import LogReader
from actors.container_gc.rotation import compress
from actors.pod_workers.cri_config import host_files
from actors.pod_workers.environment.variables import ConfigError
from actors.pod_workers.model.view import ContainerView, SandboxView
from actors.pod_workers.shared.userns import UserNamespaces
from actors.pod_workers.status.termination_message import read_termination_message
from actors.runtime.containers.bundle import _read as read_image_file
from actors.runtime.images.local.stack import Hidden, Layer, Stack
from actors.runtime.network.api import NetworkError
from actors.runtime.network.cni import Attachment, CniNetwork, Conflist
from actors.runtime.oci.runtime import last_error
from actors.volume.csi import disk as csi_disk
from actors.volume.ops import atomic_writer
from actors.volume.ops.inside import read as read_volume_file
from actors.volume.ops.setup import READY
from actors.volume.reconcile import reconstruct
from actors.volume.steps.errors import VolumeError
from actors.volume.steps.volumes import File
from proto.agent.settings import Settings
from proto.v1 import Pod
from proto.v1.codec import from_dict

MB = 1024 * 1024
SECRET = "only the node is to read this"
POD = from_dict(
    Pod,
    {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [{"name": "c", "image": "i", "terminationMessagePath": "/dev/termination-log"}]},
    },
)


def etc_hosts(root: Path) -> Any:
    settings = Settings(root_dir=str(root), cluster_domain="c.l")
    host_files.prepare(POD, POD.spec.containers[0], SandboxView(id="s", ips=("10.0.0.1",)), settings)
    return (root / "pods/u/etc-hosts").read_bytes()


def last_words(root: Path) -> Any:
    return read_termination_message(
        ContainerView(
            id="1",
            name="c",
            state="exited",
            exit_code=1,
            termination_message_host_path=f"{root}/words",
            termination_message_policy="FallbackToLogsOnError",
            log_path=f"{root}/0.log",
        )
    )


def log(root: Path) -> Any:
    reader = LogReader(root / "0.log")
    try:
        reader.check_rotation()
        return reader.read(final=True)
    finally:
        reader.close()


def volume_of_files(root: Path) -> Any:
    with_data = root / "volume"
    descriptor = os.open(with_data, os.O_RDONLY)
    try:
        atomic_writer.write(descriptor, [File(path="a", data=b"right", mode=0o644)])
    finally:
        os.close(descriptor)
    return (with_data / "a").read_bytes()


def csi_mark(root: Path) -> Any:
    mounted = defaultdict(lambda: "ext4")
    return reconstruct._published(str(root / "pods/u"), str(root), "u", mounted, ())


def user_namespaces(root: Path) -> Any:
    return UserNamespaces(str(root), 65536, 65536, 10 * 65536)._used


def image_users(root: Path) -> Any:
    return read_image_file(Stack([Layer(f"{root}/layer", Hidden())]).open("/etc/passwd"))


def walk(root: Path) -> Any:
    return Walk(time.monotonic() + 10).measure(f"{root}/volume").inodes


class Place(NamedTuple):
    name: str
    path: str
    """Below a directory of the test's."""
    use: Callable[[Path], Any]
    why: str
    """The reason why the file is untrusted."""
    but: frozenset[str] = frozenset()
    """Offers that are harmless there and take long."""


PLACES = (
    Place("etc-hosts", "pods/u/etc-hosts", etc_hosts, "it is mounted in each container of the pod"),
    Place("termination log", "words", last_words, "it is mounted in its container"),
    Place("container log, for last words", "0.log", last_words, "its content is the container's"),
    Place("container log, followed", "0.log", log, "its content is the container's"),
    Place(
        "container log, rotated", "0.log.1", lambda root: compress(f"{root}/0.log.1"), "as above", frozenset({"sparse"})
    ),
    Place("file for environment variables", "v/f", lambda root: read_volume_file(f"{root}/v", "f", MB), "its emptyDir"),
    Place("volume of files", "volume/..2026_01/a", volume_of_files, "privileged containers, by the volume's own path"),
    Place("volume that is measured", "volume/x", walk, "its emptyDir"),
    Place("CSI volume's data", "csi/vol_data.json", lambda root: csi_disk.read_data(f"{root}/csi"), "CSI drivers"),
    Place("CSI volume's mark", f"pods/u/plugins/kubernetes.io~csi/v/{READY}", csi_mark, "CSI drivers"),
    Place("pod's user namespace", "pods/u/userns", user_namespaces, "who has the kubelet's directory as a hostPath"),
    Place("image's users", "layer/etc/passwd", image_users, "the image"),
    Place("OCI runtime's log", "oci.log", lambda root: last_error(root / "oci.log"), "messages name a pod's words"),
    Place("CNI result", "network.json", lambda root: CniNetwork(str(root), ()).release(root), "CNI plugins"),
)


def sparse(path: Path, outside: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2048 * MB)


OFFERS: dict[str, Callable[[Path, Path], object]] = {
    "sparse": sparse,
    "fifo": lambda path, _: os.mkfifo(path),
    "link": lambda path, outside: path.symlink_to(outside),
    "link to a device": lambda path, _: path.symlink_to("/dev/zero"),
    "link to a directory": lambda path, outside: path.symlink_to(outside.parent),
    "directory": lambda path, _: path.mkdir(),
    "lease": lambda path, _: path.write_bytes(b"leased"),
}


def hold_lease(path: str, held: Any, over: Any) -> None:
    descriptor = os.open(path, os.O_RDWR)
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    held.set()
    over.wait(60)


def use(place: Place, root: Path, said: Any) -> None:
    """Run in a process that may be killed. The memory limit is relative to pytest's at the fork."""
    inherited = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (inherited + 512 * MB,) * 2)
    tracemalloc.start()
    try:
        result = repr(place.use(root))
    except (OSError, VolumeError, ConfigError, NetworkError) as error:
        result = f"refused: {error}"
    except BaseException as error:
        result = f"unexpected: {error!r}"
    said.send((result, tracemalloc.get_traced_memory()[1]))


@pytest.mark.parametrize("offer", OFFERS)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
@pytest.mark.needs("root")
def test_hostile_file_is_not_read_whole_not_followed_and_no_wait(place: Place, offer: str, tmp_path: Path) -> None:
    if offer in place.but:
        return
    root, outside = tmp_path / "root", tmp_path / "outside" / "secret"
    path = root / place.path
    path.parent.mkdir(parents=True)
    outside.parent.mkdir()
    outside.write_text(SECRET)
    if place.name == "volume of files":
        (root / "volume/..data").symlink_to("..2026_01")
    OFFERS[offer](path, outside)
    context = multiprocessing.get_context("fork")
    held, over = context.Event(), context.Event()
    holder = context.Process(target=hold_lease, args=(str(path), held, over))
    if offer == "lease":
        holder.start()
        assert held.wait(10)
    receiving, sending = context.Pipe(duplex=False)
    user = context.Process(target=use, args=(place, root, sending))
    user.start()
    try:
        assert receiving.poll(20), "it waits"
        result, peak = receiving.recv()
    finally:
        user.kill()
        user.join()
        over.set()
        if offer == "lease":
            holder.join()
    assert not result.startswith("unexpected"), result
    assert SECRET not in result
    assert peak < 32 * MB
    assert outside.read_text() == SECRET


@pytest.mark.needs("root")
def test_hosts_file_that_a_container_blew_up_is_repaired(tmp_path: Path) -> None:
    path = tmp_path / "pods/u/etc-hosts"
    path.parent.mkdir(parents=True)
    sparse(path, path)
    path.chmod(0)
    inode = path.stat().st_ino
    content = etc_hosts(tmp_path)
    assert b"10.0.0.1\tp" in content
    assert len(content) < 1000
    assert (path.stat().st_ino, path.stat().st_mode & 0o777) == (inode, 0o644)


def test_a_plugin_of_cni_that_never_stops_talking_is_refused(tmp_path: Path) -> None:
    plugin = tmp_path / "loud"
    plugin.write_text("#!/bin/sh\nhead -c 200000000 /dev/zero\n")
    plugin.chmod(0o755)
    (tmp_path / "1.conflist").write_text('{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "loud"}]}')
    network = CniNetwork(str(tmp_path), (str(tmp_path),))
    attachment = Attachment(
        network=Conflist(name="n", plugins=({"type": "loud"},)),
        sandbox_id="s",
        netns="",
        arguments={},
        port_mappings=(),
    )
    (tmp_path / "network.json").write_bytes(msgspec.json.encode(attachment))
    tracemalloc.start()
    try:
        with pytest.raises(NetworkError, match="larger than"):
            network.release(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 16 * MB
    finally:
        tracemalloc.stop()


def test_no_component_beneath_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "in/deep").mkdir(parents=True)
    (tmp_path / "in/deep/file").write_text("x")
    (tmp_path / "in/link").symlink_to("deep")
    (tmp_path / "in/link-to-file").symlink_to("deep/file")
    beneath = str(tmp_path / "in")
    assert untrusted_files.read_regular("deep/file", 1, beneath=beneath) == b"x"
    for path, code in (
        ("link/file", errno.ENOTDIR),
        ("link-to-file", errno.ELOOP),
        ("../in/deep/file", errno.EXDEV),
        ("deep", errno.EISDIR),
        ("", errno.EXDEV),
        ("none/file", errno.ENOENT),
    ):
        with pytest.raises(OSError) as caught:  # noqa: PT011 - its errno is compared
            untrusted_files.read_regular(path, 1, beneath=beneath)
        assert caught.value.errno == code, path
    with pytest.raises(OSError, match="larger than 0 bytes"):
        untrusted_files.read_regular("deep/file", 0, beneath=beneath)


def test_a_directory_that_is_swapped_for_a_link_is_not_measured(tmp_path: Path) -> None:
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    (volume / "sub").mkdir(parents=True)
    (outside / "sub").mkdir(parents=True)
    for number in range(50):
        (outside / f"sub/{number}").touch()

    def swap() -> None:
        if swap_at.pop(0):
            (volume / "sub").rmdir()
            (volume / "sub").symlink_to(outside / "sub")

    swap_at = [False, True, False]
    assert Walk(time.monotonic() + 10, progress=swap).measure(str(volume)).inodes == 2

"""Image volumes of containers (KEP-4639), over CRI."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._cri.client import Cri
from actors._cri.errors import CriError
from actors.runtime.filesystems.image_volumes import ImageVolumes
from actors.runtime.filesystems.rootfs import RootFs
from actors.runtime.images.local.store import ImageStore
from actors.runtime.images.sources.layout import import_all
from proto.cri import api_pb2 as pb
from tests.containerd.pods import container_config, sandbox_config
from tests.runtime.images.build import Made, entry, hardlink, symlink, tar
from tests.runtime.instance import EmbeddedInstance, wait_for

NAME = "registry.test/data:1"
LOWER = (
    entry("dir"),
    entry("dir/deep"),
    entry("dir/deep/file", b"deep"),
    entry("gone", b"gone"),
    entry("kept", b"below"),
    entry("run", b"#!/bin/sh\necho ran\n", mode=0o755),
)
UPPER = (
    entry(".wh.gone", b""),
    entry("kept", b"above"),
    symlink("inside", "/dir/deep"),
    symlink("outside", "../../../../../../etc"),
    hardlink("again", "dir/deep/file"),
)


@pytest.fixture
def cri(embedded: EmbeddedInstance, tmp_path: Path) -> Iterator[Cri]:
    archive = Made(tar(*LOWER), tar(*UPPER), name=NAME).write_archive(tmp_path / "data.tar")
    embedded.cri.pull_image(f"oci-archive:{archive}").result()
    yield embedded.cri
    embedded.remove_pods()
    embedded.cri.remove_image(NAME).result()


def create(cri: Cri, name: str, *mounts: pb.Mount) -> str:
    sandbox = sandbox_config(name)
    sandbox.linux.security_context.namespace_options.pid = pb.CONTAINER
    config = container_config(["sleep", "1000"])
    config.linux.security_context.namespace_options.pid = pb.CONTAINER
    config.mounts.extend(mounts)
    return cri.create_container(cri.run_pod_sandbox(sandbox).result(), config, sandbox).result()


def image_mount(path: str = "/image", part: str = "", image: str = NAME) -> pb.Mount:
    return pb.Mount(container_path=path, image=pb.ImageSpec(image=image), image_sub_path=part, readonly=True)


def shell(cri: Cri, container: str, script: str) -> str:
    answer = cri.exec_sync(container, ["sh", "-c", script], 20).result()
    return bytes(answer.stdout + answer.stderr).decode()


def mounted(embedded: EmbeddedInstance) -> list[str]:
    directory = Path(embedded.settings.run_dir, "runtime/volumes")
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(directory) in line]


def test_volume_has_all_layers_read_only_and_executable(cri: Cri) -> None:
    container = create(cri, "layers", image_mount())
    cri.start_container(container).result()
    assert shell(cri, container, "cat /image/kept /image/dir/deep/file /image/again; ls /image") == (
        "abovedeepdeepagain\ndir\ninside\nkept\noutside\nrun\n"
    )
    assert shell(cri, container, "touch /image/x; rm /image/kept").count("Read-only file system") == 2
    assert shell(cri, container, "/image/run") == "ran\n"
    (mount,) = cri.container_status(container).result().status.mounts
    assert mount.image.image_ref == cri.image_status(NAME).result().id


@pytest.mark.parametrize(
    ("part", "script", "out"),
    [
        ("dir", "cat /image/deep/file", "deep"),
        ("dir/deep/", "cat /image/file", "deep"),
        ("inside", "cat /image/file", "deep"),
        ("dir/deep/file", "cat /image", "deep"),
        ("/", "cat /image/kept", "above"),
    ],
)
def test_sub_path_of_an_image(cri: Cri, part: str, script: str, out: str) -> None:
    container = create(cri, "part", image_mount(part=part))
    cri.start_container(container).result()
    assert shell(cri, container, script) == out


@pytest.mark.parametrize(
    ("mount", "why"),
    [
        (image_mount(part="gone"), "no 'gone' in the image"),
        (image_mount(part="dir/no"), "no 'dir/no' in the image"),
        (image_mount(part="outside"), "no 'outside' in the image"),
        (image_mount(part="../../etc/passwd"), "in the image"),
        (image_mount(part="kept/below"), "Not a directory"),
        (image_mount(image="registry.test/none:1"), "no image"),
        (image_mount(image="host"), "machine"),
        (pb.Mount(container_path="/d", host_path="/etc", image=pb.ImageSpec(image=NAME)), "/etc"),
    ],
)
def test_impossible_volume_fails_at_creation(cri: Cri, mount: pb.Mount, why: str) -> None:
    with pytest.raises(CriError, match=why):
        create(cri, "refused", mount)


@pytest.mark.needs("mounts")
def test_volume_survives_image_and_runtime_until_container_goes(embedded: EmbeddedInstance, cri: Cri) -> None:
    container = create(cri, "outlives", image_mount(), image_mount("/part", "dir"))
    cri.remove_image(NAME).result()
    embedded.kill()
    embedded.start()
    cri.start_container(container).result()
    embedded.kill()
    embedded.start()
    assert shell(cri, container, "cat /image/kept /part/deep/file") == "abovedeep"
    assert len(mounted(embedded)) == 2
    status = cri.container_status(container).result().status
    assert [one.image.image for one in status.mounts] == [NAME, NAME]
    cri.stop_container(container, 0).result()
    wait_for(lambda: mounted(embedded) == [])
    sandbox = json.loads(cri.container_status(container, verbose=True).result().info["info"])["sandboxID"]
    cri.remove_pod_sandbox(sandbox).result()
    used = Path(embedded.settings.root_dir, "nodevisor/runtime/images/layers")
    kept = {layer for image in cri.list_images().result() for layer in image.repo_tags}
    assert NAME not in kept
    wait_for(lambda: not any((layer / "fs/dir/deep/file").exists() for layer in used.iterdir()))


@pytest.mark.needs("mounts")
def test_files_are_copied_without_overlayfs(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store")
    import_all(store, Made(tar(*LOWER), tar(*UPPER), name=NAME).write_archive(tmp_path / "data.tar"))
    volumes = ImageVolumes(store, RootFs(store, overlay=False), tmp_path / "volumes")
    chosen = volumes.choose(pb.ContainerConfig(mounts=[image_mount(part="inside")]), lambda _: None)
    for _ in range(2):  # the second start follows an interrupted one
        volumes.prepare("c", chosen)
    (source,) = volumes.sources("c", chosen).values()
    assert Path(source, "file").read_bytes() == b"deep"
    assert volumes.orphaned({"other"}) == ["c"]
    for _ in range(2):
        volumes.remove("c")
    assert list((tmp_path / "volumes").iterdir()) == []

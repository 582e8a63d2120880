"""VOLUMEs of a container's image: a writable directory of the container's own, with the image's content."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._cri.client import Cri
from actors._cri.errors import CriError
from actors.runtime.assembly import data_dir
from actors.runtime.filesystems import declared_volumes
from actors.runtime.images.errors import BadImage
from actors.runtime.images.limits import Budget, Limits
from actors.runtime.images.local.stack import Stack
from actors.runtime.images.local.store import ImageStore
from actors.runtime.images.sources.layout import import_all
from actors.runtime.oci.spec.mounts import BadMount
from proto.cri import api_pb2 as pb
from tests.containerd.images import Image
from tests.containerd.pods import container_config, sandbox_config
from tests.runtime.containers.test_containers import measured_once, start
from tests.runtime.images.build import Made, entry, hardlink, symlink, tar
from tests.runtime.instance import EmbeddedInstance

SEEDED = Image(
    "registry.test/declares:1", files={"/var/lib/app/seed": b"seed"}, volumes=["/data", "/var/lib/app", "relative/../r"]
)
LOWER = (
    entry("data", mode=0o750, uid=7, gid=8),
    entry("data/old"),
    entry("data/old/gone", b"gone"),
    entry("data/gone", b"gone"),
    entry("data/kept", b"below", uid=9, gid=10, mode=0o640),
    entry("run"),
    entry("run/app"),
    entry("run/app/file", b"run"),
    entry("file", b"file"),
)
UPPER = (
    entry("data", mode=0o1777, uid=70, gid=80),
    entry("data/.wh.gone", b""),
    entry("data/old"),
    entry("data/old/.wh..wh..opq", b""),
    entry("data/old/new", b"new"),
    hardlink("data/again", "data/kept"),
    symlink("data/out", "/etc/passwd"),
    symlink("link", "/run/app"),
    symlink("up", "../../.."),
    symlink("loop", "/loop"),
)


def shell(cri: Cri, container: str, script: str) -> str:
    answer = cri.exec_sync(container, ["sh", "-c", script], 20).result()
    return bytes(answer.stdout + answer.stderr).decode()


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    store = ImageStore(tmp_path / "store")
    import_all(store, Made(tar(*LOWER), tar(*UPPER)).write_archive(tmp_path / "image.tar"))
    (image,) = store.list()
    return store.stack(image.layers)


def made(tmp_path: Path, stack: Stack, *paths: str, limits: Limits | None = None) -> list[Path]:
    """The directories of the volumes at these paths."""
    chosen = declared_volumes.choose(paths, pb.ContainerConfig(), stack)
    budget = Budget(limits or Limits(reserve_bytes=0), str(tmp_path))
    declared_volumes.prepare(tmp_path / "c", chosen, stack, budget)
    return [Path(path) for path in declared_volumes.sources(tmp_path / "c", chosen).values()]


def test_volume_begins_with_what_all_layers_show_there(tmp_path: Path, stack: Stack) -> None:
    data, link, missing = made(tmp_path, stack, "/data", "/link", "/no/such")
    assert {str(one.relative_to(data)) for one in data.rglob("*")} == {"again", "kept", "old", "old/new", "out"}
    assert [(data / name).read_bytes() for name in ("kept", "again", "old/new")] == [b"below", b"below", b"new"]
    assert os.readlink(data / "out") == "/etc/passwd", "the link is copied, not followed"
    assert data.stat().st_mode & 0o7777 == 0o1777
    assert [one.name for one in link.iterdir()] == ["file"]
    assert list(missing.iterdir()) == []
    assert missing.stat().st_mode & 0o7777 == 0o755


@pytest.mark.needs("mounts")
def test_volume_has_the_owners_of_the_image(tmp_path: Path, stack: Stack) -> None:
    (data,) = made(tmp_path, stack, "/data")
    assert [(one.stat().st_uid, one.stat().st_gid) for one in (data, data / "kept")] == [(70, 80), (9, 10)]


@pytest.mark.parametrize("path", ["/file", "/up", "/loop", "/file/below"])
def test_volume_that_leads_to_no_directory_is_refused(tmp_path: Path, stack: Stack, path: str) -> None:
    with pytest.raises(BadMount, match=f"cannot make the image's VOLUME {path}: "):
        made(tmp_path, stack, path)


def test_interrupted_copy_is_made_again_a_whole_one_kept(tmp_path: Path, stack: Stack) -> None:
    (tmp_path / "c/volumes/0.copying/left").mkdir(parents=True)
    (data,) = made(tmp_path, stack, "/data")
    assert not (data / "left").exists()
    (data / "kept").write_text("the container's")
    made(tmp_path, stack, "/data")
    assert (data / "kept").read_text() == "the container's"
    assert sorted(one.name for one in data.parent.iterdir()) == ["0"]


@pytest.mark.parametrize("limits", [Limits(reserve_bytes=0, image_entries=9), Limits(reserve_bytes=0, image_bytes=24)])
def test_all_volumes_together_have_one_images_limits(tmp_path: Path, stack: Stack, limits: Limits) -> None:
    assert made(tmp_path / "one", stack, "/data", limits=limits)
    with pytest.raises(BadImage, match="more than"):
        made(tmp_path / "two", stack, "/data", "/data/../data/old", "/link", limits=limits)
    assert [one.name for one in (tmp_path / "two/c/volumes").iterdir() if one.name.endswith(".copying")] == []


# In containers


@pytest.fixture
def cri(embedded: EmbeddedInstance) -> Iterator[Cri]:
    embedded.import_images([SEEDED])
    yield embedded.cri
    embedded.remove_pods()
    embedded.cri.remove_image(SEEDED.name).result()


def directory_of(embedded: EmbeddedInstance, container: str) -> Path:
    return data_dir(embedded.settings) / "containers" / container


@pytest.mark.needs("mounts")
def test_volumes_are_writable_with_a_read_only_root(embedded: EmbeddedInstance, cri: Cri) -> None:
    config = container_config(["sleep", "1000"], image=SEEDED.name)
    config.linux.security_context.readonly_rootfs = True
    _, container = start(cri, "declares", config)
    script = (
        "for one in /data /var/lib/app /r; do echo x > $one/new || exit; done; cat /var/lib/app/seed /r/new; touch /x"
    )
    told = shell(cri, container, script)
    assert told.startswith("seedx\n")
    assert told.count("Read-only file system") == 1
    _, other = start(cri, "other", container_config(["sleep", "1000"], image=SEEDED.name))
    assert shell(cri, other, "ls -A /data /var/lib/app") == "/data:\n\n/var/lib/app:\nseed\n"
    assert list(cri.container_status(container).result().status.mounts) == []
    cri.remove_container(container).result()
    assert not directory_of(embedded, container).exists()


def test_mount_of_the_pod_replaces_a_volume(cri: Cri, tmp_path: Path) -> None:
    (tmp_path / "given").write_text("given")
    config = container_config(["sleep", "1000"], image=SEEDED.name)
    config.mounts.append(pb.Mount(container_path="/var/lib/app/", host_path=str(tmp_path)))
    _, container = start(cri, "replaces", config)
    assert shell(cri, container, "ls /var/lib/app /data") == "/data:\n\n/var/lib/app:\ngiven\n"


def test_volumes_count_as_the_containers_disk_use(cri: Cri) -> None:
    _, container = start(cri, "counts", container_config(["sleep", "1000"], image=SEEDED.name))
    shell(cri, container, "dd if=/dev/urandom of=/data/big bs=1M count=8")
    measured_once(cri, lambda one: one[container].used_bytes.value >= 8 << 20)


@pytest.mark.needs("mounts")
def test_volumes_survive_kills_of_the_runtime(embedded: EmbeddedInstance, cri: Cri) -> None:
    sandbox, first = start(cri, "killed", container_config(["sleep", "1000"], image=SEEDED.name))
    config = container_config(["sleep", "1000"], image=SEEDED.name, name="second")
    config.linux.security_context.namespace_options.pid = pb.CONTAINER
    second = cri.create_container(sandbox, config, sandbox_config("killed")).result()
    shell(cri, first, "echo x > /data/new")
    embedded.kill()
    (directory_of(embedded, second) / "volumes/0.copying").mkdir(parents=True)  # as after a kill in its start
    embedded.start()
    cri.start_container(second).result()
    assert shell(cri, second, "ls -A /data; cat /var/lib/app/seed") == "seed"
    assert shell(cri, first, "cat /data/new") == "x\n"
    embedded.kill()
    (directory_of(embedded, second) / "record.json").unlink()  # as after a kill before its record
    embedded.start()
    assert not directory_of(embedded, second).exists()


def test_impossible_volume_of_an_image_fails_at_creation(embedded: EmbeddedInstance, cri: Cri) -> None:
    bad = Image("registry.test/declares:bad", files={"/file": b""}, volumes=["/file"])
    embedded.import_images([bad])
    with pytest.raises(CriError, match="the image has a file there"):
        start(cri, "refused", container_config(["true"], image=bad.name))
    cri.remove_image(bad.name).result()


@pytest.mark.needs("mounts")
def test_volume_at_etc_leaves_the_pods_own_files_there(embedded: EmbeddedInstance, cri: Cri) -> None:
    image = Image("registry.test/declares:etc", files={"/etc/app/conf": b"own"}, volumes=["/etc"])
    embedded.import_images([image])
    pod = sandbox_config("etc")
    pod.dns_config.servers.append("192.0.2.53")
    sandbox = cri.run_pod_sandbox(pod).result()
    config = container_config(["sleep", "1000"], image=image.name)
    container = cri.create_container(sandbox, config, pod).result()
    cri.start_container(container).result()
    assert shell(cri, container, "cat /etc/resolv.conf /etc/app/conf").split() == ["nameserver", "192.0.2.53", "own"]
    cri.remove_container(container).result()
    cri.remove_image(image.name).result()

"""Layers become directories as the image specification says, and nothing escapes from them."""

import io
import os
import stat
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from actors.runtime.filesystems.rootfs import copy_all
from actors.runtime.images.errors import BadImage, StoreFull
from actors.runtime.images.limits import Budget, Limits
from actors.runtime.images.local.stack import Hidden, Layer, Stack
from actors.runtime.images.local.unpack import is_whiteout, unpack
from tests.runtime.images.build import entry, hardlink, symlink, tar

Entries = Sequence[tuple[tarfile.TarInfo, bytes]]


def build(tmp_path: Path, *layers: Entries, limits: Limits | None = None) -> Stack:
    """Unpack layers on top of each other, the lowest first."""
    stack = Stack([])
    budget = Budget(limits or Limits(reserve_bytes=0), str(tmp_path))
    for number, entries in enumerate(layers):
        target = str(tmp_path / f"layer{number}")
        hidden = unpack(io.BytesIO(tar(*entries)), target, stack, budget)
        stack = Stack([Layer(target, hidden), *stack.layers])
    return stack


def read(stack: Stack, path: str) -> bytes | None:
    descriptor = stack.open(path)
    if descriptor is None:
        return None
    with open(descriptor, "rb") as file:
        return file.read()


@pytest.mark.needs("root")
def test_files_directories_and_links_have_their_attributes(tmp_path: Path) -> None:
    build(
        tmp_path,
        [
            entry("etc/", mode=0o750, uid=3, gid=4, mtime=1000),
            entry("etc/conf", b"value", mode=0o640, uid=1, gid=2, mtime=2000),
            symlink("etc/link", "/nowhere/at/all"),
            hardlink("etc/same", "etc/conf"),
            entry("pipe", b"", type=tarfile.FIFOTYPE),
            entry("bin/su", b"", mode=0o4755),
        ],
    )
    root = tmp_path / "layer0"
    status = (root / "etc/conf").stat()
    assert (status.st_mode & 0o7777, status.st_uid, status.st_gid, status.st_mtime) == (0o640, 1, 2, 2000)
    directory = (root / "etc").stat()
    assert (directory.st_mode & 0o7777, directory.st_uid, directory.st_mtime) == (0o750, 3, 1000)
    assert os.readlink(root / "etc/link") == "/nowhere/at/all"
    assert (root / "etc/same").stat().st_ino == status.st_ino
    assert stat.S_ISFIFO((root / "pipe").stat().st_mode)
    assert (root / "bin/su").stat().st_mode & 0o7777 == 0o4755


OUTSIDE: dict[str, Entries] = {
    "dots": [entry("../escaped", b"x")],
    "dots in the middle": [entry("a/../../escaped", b"x")],
    "a hard link with dots": [hardlink("inside", "../escaped")],
    "a hard link to a file of the machine": [hardlink("inside", "/etc/hostname")],
    "a hard link through a link": [symlink("out", "/etc"), hardlink("inside", "out/hostname")],
    "a hard link to a directory": [entry("d/"), hardlink("inside", "d")],
    "a hard link to nothing": [hardlink("inside", "missing")],
    "a whiteout of the parent": [entry("a/.wh...", b"")],
    "a whiteout of the directory": [entry("a/.wh..", b"")],
    "a whiteout of nothing": [entry("a/.wh.", b"")],
    "a file below a file": [entry("a", b"x"), entry("a/b", b"x")],
    "a circle of links": [symlink("a", "b"), symlink("b", "a"), entry("a/c", b"x")],
    "too deep": [entry("/".join("d" * 300), b"x")],
    "a name that is too long": [entry("n" * 300, b"x")],
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_hostile_layer_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "escaped").write_text("mine")
    with pytest.raises(BadImage):
        build(tmp_path / "store", OUTSIDE[name])
    assert (tmp_path / "escaped").read_text() == "mine"


def test_links_out_of_the_image_resolve_inside_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "store").mkdir()
    up = "../" * 20
    build(
        tmp_path / "store",
        [
            symlink("abs", str(outside)),
            entry("abs/one", b"1"),
            symlink("rel", f"{up}{str(outside).lstrip('/')}"),
            entry("rel/two", b"2"),
            symlink("file", f"{outside}/three"),
            entry("file", b"3"),
        ],
    )
    assert list(outside.iterdir()) == []
    root = tmp_path / "store" / "layer0"
    assert (root / str(outside).lstrip("/") / "one").read_bytes() == b"1"
    assert (root / str(outside).lstrip("/") / "two").read_bytes() == b"2"
    assert (root / "file").read_bytes() == b"3"


def test_directory_over_a_lower_link_does_not_follow_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (tmp_path / "store").mkdir()
    stack = build(tmp_path / "store", [symlink("a", str(outside))], [entry("a/"), entry("b", b"")])
    assert stack.find("a/secret") is None
    with pytest.raises(BadImage):
        build(tmp_path / "other", [symlink("a", str(outside))], [entry("a/"), hardlink("got", "a/secret")])


def test_lower_layers_link_resolves_as_in_the_image(tmp_path: Path) -> None:
    stack = build(tmp_path, [entry("usr/bin/", mode=0o711), symlink("bin", "usr/bin")], [entry("bin/tool", b"t")])
    assert read(stack, "/usr/bin/tool") == b"t"
    assert read(stack, "/bin/tool") == b"t"
    assert (tmp_path / "layer1/usr/bin").stat().st_mode & 0o777 == 0o711  # with its attributes


def test_devices_are_left_out(tmp_path: Path) -> None:
    devices = [
        entry("dev/mem", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=1),
        entry("dev/sda", b"", type=tarfile.BLKTYPE, devmajor=8, devminor=0),
        entry("hidden", b"", type=tarfile.CHRTYPE, devmajor=0, devminor=0),
    ]
    build(tmp_path, devices)
    assert list((tmp_path / "layer0").rglob("*")) in ([], [tmp_path / "layer0/dev"])


def test_setuid_bits_are_dropped_if_not_allowed(tmp_path: Path) -> None:
    build(tmp_path, [entry("su", b"", mode=0o6755)], limits=Limits(reserve_bytes=0, allow_setuid=False))
    assert (tmp_path / "layer0/su").stat().st_mode & 0o7777 == 0o755


def test_only_a_files_own_attributes_are_unpacked(tmp_path: Path) -> None:
    attributes = {
        "SCHILY.xattr.user.note": "kept",
        "SCHILY.xattr.trusted.overlay.opaque": "y",
        "SCHILY.xattr.user.overlay.opaque": "y",
        "SCHILY.xattr.security.selinux": "label",
    }
    build(tmp_path, [entry("f", b"", pax_headers=attributes), entry("d/", pax_headers=attributes)])
    assert set(os.listxattr(tmp_path / "layer0/d")) <= {"user.note"}
    assert set(os.listxattr(tmp_path / "layer0/f")) <= {"user.note"}


@pytest.mark.parametrize("hiding", ["d/.wh.file", "d/.wh..wh..opq", "d/sub/.wh..wh..opq"])
def test_copying_layers_removes_nothing_through_links(tmp_path: Path, hiding: str) -> None:
    outside = tmp_path / "outside"
    (outside / "sub").mkdir(parents=True)
    (outside / "file").touch()
    (outside / "sub/file").touch()
    (tmp_path / "layers").mkdir()
    above = [entry("d/"), entry("d/sub/"), entry(hiding, b"")]
    stack = build(tmp_path / "layers", [symlink("d", str(outside))], above)
    copy_all(stack, tmp_path / "copy", Budget(Limits(reserve_bytes=0), str(tmp_path)))
    assert sorted(path.name for path in outside.rglob("*")) == ["file", "file", "sub"]
    assert sorted(path.name for path in (tmp_path / "copy").rglob("*")) == ["d", "sub"]


BOMBS: dict[str, tuple[Entries, Limits]] = {
    "bytes": ([entry("big", b"\0" * 5000)], Limits(image_bytes=4999, reserve_bytes=0)),
    "entries": ([entry(f"f{number}", b"") for number in range(11)], Limits(image_entries=10, reserve_bytes=0)),
    "directories nobody names": ([entry("a/b/c/d/e/f", b"")], Limits(image_entries=4, reserve_bytes=0)),
    "headers": ([entry("f", b"", pax_headers={"comment": "x" * 5000})], Limits(header_bytes=4000, reserve_bytes=0)),
    "copies of a lower file": ([hardlink("copy", "base")], Limits(image_bytes=1500, reserve_bytes=0)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_stopped_at_the_limit(tmp_path: Path, name: str) -> None:
    entries, limits = BOMBS[name]
    with pytest.raises(BadImage):
        build(tmp_path, [entry("base", b"x" * 1000)], entries, limits=limits)


def test_full_disk_is_not_reported_as_a_bad_image(tmp_path: Path) -> None:
    limits = Limits(reserve_bytes=1 << 62)
    with pytest.raises(StoreFull):
        build(tmp_path, [entry("big", b"x")], limits=limits)


HOLE = 64 * 1024**2


def sparse(tmp_path: Path) -> Stack:
    """A layer with a file of one byte at the start, a hole, and one byte at the end."""
    stack = build(tmp_path, [entry("sparse", b"x")])
    with (tmp_path / "layer0/sparse").open("r+b") as file:
        file.seek(HOLE)
        file.write(b"y")
    return stack


def check_sparse(path: Path) -> None:
    status = path.stat()
    assert status.st_size == HOLE + 1
    assert status.st_blocks * 512 < HOLE / 10
    with path.open("rb") as file:
        assert file.read(2) == b"x\0"
        file.seek(HOLE)
        assert file.read() == b"y"


def test_hard_link_to_a_sparse_file_of_a_lower_layer_keeps_its_hole(tmp_path: Path) -> None:
    stack = sparse(tmp_path)
    unpack(
        io.BytesIO(tar(hardlink("link", "sparse"))),
        str(tmp_path / "layer1"),
        stack,
        Budget(Limits(reserve_bytes=0), str(tmp_path)),
    )
    check_sparse(tmp_path / "layer1/link")
    assert (tmp_path / "layer1/link").samefile(tmp_path / "layer1/sparse")


def test_copied_layers_keep_holes(tmp_path: Path) -> None:
    copy_all(sparse(tmp_path), tmp_path / "copy", Budget(Limits(reserve_bytes=0), str(tmp_path)))
    check_sparse(tmp_path / "copy/sparse")


def test_copied_layers_leave_the_reserve_free(tmp_path: Path) -> None:
    stack = build(tmp_path, [entry("big", b"x")])
    with pytest.raises(StoreFull):
        copy_all(stack, tmp_path / "copy", Budget(Limits(reserve_bytes=1 << 62), str(tmp_path)))
    assert not (tmp_path / "copy").exists()


def test_copy_of_a_lower_file_checks_the_disk_and_can_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 2 * Budget.CHECKED_EVERY
    stack = build(tmp_path, [entry("big", bytes(size))])
    looks: list[int] = []

    def look(path: str, limits: Limits) -> None:
        looks.append(sum(one.stat().st_blocks * 512 for one in (tmp_path / "layer1").rglob("*")))

    monkeypatch.setattr("actors.runtime.images.limits.check_room", look)
    link = tar(hardlink("link", "big"))
    unpack(io.BytesIO(link), str(tmp_path / "layer1"), stack, Budget(Limits(), str(tmp_path)))
    assert len(looks) >= 3
    assert max(looks) <= size

    def leave() -> None:
        if os.path.exists(tmp_path / "layer2/big") and os.path.getsize(tmp_path / "layer2/big"):
            raise BadImage("no pod waits")

    with pytest.raises(BadImage, match="no pod waits"):
        unpack(io.BytesIO(link), str(tmp_path / "layer2"), stack, Budget(Limits(), str(tmp_path), leave))
    assert os.path.getsize(tmp_path / "layer2/big") < size


def test_whiteouts_hide_files_of_lower_layers_only(tmp_path: Path) -> None:
    stack = build(
        tmp_path,
        [entry("gone", b"1"), entry("again", b"1"), entry("dir/in", b"1"), entry("kept", b"1")],
        [entry(".wh.gone", b""), entry("again", b"2"), entry(".wh.again", b""), entry(".wh.dir", b"")],
    )
    assert (read(stack, "gone"), read(stack, "again"), read(stack, "dir/in"), read(stack, "kept")) == (
        None,
        b"2",
        None,
        b"1",
    )
    assert is_whiteout(str(tmp_path / "layer1/gone"))
    assert stack.layers[0].hidden == Hidden({"gone", "dir"}, set())


@pytest.mark.needs("root")
def test_opaque_directory_hides_lower_content(tmp_path: Path) -> None:
    stack = build(
        tmp_path,
        [entry("d/old", b"1"), entry("d/sub/old", b"1")],
        [entry("d/new", b"2"), entry("d/.wh..wh..opq", b"")],
    )
    assert (read(stack, "d/old"), read(stack, "d/sub/old"), read(stack, "d/new")) == (None, None, b"2")
    assert os.getxattr(tmp_path / "layer1/d", "trusted.overlay.opaque") == b"y"


def test_directory_after_its_whiteout_hides_old_content(tmp_path: Path) -> None:
    stack = build(tmp_path, [entry("d/old", b"1")], [entry(".wh.d", b""), entry("d/"), entry("d/new", b"2")])
    assert (read(stack, "d/old"), read(stack, "d/new")) == (None, b"2")
    implied = build(tmp_path / "other", [entry("d/old", b"1")], [entry(".wh.d", b""), entry("d/new", b"2")])
    assert (read(implied, "d/old"), read(implied, "d/new")) == (None, b"2")


@pytest.mark.needs("root")
def test_hard_link_copies_a_lower_layers_file_up(tmp_path: Path) -> None:
    stack = build(tmp_path, [entry("d/f", b"1", mode=0o600, uid=7)], [hardlink("link", "d/f")])
    assert read(stack, "link") == b"1"
    upper = tmp_path / "layer1"
    assert (upper / "link").stat().st_ino == (upper / "d/f").stat().st_ino
    assert (upper / "link").stat().st_uid == 7


def test_later_entry_of_a_name_replaces_an_earlier_one(tmp_path: Path) -> None:
    stack = build(tmp_path, [entry("a/x", b"1"), entry("a", b"file"), symlink("b", "a"), entry("b", b"2")])
    assert (read(stack, "a"), read(stack, "b")) == (b"file", b"2")


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"no tar at all" * 100, tar(entry("f", b"x" * 2000))[:1500]])
def test_invalid_tar_is_refused_or_empty(tmp_path: Path, content: bytes) -> None:
    target = str(tmp_path / "layer")
    budget = Budget(Limits(reserve_bytes=0), str(tmp_path))
    if content.strip(b"\0") == b"":
        try:
            unpack(io.BytesIO(content), target, Stack([]), budget)
        except BadImage:
            return
        assert os.listdir(target) == []
    else:
        with pytest.raises(BadImage):
            unpack(io.BytesIO(content), target, Stack([]), budget)

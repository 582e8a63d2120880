"""Layers whose links lead out of them: the machine's files are neither written, read nor removed."""

from __future__ import annotations

import contextlib
import copy
import errno
import io
import os
import random
import stat
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from actors.runtime.filesystems.rootfs import copy_all
from actors.runtime.images.errors import BadImage
from actors.runtime.images.limits import Budget, Limits
from actors.runtime.images.local.beneath import Beneath
from actors.runtime.images.local.stack import Layer, Stack
from actors.runtime.images.local.unpack import unpack
from tests.runtime.images.build import entry, hardlink, symlink, tar

Entries = Sequence[tuple[tarfile.TarInfo, bytes]]
SECRET = b"secret of the machine"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory of the machine with what a layer may want to change."""
    directory = tmp_path / "outside"
    (directory / "d").mkdir(parents=True)
    for name in ("old", "d/old"):
        (directory / name).write_bytes(SECRET)
        (directory / name).chmod(0o600)
    return directory


def traces(outside: Path) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for path in sorted((outside, *outside.rglob("*"))):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found.append((path, status.st_mode, status.st_uid, status.st_nlink, status.st_mtime_ns, content))
        found.append(tuple(os.listxattr(path, follow_symlinks=False)))
    return found


def unpack_all(store: Path, layers: Sequence[Entries]) -> Stack:
    """Unpack layers on top of each other, the lowest first, as far as they are accepted. Raises BadImage."""
    store.mkdir(exist_ok=True)
    stack = Stack([])
    for number, entries in enumerate(layers):
        target = str(store / f"layer{number}")
        budget = Budget(Limits(reserve_bytes=0), str(store))
        hidden = unpack(io.BytesIO(tar(*entries)), target, stack, budget)
        stack = Stack([Layer(target, hidden), *stack.layers])
    return stack


def has_secret(store: Path) -> bool:
    files = (path for path in store.rglob("*") if path.is_file() and not path.is_symlink())
    return any(SECRET in path.read_bytes() for path in files)


OUT = "OUTSIDE"
"""Stands for the path of the directory `outside` in a link's target."""
ROUNDS = int(os.environ.get("NODEVISOR_LAYERS", "60"))
MISSING = [symlink("evil", OUT), symlink("L", "missing/../evil")]
DEEP = [entry("a/"), symlink("a/evil", f"../{'../' * 30}{OUT}"), symlink("L", "a/no/../../a/evil")]
CACHED = [entry("d/"), entry("d/new", b"x"), symlink("d", OUT)]

ATTACKS: dict[str, Sequence[Entries]] = {
    "a file": [[*MISSING, entry("L/old", b"x")]],
    "a file below": [[*MISSING, entry("L/d/old", b"x")]],
    "a directory": [[*MISSING, entry("L/d/", mode=0o777, mtime=1)]],
    "a link": [[*MISSING, symlink("L/new", "/etc")]],
    "a FIFO": [[*MISSING, entry("L/new", b"", type=tarfile.FIFOTYPE)]],
    "a whiteout": [[*MISSING, entry("L/.wh.new", b"")]],
    "an opaque directory": [[*MISSING, entry("L/.wh..wh..opq", b"")]],
    "a hard link out": [[*MISSING, hardlink("got", "L/old")]],
    "a hard link in": [[*MISSING, entry("f", b"x"), hardlink("L/old", "f")]],
    "the link's own name afterwards": [[*MISSING, entry("L/x", b""), entry("evil/old", b"x")]],
    "a longer link": [[*DEEP, entry("L/old", b"x")]],
    "links through links": [
        [symlink("one", "two"), symlink("two", "no/../three"), symlink("three", OUT), entry("one/old", b"")]
    ],
    "links of a lower layer": [MISSING, [entry("L/old", b"x"), entry("evil/old", b"x")]],
    "a lower link that a whiteout hides": [
        MISSING,
        [entry(".wh.evil", b""), entry("L/old", b"x"), entry("evil/old", b"x")],
    ],
    "a lower link below an opaque directory": [
        [entry("a/"), symlink("a/out", OUT)],
        [entry("a/.wh..wh..opq", b""), hardlink("got", "a/out/old"), entry("a/out/old", b"x")],
    ],
    "a directory that becomes a link": [[*CACHED, entry("d/old", b"x"), entry("d/.wh.old", b"")]],
    "a directory that becomes a link through a link": [
        [entry("d/d/"), symlink("s", "."), symlink("s/d", OUT), entry("d/d/old", b"x"), entry("d/old", b"x")]
    ],
    "a directory that a hard link to a link replaces": [
        [symlink("out", OUT), entry("d/"), entry("d/new", b"x"), hardlink("d", "out"), entry("d/old", b"x")]
    ],
    "a hard link to a link, given attributes": [
        [symlink("out", OUT), hardlink("same", "out"), entry("same", b"", mode=0o777, mtime=1)]
    ],
    "a link between two layers": [[entry("d/")], [symlink("d", OUT)], [entry("d/old", b"x"), entry("d/.wh.old", b"")]],
    "a lower link copied up by a hard link": [[symlink("out", OUT)], [hardlink("up", "out"), entry("up/old", b"x")]],
    "absolute and doubled slashes": [[symlink("//out//", OUT), entry("/out//./old", b"x"), entry("//out/d//", mode=0)]],
    "a name of an extended header": [
        [
            *MISSING,
            entry("f", b"x", pax_headers={"path": "L/./old"}),
            entry("g", b"x", pax_headers={"path": "/evil/old"}),
        ]
    ],
    "a target of an extended header": [
        [*MISSING, entry("h", b"", type=tarfile.LNKTYPE, linkname="x", pax_headers={"linkpath": "L/old"})]
    ],
    "a line feed": [
        [symlink("a\nb", OUT), symlink("L", "no\n/../a\nb"), entry("L/old", b"x"), entry("a\nb/old", b"x")]
    ],
    "the root as a link": [[symlink("./", OUT), symlink("/", OUT), entry("old", b"x"), entry(".wh.old", b"")]],
    "a device among the parents": [
        [
            entry("null", b"", type=tarfile.CHRTYPE, devmajor=0, devminor=0),
            symlink("null/x", OUT),
            entry("null/x/old", b""),
        ]
    ],
}


def aimed(layers: Sequence[Entries], outside: Path) -> Sequence[Entries]:
    """The layers with the real path in the links' targets."""
    return [[(aimed_member(info, outside), content) for info, content in entries] for entries in layers]


def aimed_member(info: tarfile.TarInfo, outside: Path) -> tarfile.TarInfo:
    made = copy.copy(info)
    before, found, after = info.linkname.partition(OUT)
    if found:
        made.linkname = f"{before}{str(outside).lstrip('/') if before else outside}{after}"
    return made


@pytest.mark.parametrize("name", ATTACKS)
def test_no_layer_reaches_the_machines_files(tmp_path: Path, outside: Path, name: str) -> None:
    before = traces(outside)
    store = tmp_path / "store"
    with contextlib.suppress(BadImage):
        stack = unpack_all(store, aimed(ATTACKS[name], outside))
        copy_all(stack, store / "copy", Budget(Limits(reserve_bytes=0), str(store)))
    assert traces(outside) == before
    assert not has_secret(store)


def test_dots_after_a_missing_directory_are_refused(tmp_path: Path, outside: Path) -> None:
    layers = [[*MISSING, entry("L/old", b"x")]]
    with pytest.raises(BadImage, match="No such file"):
        unpack_all(tmp_path / "store", aimed(layers, outside))
    stack = unpack_all(tmp_path / "legal", [[entry("real/"), symlink("L", "real/../made")], [entry("L/f", b"x")]])
    assert stack.find("made/f") is not None


def refuse_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without root's rights, which the kernel wants for overlayfs's mark of a deleted file."""

    def refuse(path: str, *_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)

    monkeypatch.setattr(os, "mknod", refuse)


def test_unmarked_whiteout_lets_no_link_out(tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_marks(monkeypatch)
    before = traces(outside)
    lower = [entry("d/f", b"below"), entry("e/f", b"below")]
    upper = [entry(".wh.d", b""), entry("d/x", b"x"), symlink("d/evil", OUT), entry(".wh.e", b""), entry("e/")]
    unpack_all(tmp_path / "one", aimed([lower, [*upper, entry("d/evil/old", b"x")]], outside))
    stack = unpack_all(tmp_path / "two", aimed([lower, upper], outside))
    assert traces(outside) == before
    assert stack.find("d/x") is not None
    assert (stack.find("d/f"), stack.find("e/f")) == (None, None)


def test_paths_beneath_a_directory_pass_no_link(tmp_path: Path, outside: Path) -> None:
    top = tmp_path / "top"
    (top / "real/inner").mkdir(parents=True)
    (top / "link").symlink_to(outside)
    (top / "real/inner/file").write_text("mine")
    steps: list[int] = []
    beneath = Beneath(str(top), steps.append)
    assert Path(beneath.path("real/inner/file")).read_text() == "mine"
    assert os.path.islink(beneath.path("link"))
    assert os.path.samefile(beneath.path(""), top)
    assert sum(steps) == 2
    for place, number in (("link/old", errno.ENOTDIR), ("none/f", errno.ENOENT), ("d/" * 2100, errno.ENAMETOOLONG)):
        with pytest.raises(OSError, match=os.strerror(number)):
            beneath.path(place)
    for number in range(100):
        (top / str(number)).mkdir()
    opened = len(os.listdir("/proc/self/fd"))
    for number in range(100):
        beneath.trim()
        beneath.path(f"{number}/file")
    assert len(os.listdir("/proc/self/fd")) < opened + 40
    (top / "real/inner").rename(top / "moved")
    (top / "real/inner").symlink_to(outside)
    beneath.forget()
    with pytest.raises(NotADirectoryError):
        beneath.path("real/inner/old")
    beneath.close()
    assert len(os.listdir("/proc/self/fd")) < opened


PARTS = ("a", "evil", "L")
TARGETS = (OUT, OUT, "a", "evil", "L", "..", "no/../L", "no/../evil", "no/../../a", "a/../evil", "/a", "a/evil")


def random_entries(chosen: random.Random) -> Entries:
    made = [symlink(chosen.choice(PARTS), chosen.choice((OUT, chosen.choice(TARGETS)))) for _ in range(3)]
    for _ in range(chosen.randint(1, 10)):
        name = "/".join(chosen.choices(PARTS, k=chosen.randint(1, 3)))
        above, _, last = name.rpartition("/")
        kind = chosen.randrange(8)
        if kind < 3:
            made.append(symlink(name, chosen.choice(TARGETS)))
        elif kind == 3:
            made.append(
                hardlink(
                    name, "/".join([*chosen.choices(PARTS, k=chosen.randint(1, 2)), "old"][: chosen.randint(1, 3)])
                )
            )
        elif kind == 4:
            made.append(entry(f"{above}/.wh.{chosen.choice((last, 'old', '.wh..opq'))}", b""))
        elif kind == 5:
            made.append(entry(f"{name}/", mode=0o777, mtime=1))
        else:
            made.append(entry(chosen.choice((name, f"{name}/old")), b"x", mode=0o777, mtime=1))
    return made


@pytest.mark.parametrize("marks", [True, False])
def test_random_layers_do_not_reach_the_machines_files(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, *, marks: bool
) -> None:
    if not marks:
        refuse_marks(monkeypatch)
    before = traces(outside)
    for seed in range(ROUNDS):
        chosen = random.Random(seed)
        store = tmp_path / f"store{seed}"
        with contextlib.suppress(BadImage):
            unpack_all(store, aimed([random_entries(chosen) for _ in range(3)], outside))
        assert not has_secret(store), seed
        assert traces(outside) == before, seed

"""Marks of our own pods: each kind of mark, invalid marks, and the record of removed pods."""

import json
import os
import resource
from pathlib import Path

import pytest

from actors._host.files import own_pods
from actors._host.files.own_pods import OwnPods, mark_pod

UID = "0d3a1b1c-6f7e-4d43-9f0e-0a1b2c3d4e5f"
STATE = {"data": json.dumps({"entries": {UID: {"containers": {"c": {}}}}}), "checksum": 1}


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


@pytest.mark.parametrize(
    "mark",
    [
        lambda root: mark_pod(str(root), UID),
        lambda root: OwnPods(str(root)).note_removed([UID]),
        lambda root: write(root / "nodevisor/api-pods" / f"{UID}.json", "{}"),
        lambda root: write(root / "allocated_pods_state", json.dumps(STATE)),
        lambda root: write(root / "actuated_pods_state", json.dumps(STATE)),
    ],
    ids=["directory", "record", "accepted", "allocated", "actuated"],
)
def test_each_mark_by_itself_makes_a_pod_ours(mark, tmp_path: Path) -> None:
    own = OwnPods(str(tmp_path))
    assert not own.has(UID)
    mark(tmp_path)
    assert own.has(UID)
    assert own.among([UID, "another", "0d3a1b1c"]) == {UID}


def test_only_a_real_directory_is_a_mark(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "pods/file").touch()
    assert OwnPods(str(tmp_path)).among(["link", "file"]) == set()


@pytest.mark.parametrize("uid", ["", ".", "..", "../pods", "a/b", "u\n", "u\0", "x" * 254])
@pytest.mark.parametrize("take_over", [False, True])
def test_invalid_uid_is_never_ours(uid: str, take_over: bool, tmp_path: Path) -> None:
    own = OwnPods(str(tmp_path), take_over=take_over)
    mark_pod(str(tmp_path), "a")
    own.note_removed([uid, "a"])
    assert own.among([uid]) == set()


def test_with_take_over_every_pod_is_ours(tmp_path: Path) -> None:
    assert OwnPods(str(tmp_path), take_over=True).has(UID)


@pytest.mark.parametrize("content", ["", "{", '{"data": 3}', '{"data": "{"}', '{"data": "[]"}', "[]"])
def test_damaged_state_names_no_pod(content: str, tmp_path: Path) -> None:
    write(tmp_path / "allocated_pods_state", content)
    assert not OwnPods(str(tmp_path)).has(UID)


def test_the_record_keeps_the_last_thousands_in_bounded_space(tmp_path: Path) -> None:
    own = OwnPods(str(tmp_path))
    uids = [f"{UID}-{number:06}" for number in range(20_000)]
    for start in range(0, len(uids), 100):
        own.note_removed(uids[start : start + 100])
    kept = own.among(uids)
    assert set(uids[-5000:]) <= kept
    size = sum(path.stat().st_size for path in (tmp_path / "nodevisor").iterdir())
    assert size < 2 * own_pods.RECORD_BYTES + 10_000


def test_full_disk_raises_and_half_a_line_spoils_no_other(tmp_path: Path) -> None:
    own = OwnPods(str(tmp_path))
    own.note_removed(["first"])
    child = os.fork()
    if not child:  # a limit on file sizes: the write is cut short
        resource.setrlimit(resource.RLIMIT_FSIZE, (15, 15))
        try:
            own.note_removed(["second-which-is-long"])
        except OSError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    own.note_removed(["third"])
    assert own.among(["first", "second-which-is-long", "third"]) == {"first", "third"}


def test_a_link_in_place_of_the_record_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text(f"{UID}\n")
    (tmp_path / "nodevisor").mkdir()
    (tmp_path / "nodevisor/removed-pods").symlink_to(target)
    own = OwnPods(str(tmp_path))
    assert not own.has(UID)
    with pytest.raises(OSError, match="removed-pods"):
        own.note_removed(["a"])
    assert target.read_text() == f"{UID}\n"

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._host.files import disk_use, trees
from actors._host.files.disk_use import DiskUse, Walk
from actors.stats.measure import pod_files
from actors.stats.policy import POD_FILES
from tests.deep_trees import nest


def far() -> float:
    return time.monotonic() + 60


def in_a_thread(logs: Path, root: Path = Path("/nonexistent")) -> dict[str, dict[str, DiskUse]]:
    """Walk in a new thread, as the actor does: the walk lowers its thread's priority for good."""
    found: list[dict[str, dict[str, DiskUse]]] = []
    thread = threading.Thread(target=lambda: found.append(pod_files(str(logs), str(root), far())))
    thread.start()
    thread.join()
    return found[0]


def test_hard_link_counts_once_and_symlink_is_not_followed(tmp_path: Path) -> None:
    big = tmp_path / "elsewhere"
    big.write_bytes(b"x" * 1_000_000)
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "a").write_bytes(b"x" * 100_000)
    os.link(inside / "a", inside / "b")
    (inside / "link").symlink_to(big)
    use = Walk(far()).measure(str(inside))
    assert 100_000 <= use.bytes < 200_000
    assert use.inodes == 3  # the directory, the file, the link


def test_missing_directory_takes_nothing(tmp_path: Path) -> None:
    assert Walk(far()).measure(str(tmp_path / "none")) == DiskUse()


def test_walk_ends_at_its_bounds(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "f").touch()
    walk = Walk(far(), max_entries=5)
    assert walk.measure(str(tmp_path)).inodes < 41
    assert walk.cut_short
    late = Walk(time.monotonic() - 1)
    assert late.measure(str(tmp_path)).inodes == 1
    assert Walk(far()).measure(str(tmp_path)).inodes == 41


def test_walk_of_large_directory_reports_progress_and_is_bounded(tmp_path: Path) -> None:
    for number in range(2500):
        (tmp_path / str(number)).touch()
    marks: list[None] = []
    assert Walk(far(), progress=lambda: marks.append(None)).measure(str(tmp_path)).inodes == 2501
    assert len(marks) >= 3
    walk = Walk(far(), max_entries=1000)
    assert walk.measure(str(tmp_path)).inodes <= 1001
    assert walk.cut_short


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A directory with two trees of 3,000 levels, which pytest cannot remove."""
    for name in ("a", "b"):
        (tmp_path / "deep" / name).mkdir(parents=True)
        nest(tmp_path / "deep" / name, 3000)
    yield tmp_path / "deep"
    trees.remove(tmp_path / "deep")


def test_directories_deeper_than_a_path_and_few_descriptors_count(deep: Path) -> None:
    highest = steps = 0

    def look() -> None:
        nonlocal highest, steps
        steps += 1
        if steps % 50 == 0:  # a worker of many tests has hundreds of descriptors, and the walk a deadline
            highest = max(highest, len(open_directories()))

    before = len(open_directories())
    use = Walk(far(), progress=look).measure(str(deep))
    assert use.inodes == 1 + 2 + 2 * 3001
    assert use.bytes >= 2 * 8192
    assert 0 < highest < before + 5
    assert len(open_directories()) == before


def test_walk_goes_on_after_its_directory_was_moved(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    for name in ("x/y/z", "x/other1/in", "x/other2/in", "near1/in", "near2/in"):
        (volume / name).mkdir(parents=True)
    moved = False
    (tmp_path / "elsewhere").mkdir()

    def move() -> None:
        nonlocal moved
        if not moved and any(os.readlink(f"/proc/self/fd/{fd}") == f"{volume}/x/y/z" for fd in open_directories()):
            (volume / "x/y/z").rename(tmp_path / "elsewhere/z")
            moved = True

    walk = Walk(far(), progress=move)
    assert walk.measure(str(volume)).inodes == 12
    assert moved


def open_directories() -> list[str]:
    """The descriptors of directories: those of other tests' sockets may close meanwhile."""
    return [fd for fd in os.listdir("/proc/self/fd") if os.path.isdir(f"/proc/self/fd/{fd}")]


def test_walk_remembers_a_bounded_number_of_directories_and_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_use, "_MOST_REMEMBERED", 10)
    for number in range(20):
        (tmp_path / f"{number}/in").mkdir(parents=True)
    remembered = 0
    note = disk_use._Position.note

    def noted(position: disk_use._Position, names: list[str], *, more: bool) -> None:
        nonlocal remembered
        note(position, names, more=more)
        remembered = max(remembered, position.remembered)

    monkeypatch.setattr(disk_use._Position, "note", noted)
    walk = Walk(far())
    assert walk.measure(str(tmp_path)).inodes == 41
    assert not walk.cut_short
    assert 2 < remembered <= 10
    links = tmp_path / "0/links"
    links.mkdir()
    for number in range(20):
        (links / f"{number}").touch()
        os.link(links / f"{number}", links / f"{number}.link")
    walk = Walk(far())
    assert 21 < walk.measure(str(links)).inodes < 41
    assert not walk.cut_short  # nothing is left out


def test_a_later_walk_goes_on_where_one_was_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_use, "MARK_ENTRIES", 10)
    monkeypatch.setattr(disk_use, "_MOST_REMEMBERED", 30)
    for number in range(60):
        (tmp_path / f"{number}/in").mkdir(parents=True)
        (tmp_path / f"{number}/in/file").write_bytes(b"x" * 5000)
    whole, use, seen, slices = Walk(far()).measure(str(tmp_path)), DiskUse(), 0, 0
    assert whole.inodes == 181
    while True:
        walk = Walk(far(), max_entries=seen * 3 + 45, to_skip=seen)
        use = use.plus(walk.measure(str(tmp_path)))
        slices += 1
        assert walk.seen > seen, "it makes progress"
        seen = walk.seen
        if not walk.late:
            break
    assert slices > 2
    assert use == whole


@pytest.mark.parametrize("places", [(0,) * 6, (48, 24, 12, 6, 3, 1), (59,) * 6])
def test_full_memory_makes_a_walk_little_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: tuple[int, ...]
) -> None:
    """A pod may put many directories beside each other on each level, and most of them at the bottom."""
    monkeypatch.setattr(disk_use, "_MOST_REMEMBERED", 100)
    here = tmp_path
    for place in places:
        for number in range(60):
            (here / str(number)).mkdir()
        with os.scandir(here) as entries:
            here = Path(list(entries)[place])
    for number in range(2000):
        (here / str(number)).mkdir()
    looks = 0

    def go_on() -> bool:
        nonlocal looks
        looks += 1
        return True

    walk = Walk(far())
    monkeypatch.setattr(walk, "_go_on", go_on)
    assert walk.measure(str(tmp_path)).inodes == 1 + 6 * 60 + 2000
    assert looks < 50_000


def test_walks_that_go_on_count_a_file_with_links_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_use, "MARK_ENTRIES", 10)
    (tmp_path / "file").write_bytes(b"x" * 900_000)
    for number in range(99):
        (tmp_path / str(number)).hardlink_to(tmp_path / "file")
    use, seen, late = DiskUse(), 0, True
    while late:
        walk = Walk(far(), max_entries=seen + 30, to_skip=seen, share_links=True)
        use, seen, late = use.plus(walk.measure(str(tmp_path))), walk.seen, walk.late
    assert 1 <= use.inodes <= 3, "the top, the file, and what is rounded"
    assert 900_000 <= use.bytes < 930_000


def test_nesting_deeper_than_memory_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_use, "_MOST_REMEMBERED", 10)
    (tmp_path / "/".join("d" * 20)).mkdir(parents=True)
    walk = Walk(far())
    assert 5 < walk.measure(str(tmp_path)).inodes < 20
    assert (walk.cut_short, walk.late) == (True, False)


def test_logs_by_pod_and_container(tmp_path: Path) -> None:
    log = tmp_path / "logs/default_web_u-1/main/0.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"x" * 10_000)
    found = in_a_thread(tmp_path / "logs")
    assert list(found) == ["u-1"]
    assert found["u-1"]["main"].bytes >= 10_000


def test_log_files_of_no_container_are_kept_apart(tmp_path: Path) -> None:
    (tmp_path / "ns_pod_u-1/main").mkdir(parents=True)
    (tmp_path / "ns_pod_u-1/main/0.log").write_bytes(b"x" * 10_000)
    for name in ("sandbox.log", "hook.log"):
        (tmp_path / "ns_pod_u-1" / name).write_bytes(b"x" * 50_000)
    (tmp_path / "ns_pod_u-1/link").symlink_to("/")
    found = in_a_thread(tmp_path)["u-1"]
    assert set(found) == {"main", POD_FILES}
    assert found["main"].bytes < 50_000
    assert 100_000 <= found[POD_FILES].bytes < 200_000
    assert found[POD_FILES].inodes == 3


def test_hosts_file_and_termination_messages_count(tmp_path: Path) -> None:
    log = tmp_path / "logs/ns_pod_u-1/sandbox.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"x" * 30_000)
    pods = tmp_path / "root/pods"
    (pods / "u-1/containers/main").mkdir(parents=True)
    (pods / "u-1/containers/main/1a2b").write_bytes(b"x" * 100_000)
    (pods / "u-1/etc-hosts").write_bytes(b"x" * 500_000)
    (pods / "u-1/volumes/kubernetes.io~empty-dir/v").mkdir(parents=True)
    (pods / "u-1/volumes/kubernetes.io~empty-dir/v/large").write_bytes(b"x" * 2_000_000)
    (pods / "u-2").mkdir()
    (pods / "u-2/etc-hosts").symlink_to(pods / "u-1/etc-hosts")
    (pods / "u-3").mkdir()
    found = in_a_thread(tmp_path / "logs", tmp_path / "root")
    assert set(found) == {"u-1", "u-2"}
    assert list(found["u-1"]) == [POD_FILES]
    assert 630_000 <= found["u-1"][POD_FILES].bytes < 700_000
    assert found["u-1"][POD_FILES].inodes == 5
    assert found["u-2"][POD_FILES].bytes < 10_000, "no link is followed"


def test_without_directories_no_logs_are_found(tmp_path: Path) -> None:
    assert in_a_thread(tmp_path / "none") == {}

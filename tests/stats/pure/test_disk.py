import os
import threading
import time
from pathlib import Path

from actors._host.files.disk_use import DiskUse, Walk
from actors.stats.measure import pod_logs


def far() -> float:
    return time.monotonic() + 60


def in_a_thread(logs: Path) -> dict[str, dict[str, DiskUse]]:
    """Walk in a new thread, as the actor does: the walk lowers its thread's priority for good."""
    found: list[dict[str, dict[str, DiskUse]]] = []
    thread = threading.Thread(target=lambda: found.append(pod_logs(str(logs), far())))
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


def test_logs_by_pod_and_container(tmp_path: Path) -> None:
    log = tmp_path / "logs/default_web_u-1/main/0.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"x" * 10_000)
    found = in_a_thread(tmp_path / "logs")
    assert list(found) == ["u-1"]
    assert found["u-1"]["main"].bytes >= 10_000


def test_without_directories_no_logs_are_found(tmp_path: Path) -> None:
    assert in_a_thread(tmp_path / "none") == {}

"""Changes of real files, seen by the kernel's inotify."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.config.reload.look import look, places, stat_files
from supervisor.config.reload.watch import DEBOUNCE_S, RESCAN_S, WRITER_S, Watch


def changed(watch: Watch, now: float) -> bool:
    """One look at the files, in this process."""
    return watch.take(look(watch.request(now)), now)


class Follower:
    """A watch and the loop around it."""

    def __init__(self, config: Path | None, config_dir: Path | None) -> None:
        self.given = str(config or ""), str(config_dir or "")
        self.watch = Watch(*self.given, stat_files(*self.given), time.monotonic())
        assert not self.settled(0.1)

    def settled(self, within_s: float = 20.0) -> bool:
        """True when a change is reported within that time."""
        end = time.monotonic() + within_s
        while (now := time.monotonic()) < end:
            if now >= self.watch.due():
                if changed(self.watch, now):
                    return True
                continue
            wait_s = min(end, self.watch.due()) - now
            if select.select([self.watch.fileno()], [], [], max(0.0, wait_s))[0]:
                self.watch.read(time.monotonic())
        return False


@pytest.fixture
def follow() -> Iterator[Callable[..., Follower]]:
    made: list[Follower] = []

    def make(config: Path | None = None, config_dir: Path | None = None) -> Follower:
        made.append(Follower(config, config_dir))
        return made[-1]

    yield make
    for follower in made:
        follower.watch.close()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "etc" / "kubelet.yaml"
    path.parent.mkdir()
    path.write_text("a")
    return path


def by_rename(path: Path) -> None:
    path.with_suffix(".swp").write_text("b")
    path.with_suffix(".swp").replace(path)


def in_place(path: Path) -> None:
    path.write_text("bb")


def with_backup(path: Path) -> None:
    """As vim does."""
    path.rename(path.with_suffix(".bak"))
    path.write_text("c")
    path.with_suffix(".bak").unlink()


@pytest.mark.parametrize("change", [by_rename, in_place, with_backup, Path.unlink])
def test_file_is_changed(change: Callable[[Path], None], config: Path, follow: Callable[..., Follower]) -> None:
    follower = follow(config)
    for _ in range(2):
        change(config)
        assert follower.settled()
        assert not follower.settled(0.15)
        config.write_text("again")
        assert follower.settled()


def configmap(directory: Path, generation: str, content: str) -> None:
    """Publish as the kubelet does for a ConfigMap volume."""
    (directory / f"..{generation}").mkdir(parents=True)
    (directory / f"..{generation}" / "kubelet.yaml").write_text(content)
    (directory / "..data_tmp").symlink_to(f"..{generation}")
    (directory / "..data_tmp").replace(directory / "..data")
    if not (directory / "kubelet.yaml").is_symlink():
        (directory / "kubelet.yaml").symlink_to("..data/kubelet.yaml")


def test_every_swap_of_a_configmap_volume_is_seen(tmp_path: Path, follow: Callable[..., Follower]) -> None:
    configmap(tmp_path / "v", "1", "a")
    follower = follow(tmp_path / "v" / "kubelet.yaml")
    for generation in "2345":
        configmap(tmp_path / "v", generation, "a" * int(generation))
        assert follower.settled()


def test_links_on_the_way_are_followed(tmp_path: Path, config: Path, follow: Callable[..., Follower]) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "kubelet.yaml").write_text("other")
    link = tmp_path / "link"
    link.symlink_to(config.parent)
    follower = follow(link / "kubelet.yaml")
    config.write_text("new")
    assert follower.settled()
    (tmp_path / "link2").symlink_to("other")
    (tmp_path / "link2").replace(link)
    assert follower.settled()
    (other / "kubelet.yaml").write_text("newer")
    assert follower.settled()


def test_drop_ins_come_change_and_go(tmp_path: Path, follow: Callable[..., Follower]) -> None:
    follower = follow(None, tmp_path)
    for act in (
        lambda: (tmp_path / "a.conf").write_text("a"),
        lambda: (tmp_path / "a.conf").write_text("b"),
        lambda: (tmp_path / "sub").mkdir() or (tmp_path / "sub" / "b.conf").write_text("a"),
        lambda: (tmp_path / "sub" / "b.conf").write_text("bb"),
        (tmp_path / "a.conf").unlink,
    ):
        act()
        assert follower.settled()


def test_other_files_in_the_directory_are_no_change(tmp_path: Path, follow: Callable[..., Follower]) -> None:
    follower = follow(None, tmp_path)
    (tmp_path / "notes.txt").write_text("a")
    (tmp_path / "..hidden").mkdir()
    (tmp_path / "..hidden" / "x.conf").write_text("a")
    assert not follower.settled(0.3)


def test_sibling_file_causes_no_check(config: Path, follow: Callable[..., Follower]) -> None:
    follower = follow(config)
    (config.parent / "other").write_text("x")
    time.sleep(0.01)
    now = time.monotonic()
    follower.watch.read(now)
    assert follower.watch.due() > now + RESCAN_S / 2


def test_writer_in_place_is_waited_for(config: Path, follow: Callable[..., Follower]) -> None:
    follower = follow(config)
    with config.open("w") as file:
        file.write("half")
        file.flush()
        assert not follower.settled(DEBOUNCE_S * 4)
        file.write(" and half")
    assert select.select([follower.watch.fileno()], [], [], 20)[0]
    now = time.monotonic()
    follower.watch.read(now)
    assert follower.watch.due() <= now + DEBOUNCE_S
    assert follower.settled()


def test_wait_for_an_open_writer_is_bounded(config: Path, follow: Callable[..., Follower]) -> None:
    follower = follow(config)
    with config.open("w") as file:
        file.write("half")
        file.flush()
        assert follower.settled(WRITER_S + 20)


def test_change_between_the_reading_and_the_watch_is_seen(config: Path) -> None:
    seen = stat_files(str(config), "")
    config.write_text("meanwhile")
    watch = Watch(str(config), "", seen, time.monotonic())
    assert watch.due() <= time.monotonic()
    assert changed(watch, time.monotonic())
    watch.close()


def test_replaced_directory_is_found_by_the_rescan(tmp_path: Path, config: Path) -> None:
    watch = Watch(str(config), "", stat_files(str(config), ""), time.monotonic())
    assert not changed(watch, time.monotonic())
    config.parent.rename(tmp_path / "gone")
    config.parent.mkdir()
    config.write_text("another")
    assert watch.due() <= time.monotonic() + RESCAN_S
    assert changed(watch, time.monotonic() + RESCAN_S)
    config.write_text("and once more")
    assert select.select([watch.fileno()], [], [], 20)[0]
    watch.close()


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert (str(tmp_path), "a") in places(str(tmp_path / "a"))
    assert stat_files(str(tmp_path / "a"), "") == ((str(tmp_path / "a"), 0, 0, 0),)


def test_rescan_works_without_inotify(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(**_: object) -> None:
        raise OSError(24, os.strerror(24))

    monkeypatch.setattr("supervisor.config.reload.watch.INotify", none)
    watch = Watch(str(config), "", stat_files(str(config), ""), time.monotonic())
    assert watch.fileno() == -1
    changed(watch, time.monotonic())
    config.write_text("new")
    assert changed(watch, watch.due())
    watch.close()

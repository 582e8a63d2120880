"""The configuration of a start and of a reload: names of files that are not UTF-8, and agents without root."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

import msgspec
import pytest

from supervisor.cli.agent import start
from supervisor.config.flags.parser import parse
from supervisor.config.reload import boot, store
from supervisor.config.reload.look import stat_files
from supervisor.config.reload.reader import Look
from supervisor.config.reload.resolver import Resolver
from supervisor.config.reload.watch import Watch
from supervisor.host import unprivileged

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
DROP_IN, OTHER, FOLDER = b"/10-\xff.conf", b"/readme-\xff", b"/folder-\xff"


@pytest.fixture
def drop_ins(tmp_path: Path) -> str:
    """A directory with a drop-in, another file and a folder, none of which has a name in UTF-8."""
    directory = str(tmp_path / "conf.d")
    os.mkdir(directory)
    for name in (DROP_IN, OTHER):
        Path(os.fsdecode(os.fsencode(directory) + name)).write_text(f"{HEAD}maxPods: 30\n")
    os.mkdir(os.fsencode(directory) + FOLDER)
    return directory


@pytest.fixture
def line(tmp_path: Path, drop_ins: str) -> tuple[str, ...]:
    return (f"--config-dir={drop_ins}", f"--root-dir={tmp_path}/root", f"--run-dir={tmp_path}/run")


def test_start_takes_a_file_name_that_is_not_utf8(line: tuple[str, ...], drop_ins: str) -> None:
    choice = boot.choose(parse(line), start.LOADER)
    assert choice.settings.max_pods == 30
    assert choice.effective.origins()["maxPods"] == f"{drop_ins}/10-\\xff.conf:3"
    assert choice.effective.notes == (f"{drop_ins}/readme-\\xff: ignored, a drop-in has to end in .conf",)
    msgspec.json.encode(choice.start)


def test_reload_takes_a_file_name_that_is_not_utf8(line: tuple[str, ...], drop_ins: str) -> None:
    def result() -> boot.Resolved:
        resolver = Resolver(line, time.monotonic())
        assert select.select([resolver.pidfd], [], [], 30)[0]
        os.waitpid(resolver.pid, 0)
        return resolver.result()

    found = result()
    assert found.candidate is not None, found.error
    assert found.candidate.settings.max_pods == 30
    Path(os.fsdecode(os.fsencode(drop_ins) + DROP_IN)).write_text(f"{HEAD}maxPods: many\n")
    assert f"{drop_ins}/10-\\xff.conf:3: maxPods" in result().error


def test_change_of_such_a_file_is_seen(drop_ins: str) -> None:
    watch = Watch("", drop_ins, stat_files("", drop_ins), time.monotonic())
    one = Look(watch.request(time.monotonic()), time.monotonic())
    assert select.select([one.pidfd], [], [], 30)[0]
    os.waitpid(one.pid, 0)
    found = one.found()
    assert found is not None
    assert not watch.take(found, time.monotonic())
    for path in (DROP_IN, FOLDER + DROP_IN):
        quiet = watch.due()
        Path(os.fsdecode(os.fsencode(drop_ins) + path)).write_text("changed")
        assert select.select([watch.fileno()], [], [], 20)[0]
        watch.read(time.monotonic())
        assert watch.due() < quiet
        watch.request(time.monotonic())
    watch.close()


def test_unreadable_file_is_named_in_utf8(line: tuple[str, ...], drop_ins: str) -> None:
    path = os.fsencode(drop_ins) + DROP_IN
    os.unlink(path)
    os.symlink("missing", path)
    with pytest.raises(start.CommandError) as error:
        boot.choose(parse(line), start.LOADER)
    assert f"{drop_ins}/10-\\xff.conf: is a symbolic link without a target" in error.value.format_message()


@pytest.mark.parametrize("root_dir", ["", "/var/lib/kubelet/", "chosen"])
def test_last_known_good_of_an_ordinary_user_is_found(
    root_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unprivileged, "is_ordinary_user", lambda: True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "kubelet.yaml"
    config.write_text(f"{HEAD}maxPods: 20\n")
    given = parse([f"--config={config}", "--run-dir=/run/x", *([f"--root-dir={root_dir}"] if root_dir else [])])
    first = boot.choose(given, start.LOADER)
    assert first.start is not None
    store.save(first.settings.root_dir, store.Saved(flags=first.start.flags, good=first.start.candidate))
    config.write_text(f"{HEAD}maxPods: many\n")
    assert boot.choose(given, start.LOADER).settings.max_pods == 20
    assert (tmp_path / ("chosen" if root_dir == "chosen" else "state/nodevisor/root")).is_dir()

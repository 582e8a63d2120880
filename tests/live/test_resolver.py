"""The process that reads the files, and the choice of configuration at a start."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

import pytest

from proto.common import interpreter
from supervisor.cli.agent import start
from supervisor.cli.errors import CommandError
from supervisor.config.flags.parser import parse
from supervisor.config.reload import boot, store
from supervisor.config.reload.candidate import Candidate, Resolved
from supervisor.config.reload.look import stat_files
from supervisor.config.reload.reader import Look
from supervisor.config.reload.resolver import Resolver
from supervisor.config.reload.start import Start
from supervisor.config.reload.watch import Watch
from tests.harness import wait_for

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "kubelet.yaml"
    path.write_text(f"{HEAD}maxPods: 20\n")
    return path


@pytest.fixture
def line(tmp_path: Path, config: Path) -> tuple[str, ...]:
    (tmp_path / "d").mkdir()
    return (f"--config={config}", f"--config-dir={tmp_path}/d", f"--root-dir={tmp_path}/root", "--run-dir=/run/x")


def run(line: tuple[str, ...]) -> Resolved:
    resolver = Resolver(line, time.monotonic())
    assert select.select([resolver.pidfd], [], [], 30)[0]
    os.waitpid(resolver.pid, 0)
    return resolver.result()


# The process


def test_files_become_a_candidate(line: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "d" / "10.conf").write_text(f"{HEAD}maxPods: 30\n")
    found = run(line).candidate
    assert found is not None
    assert found.settings.max_pods == 30
    assert found.at_start["maxOpenFiles"] == 1_000_000
    assert b"10.conf:3" in bytes(found.configuration)


def test_error_comes_back_with_file_and_line(line: tuple[str, ...], config: Path) -> None:
    config.write_text(f"{HEAD}maxPods: -5\n")
    found = run(line)
    assert found.candidate is None
    assert "kubelet.yaml:3: maxPods" in found.error
    assert found.digest


def test_no_descriptor_is_left(line: tuple[str, ...]) -> None:
    before = set(os.listdir("/proc/self/fd"))
    run(line)
    # Waited for: threads that other tests have left may open something for a moment.
    wait_for(lambda: set(os.listdir("/proc/self/fd")) <= before, what="no descriptor is left")


def test_reader_that_takes_too_long_is_killed(line: tuple[str, ...]) -> None:
    resolver = Resolver(line, time.monotonic())
    resolver.kill()
    assert select.select([resolver.pidfd], [], [], 10)[0]
    os.waitpid(resolver.pid, 0)
    assert "within 10 s" in resolver.result().error


def test_reader_that_fails_is_an_error(line: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    command = interpreter.command("json", "x")  # a module without such a main
    monkeypatch.setattr("proto.common.interpreter.command", lambda *_: command)
    assert "failed" in run(line).error


def test_look_sets_watches_in_the_parents_inotify(config: Path) -> None:
    config.parent.joinpath("d").mkdir()
    watch = Watch(str(config), f"{config.parent}/d", stat_files(str(config), f"{config.parent}/d"), time.monotonic())
    one = Look(watch.request(time.monotonic()), time.monotonic())
    assert select.select([one.pidfd], [], [], 30)[0]
    os.waitpid(one.pid, 0)
    found = one.found()
    assert found is not None
    assert not watch.take(found, time.monotonic())
    config.write_text("changed")
    assert select.select([watch.fileno()], [], [], 20)[0]
    watch.read(time.monotonic())
    assert watch.due() < time.monotonic() + 5
    watch.close()


def test_look_that_takes_too_long_has_no_result(config: Path) -> None:
    watch = Watch(str(config), "", (), time.monotonic())
    one = Look(watch.request(time.monotonic()), time.monotonic())
    one.kill()
    assert select.select([one.pidfd], [], [], 10)[0]
    os.waitpid(one.pid, 0)
    assert one.found() is None
    assert watch.request(time.monotonic())["first"]
    watch.close()


# The start


def choose(line: tuple[str, ...]) -> boot.Choice:
    return boot.choose(parse(line), start.LOADER)


def remembered(
    line: tuple[str, ...], tmp_path: Path, good: Candidate, trial: str = "", bad: tuple[str, ...] = ()
) -> None:
    found = choose(line).start
    assert found is not None
    store.save(f"{tmp_path}/root", store.Saved(flags=found.flags, good=good, trial=trial, bad=bad))


@pytest.fixture
def good(line: tuple[str, ...], config: Path) -> Candidate:
    """The last known good configuration, with 20 pods; the files have 30 by now."""
    found = started(line).candidate
    config.write_text(f"{HEAD}maxPods: 30\n")
    return found


def started(line: tuple[str, ...]) -> Start:
    found = choose(line).start
    assert found is not None
    return found


def test_start_without_files_watches_nothing() -> None:
    assert choose(("--max-pods=5",)).start is None


def test_valid_files_are_used(line: tuple[str, ...], tmp_path: Path, good: Candidate) -> None:
    remembered(line, tmp_path, good)
    found = started(line)
    assert (found.candidate.settings.max_pods, found.good, found.entries) == (30, good, ())


def test_last_known_good_keeps_its_secrets(line: tuple[str, ...], tmp_path: Path, config: Path) -> None:
    """They are masked only where it is shown."""
    config.write_text(f"{HEAD}staticPodURL: http://me:s3cret@h/\nstaticPodURLHeader: {{X: [s3cret]}}\n")
    remembered(line, tmp_path, started(line).candidate)
    config.write_text(f"{HEAD}maxPods: many\n")
    found = choose(line).effective.config
    assert (found.static_pod_url, found.static_pod_url_header) == ("http://me:s3cret@h/", {"X": ("s3cret",)})


def test_invalid_files_fall_back_to_last_known_good(
    line: tuple[str, ...], tmp_path: Path, config: Path, good: Candidate
) -> None:
    remembered(line, tmp_path, good)
    config.write_text(f"{HEAD}maxPods: many\n")
    choice = choose(line)
    assert choice.start is not None
    assert (choice.settings.max_pods, choice.effective.config.max_pods) == (20, 20)
    assert str(choice.effective.source("maxPods")).endswith("kubelet.yaml:3")
    assert "kubelet.yaml:3: maxPods" in choice.start.entries[0].message
    assert choice.start.candidate == choice.start.good
    assert choice.start.refused not in ("", good.digest)


@pytest.mark.parametrize("how", ["trial", "bad"])
def test_failed_files_fall_back_until_they_change(
    how: str, line: tuple[str, ...], tmp_path: Path, config: Path, good: Candidate
) -> None:
    failed = started(line).candidate.digest
    remembered(line, tmp_path, good, **{how: failed if how == "trial" else (failed,)})  # type: ignore[arg-type]
    found = started(line)
    assert found.candidate.settings.max_pods == 20
    assert failed in found.bad
    config.write_text(f"{HEAD}maxPods: 30 # another try\n")
    assert started(line).candidate.settings.max_pods == 30


def test_last_known_good_of_other_flags_does_not_count(
    line: tuple[str, ...], tmp_path: Path, config: Path, good: Candidate
) -> None:
    remembered(line, tmp_path, good)
    config.write_text(f"{HEAD}maxPods: many\n")
    with pytest.raises(CommandError):
        choose((*line, "--v=3"))


def test_digest_is_of_names_and_contents(line: tuple[str, ...], tmp_path: Path, config: Path) -> None:
    def digest() -> str:
        return boot.digest(str(config), f"{tmp_path}/d")

    digests = [digest()]
    for act in (
        lambda: (tmp_path / "d" / "a.conf").write_text("x"),
        lambda: (tmp_path / "d" / "a.conf").rename(tmp_path / "d" / "b.conf"),
        lambda: (tmp_path / "d" / "b.conf").write_text("y"),
        config.unlink,
        lambda: (tmp_path / "d").rename(tmp_path / "e"),
    ):
        act()
        digests.append(digest())
    assert len(set(digests)) == len(digests)
    (tmp_path / "e").rename(tmp_path / "d")
    (tmp_path / "d" / "no-drop-in").write_text("z")
    assert digest() == digests[-2]

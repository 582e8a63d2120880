"""Decisions of an upgrade: the order of restarts, trials, the way back, and which releases are refused."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proto.agent import registry
from proto.agent.settings import Settings
from supervisor.core.upgrade import facts, handover, trust
from supervisor.core.upgrade.controller import UpgradeController
from supervisor.core.upgrade.facts import Facts
from supervisor.core.upgrade.handover import Handover, Journey
from supervisor.core.upgrade.release import NoReleaseError, Release, at, own
from supervisor.core.upgrade.rolling import (
    ANSWER_WITHIN_S,
    READY_WITHIN_S,
    TRIAL_S,
    Finished,
    GoBack,
    Health,
    Ping,
    Restart,
    Rolling,
)
from supervisor.supervision import specs

GOOD = Health(1, 0, ready=True, ponged=0.0)


def passed(rolling: Rolling, name: str, now: float, incarnation: int = 2) -> float:
    """Let an actor pass its trial; the time after it."""
    healths = {name: Health(incarnation, 0, ready=True, ponged=None)}
    assert rolling.tick(now, healths) == Ping(name)
    assert rolling.tick(now + 0.1, healths) is None
    answered = {name: Health(incarnation, 0, ready=True, ponged=now + 0.2)}
    assert rolling.tick(now + 0.3, answered) is None
    return now + TRIAL_S + 0.1


def test_actors_restart_one_after_the_other() -> None:
    rolling = Rolling(["a", "b"], back=False)
    healths = {"a": GOOD, "b": GOOD}
    assert rolling.tick(0.0, healths) == Restart("a")
    assert rolling.tick(0.1, healths) is None
    now = passed(rolling, "a", 1.0)
    after = {"a": Health(2, 0, ready=True, ponged=now), "b": GOOD}
    assert rolling.tick(now, after) == Restart("b")
    assert rolling.moved == ["a", "b"]
    now = passed(rolling, "b", now)
    assert rolling.tick(now, {"a": GOOD, "b": Health(2, 0, ready=True, ponged=now)}) == Finished(())
    assert rolling.tick(now, {}) is None


@pytest.mark.parametrize(
    ("health", "after_s", "problem"),
    [
        (Health(3, 1, ready=False, ponged=None, last_death="exit 70"), 0.1, "exit 70"),
        (Health(2, 0, ready=False, ponged=None), READY_WITHIN_S + 1, "not ready within 60 s"),
        (Health(1, 0, ready=True, ponged=None), READY_WITHIN_S + 1, "not ready within 60 s"),
    ],
)
def test_an_actor_that_fails_brings_the_former_release_back(health: Health, after_s: float, problem: str) -> None:
    rolling = Rolling(["a", "b"], back=False)
    rolling.tick(0.0, {"a": GOOD, "b": GOOD})
    assert rolling.tick(after_s, {"a": health, "b": GOOD}) == GoBack("a", problem)
    assert rolling.moved == ["a"]
    assert rolling.tick(after_s + 1, {"a": health, "b": GOOD}) is None


def test_an_actor_without_an_answer_fails() -> None:
    rolling = Rolling(["a"], back=False)
    rolling.tick(0.0, {"a": GOOD})
    ready = {"a": Health(2, 0, ready=True, ponged=None)}
    assert rolling.tick(1.0, ready) == Ping("a")
    found = rolling.tick(1.0 + ANSWER_WITHIN_S, ready)
    assert isinstance(found, GoBack)
    assert "no answer" in found.problem


def test_on_the_way_back_a_failure_does_not_stop_the_others() -> None:
    rolling = Rolling(["a", "b"], back=True)
    rolling.tick(0.0, {"a": GOOD, "b": GOOD})
    dead = Health(3, 1, ready=False, ponged=None, last_death="killed")
    assert rolling.tick(1.0, {"a": dead, "b": GOOD}) == Restart("b")
    now = passed(rolling, "b", 2.0)
    assert rolling.tick(now, {"a": dead, "b": Health(2, 0, ready=True, ponged=now)}) == Finished(("a: killed",))


def test_stopped_actors_are_left_out() -> None:
    rolling = Rolling(["gone", "b"], back=False)
    assert rolling.tick(0.0, {"b": GOOD}) == Restart("b")


@pytest.mark.parametrize("back", [False, True])
def test_actor_stopped_during_its_trial_is_left_out(back: bool) -> None:
    rolling = Rolling(["a", "b"], back=back)
    assert rolling.tick(0.0, {"a": GOOD, "b": GOOD}) == Restart("a")
    assert rolling.tick(0.1, {"b": GOOD}) == Restart("b")
    assert rolling.moved == ["a", "b"]
    now = passed(rolling, "b", 1.0)
    assert rolling.tick(now, {"b": Health(2, 0, ready=True, ponged=now)}) == Finished(())


def test_last_actor_stopped_during_its_trial_ends_the_upgrade() -> None:
    rolling = Rolling(["a"], back=False)
    rolling.tick(0.0, {"a": GOOD})
    assert rolling.tick(0.1, {}) == Finished(())


def release(**changes: object) -> Facts:
    known = {"handover": 1, "protocol": 1, "actors": ("a",), "settings": ("x",), "checkpoints": {"m": 2}}
    return Facts(**{**known, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "refused", "remark"),
    [
        ({}, "", ""),
        ({"checkpoints": {"m": 3}}, "", ""),
        ({"handover": 2}, "format 2", ""),
        ({"protocol": 2}, "protocol 2", ""),
        ({"broken": {"a": "SyntaxError: x"}}, "actor a cannot be imported: SyntaxError: x", ""),
        ({"checkpoints": {"m": 1}}, "", "m would start without its checkpoints"),
        ({"actors": ()}, "", "does not have the actors a"),
        ({"settings": ("y",)}, "", "does not know the settings x"),
    ],
)
def test_unfit_releases_are_refused_and_losses_are_said(changes: dict[str, object], refused: str, remark: str) -> None:
    against, remarks = facts.problems(release(), release(**changes))
    assert [refused in one for one in against] == [True] * bool(refused)
    assert [remark in one for one in remarks] == [True] * bool(remark)


def test_environments_and_source_trees_are_releases(tmp_path: Path) -> None:
    with pytest.raises(NoReleaseError, match="neither"):
        at(str(tmp_path))
    tree = own().place
    assert at(tree).path[0] == tree
    assert at(tree).python == sys.executable
    (tmp_path / "bin").mkdir()
    os.symlink(sys.executable, tmp_path / "bin/python")
    found = at(str(tmp_path))
    assert (found.python, found.path) == (f"{tmp_path}/bin/python", ())


def test_settings_of_a_newer_release_are_left_out() -> None:
    settings = msgspec.to_builtins(Settings(node_name="n")) | {"of_tomorrow": 1}
    content = msgspec.json.encode({"settings": settings, "specs": [], "reload": {"good": {"settings": settings}}})
    plain = msgspec.json.decode(handover.tolerant(content))
    for place in (plain["settings"], plain["reload"]["good"]["settings"]):
        assert msgspec.convert(place, Settings).node_name == "n"


def test_actors_that_only_one_release_has_come_and_go() -> None:
    old = specs.builtin(5.0)
    without_oom = tuple(spec for spec in old if spec.name != "oom")
    foreign = specs.ChildSpec(name="of_yesterday")
    given = Handover(known=tuple(registry.NAMES - {"oom"} | {"of_yesterday"}))
    names = {spec.name for spec in handover.adapted((*without_oom, foreign), given, Settings())}
    assert names == {spec.name for spec in old}
    stopped_by_choice = Handover(known=tuple(registry.NAMES))
    assert "oom" not in {spec.name for spec in handover.adapted(without_oom, stopped_by_choice, Settings())}


def test_an_origin_that_cannot_start_is_not_said_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(handover.PROBLEM, "cannot execute /old/python")
    origin, to = Release(python="/old/python", place="/old"), Release(python="/new/python", place="/new")
    journey = Journey(origin=origin, to=to, back=True, problem="pleg: exit 70", moved=("pleg",))
    prepare: Any = None
    controller = UpgradeController(prepare, Handover(journey=journey))
    daemon: Any = Notes()
    controller.begin(daemon)
    state = controller.state()
    assert not state.under_way
    assert "pleg: exit 70; cannot go back to /old: cannot execute /old/python" in state.verdict
    assert "pleg run /new" in state.verdict
    assert "every actor" not in state.verdict


class Notes:
    """The only part of a daemon that a controller needs when its upgrade has ended."""

    def note(self, *_: str) -> None:
        pass


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory with a link to the release beside it."""
    (tmp_path / "way/release/bin").mkdir(parents=True)
    (tmp_path / "way/release/bin/python").touch(0o755)
    (tmp_path / "link").symlink_to("way/release")
    return tmp_path


def test_own_directories_are_not_exposed(tree: Path) -> None:
    for path in ("way/release", "link", "link/bin/python", "missing/release"):
        assert trust.exposed(str(tree / path)) == ""


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
@pytest.mark.parametrize("path", ["way", "way/release", "way/release/bin", "way/release/bin/python"])
def test_places_that_others_can_change_are_exposed(tree: Path, path: str, mode: int) -> None:
    (tree / path).chmod(mode)
    found = trust.exposed(str(tree / "link/bin/python"))
    root_s_sticky_parent = mode == 0o1777 and os.geteuid() == 0 and not path.endswith("python")
    assert found.startswith(f"{tree / path} has mode") is not root_s_sticky_parent
    if path == "way/release":
        assert "has mode" in trust.exposed(str(tree / "link"))


@pytest.mark.needs("root")  # to give a directory away
@pytest.mark.parametrize("path", ["link", "way", "way/release"])
def test_places_of_another_user_are_exposed(tree: Path, path: str) -> None:
    os.chown(tree / path, 65534, 65534, follow_symlinks=False)
    found = trust.objection(Release(python=str(tree / "link/bin/python")))
    assert found.startswith(f"{tree / path} belongs to uid 65534")


def test_ways_without_an_end_are_refused(tree: Path) -> None:
    (tree / "loop").symlink_to("loop")
    assert "more than 40 links" in trust.exposed(str(tree / "loop"))
    assert "not an absolute path" in trust.objection(Release(python=sys.executable, path=("relative/supervisor",)))
    assert "null" in trust.exposed("/a\0b")


def test_a_release_that_runs_already_is_no_question(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "way").chmod(0o777)
    release = Release(python=sys.executable, path=(str(tree / "way/release"),))
    assert trust.objection(release)
    monkeypatch.syspath_prepend(str(tree / "way/release"))
    assert trust.objection(release) == ""

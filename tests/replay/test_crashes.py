"""Crashes of real actors, replayed from their recordings: the same exception at the same place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replay.crashing import crash, replay
from tests.replay.seeds import SEEDS, Seed


@pytest.mark.parametrize("cause", SEEDS)
def test_crash_comes_again_in_a_replay(cause: str, tmp_path: Path) -> None:
    seed = SEEDS[cause]
    file = crash(seed, tmp_path)
    found = replay(seed, file)
    assert f"crashed as recorded: {seed.error}" in found.stdout, found.stdout + found.stderr
    assert found.returncode == 0


def test_without_the_bug_the_replay_says_that_it_differs(tmp_path: Path) -> None:
    seed = SEEDS["a message"]
    file = crash(seed, tmp_path)
    fixed = Seed(seed.actor, seed.method, "return original(self, *args)", seed.provoke, "")
    found = replay(fixed, file)
    assert "not as recorded: recorded KeyError: 'poison'" in found.stdout
    assert found.returncode == 1


def test_debugger_opens_at_the_exception(tmp_path: Path) -> None:
    seed = SEEDS["a message"]
    found = replay(seed, crash(seed, tmp_path), "--pdb", stdin="p args[0].pod_uid\nq\n")
    assert "'poison'" in found.stdout.partition("(Pdb)")[2]


def test_no_recording_of_the_actor_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.rec").write_bytes(b"nothing of ours")
    found = replay(SEEDS["a message"], tmp_path / "x.rec")
    assert found.returncode == 2
    assert "no recording of status" in found.stderr

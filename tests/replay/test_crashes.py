"""Crashes of real actors, replayed from their recordings: the same exception at the same place."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from proto.agent import recording
from tests.cri.fake import FakeRuntime
from tests.harness import ActorProcess
from tests.replay.seeds import SEEDS, Seed

REPLAY = "\nimport sys; from actors._replay.command import main; sys.exit(main(sys.argv[1:]))"


def crash(seed: Seed, tmp_path: Path) -> Path:
    """Let the actor crash; the copy of its recording."""
    runtime = FakeRuntime(tmp_path / "cri.sock")
    settings = {"container_runtime_endpoint": runtime.endpoint} | seed.settings
    try:
        process = ActorProcess(seed.actor, None, seed.peers, prelude=seed.prelude, **settings)
        seed.prepare(process)
        with process:
            seed.provoke(process, runtime)
            assert process.wait_exit(20) == 70
            kept = tmp_path / "recording.rec"
            shutil.copy(recording.path_of(process.dir, seed.actor, 1), kept)
            return kept
    finally:
        runtime.close()


def replay(seed: Seed, file: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", seed.prelude + REPLAY, seed.actor, str(file), *arguments]
    own = tempfile.mkdtemp(prefix="nv-", dir="/tmp")  # short, for a socket's path
    environment = os.environ | {"TMPDIR": own}
    done = subprocess.run(line, input=stdin, capture_output=True, text=True, timeout=60, check=False, env=environment)
    os.rmdir(own)  # the replay has removed its sandbox
    return done


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

"""Lets a seeded actor crash, and replays its recording."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from proto.agent import recording
from tests.cri.fake import FakeRuntime
from tests.harness import ActorProcess
from tests.replay.seeds import Seed

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
            assert process.wait_exit(60) == 70
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

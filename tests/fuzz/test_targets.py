"""Every target survives its seeds, earlier findings and a few hundred mutations. `make long` goes on from there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.mutation import mutations
from tests.fuzz.targets import TARGETS

COUNT = int(os.environ.get("NODEVISOR_MUTATIONS", "300"))
RUN_S = 300.0 + COUNT / 5
"""On a machine that is busy with other tests. The guard limits the time of each input."""
pytestmark = pytest.mark.timeout(RUN_S + 30)


@pytest.mark.parametrize("name", TARGETS)
def test_target_withstands_mutations(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--artifacts", tmp_path, "short", name, "--count", str(COUNT)]
    done = subprocess.run(command, capture_output=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, done.stderr[-5000:].decode(errors="replace")


@pytest.mark.parametrize("name", TARGETS)
def test_same_seed_gives_same_mutations(name: str) -> None:
    first, second = mutations(TARGETS[name], 7), mutations(TARGETS[name], 7)
    assert [next(first) for _ in range(20)] == [next(second) for _ in range(20)]

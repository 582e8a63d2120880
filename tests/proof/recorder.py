"""The flight recorder: its CPU time and disk space, and crashes of real actors that come again in a replay.

NODEVISOR_RECORDER_S is the time with the recorder, and without it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.recorder import compared
from tests.replay.crashing import crash, replay
from tests.replay.seeds import SEEDS

SECONDS = float(os.environ.get("NODEVISOR_RECORDER_S", "60"))
PODS = 10
MOST_RATIO = 1.03
MOST_BYTES = 8 * 1024 * 1024


def rows() -> list[dict[str, Any]]:
    """The cost, then a row for each crash."""
    cost, size = compared(PODS, SECONDS)
    measured = f"CPU time x {cost.ratio:.3f} beside {PODS} pods, {size / 2**20:.1f} MiB on disk"
    row = {"row": "cost", "measured": measured, "passed": cost.ratio <= MOST_RATIO and size <= MOST_BYTES}
    return [row, *(crash_row(cause) for cause in SEEDS)]


def crash_row(cause: str) -> dict[str, Any]:
    """Let an actor crash, and replay its recording."""
    seed = SEEDS[cause]
    with tempfile.TemporaryDirectory(prefix="nv-", dir="/tmp") as directory:
        found = replay(seed, crash(seed, Path(directory)))
    same = found.returncode == 0 and f"crashed as recorded: {seed.error}" in found.stdout
    return {"row": f"crash by {cause}", "measured": seed.error if same else found.stdout[-200:], "passed": same}

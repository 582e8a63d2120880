"""The flight recorder: its CPU time and disk space, and crashes of real actors that come again in a replay.

NODEVISOR_RECORDER_SPANS is the number of spans with the recorder, and as many without. A span takes a second or more.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from tests.bench import recorder
from tests.replay.crashing import crash, replay
from tests.replay.seeds import SEEDS

SPANS = int(os.environ.get("NODEVISOR_RECORDER_SPANS", "60"))
MOST_RATIO = 1.03
MOST_BYTES = 8 * 1024 * 1024


def rows() -> list[dict[str, Any]]:
    """The cost, then a row for each crash."""
    cost, size = recorder.measure(recorder.PODS, SPANS)
    return [cost_row(cost, size), *(crash_row(cause) for cause in SEEDS)]


def cost_row(cost: recorder.Cost, size: int) -> dict[str, Any]:
    """The recorder's own time is the figure; the comparison of spans must not contradict it."""
    measured = (
        f"CPU time x {cost.own_ratio:.3f} by its own time, x {cost.ratio:.3f} +- {cost.error:.3f} by spans with and "
        f"without; {size / 2**20:.1f} MiB on disk"
    )
    contradicted = cost.ratio - 2 * cost.error > MOST_RATIO
    return {
        "row": "cost",
        "measured": measured,
        "passed": cost.own_ratio <= MOST_RATIO and not contradicted and size <= MOST_BYTES,
    }


def crash_row(cause: str) -> dict[str, Any]:
    """Let an actor crash, and replay its recording."""
    seed = SEEDS[cause]
    with tempfile.TemporaryDirectory(prefix="nv-", dir="/tmp") as directory:
        found = replay(seed, crash(seed, Path(directory)))
    same = found.returncode == 0 and f"crashed as recorded: {seed.error}" in found.stdout
    return {"row": f"crash by {cause}", "measured": seed.error if same else found.stdout[-200:], "passed": same}

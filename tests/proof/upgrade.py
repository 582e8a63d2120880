"""Upgrade to another release and back, under traffic: no restart, no readiness change, no refused connection.

NODEVISOR_PROOF_PODS is the number of pods, each with a readiness and a liveness probe each second.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.agent.embedded import embedded_agent
from tests.agent.recovery.upgrading import another_release, serving, there_and_back

PODS = int(os.environ.get("NODEVISOR_PROOF_PODS", "30"))


def rows() -> list[dict[str, Any]]:
    """One row."""
    row: dict[str, Any] = {"row": "upgrade there and back", "pods": PODS}
    with tempfile.TemporaryDirectory(prefix="nv-", dir="/tmp") as place, embedded_agent(prepare=serving) as agent:
        began = time.monotonic()
        try:
            answered = there_and_back(agent, another_release(Path(place, "other")), PODS)
        except AssertionError as error:
            return [row | {"problem": str(error)[:500], "passed": False}]
        return [row | {"took_s": time.monotonic() - began, "requests answered": answered, "refused": 0, "passed": True}]

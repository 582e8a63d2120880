"""`python -m tests.agent.api.with_api start ...`: the agent as it is with an API server for a second source of pods.

Nothing connects to one: the test stands in for it (`api_source.py`).
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from supervisor.cli import group
from supervisor.cli.agent import start

SOURCES = ("file", "api")
SETTINGS = "NODEVISOR_TEST_SETTINGS"
"""Variable with further settings as JSON: periods that the kubelet has fixed, for example."""


def main() -> None:
    """Run the command line with that setting."""
    found = start.with_runtime

    def with_sources(settings: Any) -> Any:
        more = msgspec.json.decode(os.environ.get(SETTINGS, "{}"))
        return msgspec.structs.replace(found(settings), pod_sources=SOURCES, **more)

    start.with_runtime = with_sources
    group()


if __name__ == "__main__":
    main()

"""The run directory that is used when a command line names none."""

from __future__ import annotations

import os

from supervisor.host.unprivileged import default_run_dir

VARIABLE = "NODEVISOR_RUN_DIR"


def usual() -> str:
    """The default: /run/nodevisor for root, a directory of their own for other users."""
    return default_run_dir(os.environ, os.geteuid())


def chosen(given: str | None) -> str:
    """`given`, else that of the environment, else the default."""
    return given or os.environ.get(VARIABLE) or usual()

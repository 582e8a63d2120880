"""A child entry whose import takes long, as on a busy machine."""

from __future__ import annotations

import time

from tests.supervisor.children import main

__all__ = ["main"]

IMPORT_S = 5.0
"""Longer than the test's child has to end, and then to die of SIGKILL."""

time.sleep(IMPORT_S)

"""Keeps tests of one group on one worker of xdist.

xdist has `--dist loadgroup` with marks, too. It uses a suffix of the node ID, which pytest from 9.2 on ignores. Here a
worker writes the groups to a file, and the process that hands out the tests reads it when all workers have collected.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling


class GroupScheduling(LoadScopeScheduling):
    """Hands out groups and single tests in the order in which they were collected."""

    def __init__(self, config: Any, log: Any, groups: Path) -> None:
        super().__init__(config, log)
        self._path = groups
        self._groups: Mapping[str, str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        """The group of a test; its own ID when it has none."""
        if self._groups is None:
            self._groups = json.loads(self._path.read_text())
        return self._groups.get(nodeid, nodeid)


def write(path: Path, groups: Mapping[str, str]) -> None:
    """Test to its group. Every worker writes the same, so the last one may win."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(groups))
    beside.rename(path)

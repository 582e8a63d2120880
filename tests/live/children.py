"""Children that misbehave by their settings and record the settings of their start."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NoReturn

from proto.agent.settings import Settings
from tests.supervisor.children import Child, MailboxHangs

CRASHES, CRASHES_LATER, NEVER_READY, HANGS = 91, 92, 93, 94
"""Thresholds of image GC that pass every rule, and what they do to image_gc here."""


def main(name: str, incarnation: int, settings: Settings, supervisor_pidfd: int) -> NoReturn:
    """Be an actor that serves, unless it is image_gc and its threshold is one of the above."""
    threshold = settings.image_gc_high_threshold_percent if name == "image_gc" else 0
    kind = MailboxHangs if threshold == HANGS else Child
    child = kind(name, incarnation, settings, supervisor_pidfd)
    said = Path(settings.run_dir, f"{name}.started-with")
    said.with_suffix(".new").write_text(str(settings.image_gc_high_threshold_percent))
    said.with_suffix(".new").replace(said)
    if threshold == CRASHES:
        child.crash("ValueError: no such threshold")
    if threshold != NEVER_READY:
        child.report_ready()
    if threshold == CRASHES_LATER:
        time.sleep(0.3)
        child.crash("ValueError: no such threshold")
    child.serve()

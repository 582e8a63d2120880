"""Writes an actor's death record when it crashes. The supervisor shows it as the actor's last death."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import NoReturn

from proto.common.safe_text import indented

CRASH_EXIT_CODE = 70
"""EX_SOFTWARE of sysexits.h: an unexpected exception, with a death record."""


def record_path(run_dir: str, name: str, incarnation: int) -> Path:
    """The record of one incarnation: RUN_DIR/deaths/NAME-INCARNATION.txt."""
    return Path(run_dir, "deaths", f"{name}-{incarnation}.txt")


def crash(run_dir: str, name: str, incarnation: int, error: BaseException, head: str = "") -> NoReturn:
    """Save `head` and the traceback, and end the process at once, because its state cannot be trusted."""
    try:
        text = "".join(traceback.format_exception(error))
        os.write(2, indented(text).encode(errors="backslashreplace"))
        path = record_path(run_dir, name, incarnation)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_text(head + text, errors="backslashreplace")
    finally:
        os._exit(CRASH_EXIT_CODE)

"""Starts our helper (actors/runtime/helper): its command line, and its report of the machine's features."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import msgspec

import actors
from proto.common import untrusted
from proto.common.interpreter import UTF8

HELPER = "nodevisor-helper"
FEATURES_S = 30.0
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from actors.runtime.helper.main import main; "
    "sys.exit(main(sys.argv[2:]))"
)
log = logging.getLogger(__name__)


def helper_command(mode: str, interpreter: str = "", *, sealed: bool = False) -> list[str]:
    """The beginning of the helper's command line. It reads no environment variable and no package directory.

    `interpreter` is the path from interpreter.py, or empty for this process's. `sealed`: the helper copies it to memory
    first.
    """
    root = str(Path(actors.__file__).parents[1])
    options = [*(["--mode", mode] if mode else []), *(["--sealed"] if sealed else [])]
    return [interpreter or sys.executable, *UTF8, "-I", "-S", "-c", _BOOT, root, *options]


def can_seal() -> bool:
    """Return True when the helper can run from a copy of its interpreter in memory."""
    try:
        subprocess.run(
            [*helper_command("", sealed=True), "--version"], capture_output=True, timeout=FEATURES_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("cannot run a copy of the interpreter: %s; a container may write to it if its user may", error)
        return False
    return True


def features() -> dict[str, bool]:
    """The features of helper/kernel/features.py; empty when the helper fails."""
    try:
        ran = subprocess.run([*helper_command(""), "features"], capture_output=True, timeout=FEATURES_S, check=True)
        return untrusted.decode_json(ran.stdout, dict[str, bool])
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError, msgspec.ValidationError) as error:
        log.warning("cannot probe this machine's features: %s; none is used", error)
        return {}

"""Our own OCI runtime, from outside: its command line, and what it says of the machine."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import msgspec

import actors

HELPER = "nodevisor-helper"
FEATURES_S = 30.0
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from actors.runtime.helper.main import main; "
    "sys.exit(main(sys.argv[2:]))"
)
log = logging.getLogger(__name__)


def helper_command(mode: str) -> list[str]:
    """What a command line of it begins with. Nothing of the environment gets in, and no package is searched for."""
    root = str(Path(actors.__file__).parents[1])
    return [sys.executable, "-I", "-S", "-c", _BOOT, root, *(["--mode", mode] if mode else [])]


def features() -> dict[str, bool]:
    """Of actors/runtime/helper/features.py; nothing where it cannot be asked."""
    try:
        ran = subprocess.run([*helper_command(""), "features"], capture_output=True, timeout=FEATURES_S, check=True)
        return msgspec.json.decode(ran.stdout, type=dict[str, bool])
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError, msgspec.ValidationError) as error:
        log.warning("cannot find out what this machine offers: %s", error)
        return {}

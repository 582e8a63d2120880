"""RUN_DIR/settings.json: the settings an agent runs with, for the commands that read its files (`logs`).

Written once by `supervisor start` when it owns the run directory. Not a configuration file: nobody edits it.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from proto.settings import Settings

NAME = "settings.json"


def write(settings: Settings) -> None:
    """Replace the file atomically, mode 0600. Raises OSError."""
    path = Path(settings.run_dir) / NAME
    temporary = path.with_name(f".{NAME}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(settings)) + b"\n")
    temporary.replace(path)


def read(run_dir: str | Path) -> Settings:
    """The settings of the agent of a run directory; the defaults when it left none. Raises OSError."""
    try:
        return msgspec.json.decode((Path(run_dir) / NAME).read_bytes(), type=Settings)
    except (FileNotFoundError, msgspec.DecodeError):
        return Settings(run_dir=str(run_dir))

"""Writes and reads the agent's present settings in the run directory, for commands. Edits of them have no effect.

The file settings.json has Settings, for `supervisor logs`. The file configuration.json has the KubeletConfiguration in
force, the source of each value, the feature gates and each flag, for `config show`, /configz, /flagz and metrics. Its
secrets are masked there, and stand in a field of their own for /configz of the authenticated port.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from proto.agent.settings import Settings
from proto.common import untrusted
from supervisor.host.replaced_file import replace_file

SETTINGS, CONFIGURATION = "settings.json", "configuration.json"


def write(settings: Settings) -> None:
    """Replace settings.json. Raises OSError."""
    replace_file(Path(settings.run_dir) / SETTINGS, msgspec.json.format(msgspec.json.encode(settings)) + b"\n")


def write_configuration(run_dir: str, encoded: bytes) -> None:
    """Replace configuration.json, the output of supervisor.cli.agent.start.encoded. Raises OSError."""
    replace_file(Path(run_dir) / CONFIGURATION, msgspec.json.format(encoded) + b"\n")


def read(run_dir: str | Path) -> Settings:
    """Read a run directory's settings; the defaults when there are none. Raises OSError."""
    try:
        return untrusted.decode_json((Path(run_dir) / SETTINGS).read_bytes(), Settings)
    except (FileNotFoundError, msgspec.DecodeError):
        return Settings(run_dir=str(run_dir))


def read_configuration(run_dir: str | Path) -> dict[str, Any]:
    """Read a run directory's `configuration` and `sources`. Raises OSError."""
    found: dict[str, Any] = untrusted.decode_json((Path(run_dir) / CONFIGURATION).read_bytes())
    return found


class _InForce(msgspec.Struct):
    configuration: msgspec.Raw


def read_in_force(run_dir: str | Path) -> str:
    """Read `configuration` alone, as compact JSON; empty when it cannot be read."""
    try:
        encoded = untrusted.decode_json((Path(run_dir) / CONFIGURATION).read_bytes(), _InForce).configuration
    except (OSError, msgspec.DecodeError):
        return ""
    return msgspec.json.format(bytes(encoded), indent=-1).decode()

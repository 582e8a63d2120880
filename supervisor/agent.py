"""The agent's parent process from its first line: what `supervisor start` turns into by exec, with the same pid.

By exec, because the process stays for as long as the agent runs, and the command line and YAML would be 2 MB of it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NoReturn

import msgspec

from proto.message import Message
from proto.settings import Settings
from supervisor import daemon, interpreter, settings_file
from supervisor.forkclient import ENVIRONMENT
from supervisor.specs import ChildSpec


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that the agent is started with."""

    settings: Settings
    specs: tuple[ChildSpec, ...]


def become(plan: Plan) -> NoReturn:
    """Replace this process by the agent. Raises OSError."""
    # Not in the arguments: they are world-readable, and later settings may not be for everyone's eyes.
    descriptor = os.memfd_create("plan", 0)  # without CLOEXEC: it is the point
    os.write(descriptor, msgspec.json.encode(plan))
    os.lseek(descriptor, 0, os.SEEK_SET)
    line = interpreter.command("supervisor.agent", str(descriptor))
    os.execve(line[0], line, {**os.environ, **ENVIRONMENT})


def main(arguments: Sequence[str]) -> int:
    """Run the plan behind the descriptor in `arguments`; returns the exit code."""
    with open(int(arguments[0]), "rb") as file:
        plan = msgspec.json.decode(file.read(), type=Plan)
    return daemon.run(plan.settings, plan.specs, on_event=_SettingsFile(plan.settings))


class _SettingsFile:
    """Writes RUN_DIR/settings.json at the first event: from then on the run directory is known to be ours."""

    def __init__(self, settings: Settings) -> None:
        self._settings: Settings | None = settings

    def __call__(self, _: Message) -> None:
        if self._settings is not None:
            settings, self._settings = self._settings, None
            settings_file.write(settings)

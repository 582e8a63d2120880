"""The process that reads changed configuration files: a command line in, a configuration or an error out.

It is a process of its own, because the agent's parent loads neither YAML nor the configuration's types. A file that
hangs or breaks the reader does not harm the parent. Request and result are JSON in memory files, not arguments: some
flags are secret. `supervisor.config.reload.resolver` starts it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import msgspec

from proto.common import untrusted
from supervisor.cli.agent import start
from supervisor.cli.errors import CommandError
from supervisor.config.flags.parser import FlagError, parse
from supervisor.config.reload import boot
from supervisor.config.reload.candidate import Resolved

ALARM_S = 20
"""Ends this process when its parent has died. The parent waits for less."""


def main(arguments: Sequence[str]) -> int:
    """Read the request from one descriptor, write the result to another; the exit code is 0."""
    signal.alarm(ALARM_S)
    request, result = map(int, arguments)
    with open(request, "rb") as file:
        line: list[str] = untrusted.decode_json(file.read(), list[str])
    content = msgspec.json.encode(resolve(line))
    with os.fdopen(result, "wb") as file:
        file.write(content)
    return 0


def resolve(line: Sequence[str]) -> Resolved:
    """Read the files of a command line."""
    try:
        given = parse(line)
    except FlagError as error:
        return Resolved(digest="", error=str(error))
    try:
        return boot.read(given, start.LOADER)[1]
    except CommandError as error:
        found = boot.digest(given.values.get("config", ""), given.values.get("config-dir", ""))
        return Resolved(digest=found, error=error.format_message())

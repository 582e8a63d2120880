"""Finds the container runtime, or asks the configured one, by a process that runs `actors._cri.discover`.

It is a process of its own because it uses gRPC. Neither the supervisor nor the process that forks may load that.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from proto.common import interpreter

TIMEOUT_S = 30.0
"""For all endpoints together; each has its own, shorter deadline."""


class NoRuntime(Exception):
    """No container runtime answers. The message lists the attempts and how to install one."""


class SearchFailed(NoRuntime):
    """The search itself failed."""


class Runtime(NamedTuple):
    """A container runtime."""

    endpoint: str
    name: str
    version: str
    api_version: str
    cgroup_driver: str | None = ""
    """cgroupfs or systemd; empty: the runtime has no name for it, as containerd 1.x; None: it has not answered."""


def find(*endpoints: str, command: Sequence[str] = ()) -> Runtime:
    """Find the first of the endpoints, or of the usual ones, that answers. `command` replaces the search.

    Raises NoRuntime.
    """
    command = command or interpreter.command("actors._cri.discover", *endpoints)
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SearchFailed(f"cannot look for a container runtime: {error}") from error
    try:
        answer = json.loads(ran.stdout)
        if ran.returncode == 0:
            keys = ("endpoint", "runtime_name", "runtime_version", "api_version", "cgroup_driver")
            return Runtime(*(answer[key] for key in keys))
        raise NoRuntime(str(answer["error"]))
    except (ValueError, KeyError, TypeError):
        said = ran.stderr.strip() or ran.stdout.strip() or f"exit code {ran.returncode}"
        raise SearchFailed(f"cannot look for a container runtime: {said}") from None

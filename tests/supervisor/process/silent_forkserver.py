"""A child entry whose import ends the forkserver once, between a fork and its report."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

from tests.supervisor.children import main

__all__ = ["main"]

DIED = "TEST_FORKSERVER_DIED"
"""Environment: a file that exists once it has."""
_send_fds = socket.send_fds


def _die_once(*args: Any, **kwargs: Any) -> int:
    flag = Path(os.environ[DIED])
    if flag.exists():
        return _send_fds(*args, **kwargs)
    flag.touch()
    time.sleep(0.1)  # long enough for the child to be in service
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


socket.send_fds = _die_once

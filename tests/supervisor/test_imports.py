"""Modules that the parent and the forkserver load, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

_PARENT = """
import sys
import supervisor.core.agent, supervisor.config.reload.controller
names = ("actors", "click", "google", "grpc", "pykka", "rich", "urllib3", "yaml")
print(*[name for name in names if name in sys.modules])
"""
_FORKSERVER = """
import sys
from supervisor.process import forkserver
print(forkserver.preload((*forkserver.COMMON, *forkserver.IN_A_CLUSTER, *forkserver.WITH_TRACING)))
import asyncio, grpc, ssl
assert all(sys.modules[name].__spec__ is not None for name in ("asyncio", "grpc", "ssl"))
assert None not in sys.modules.values()
assert grpc.aio.insecure_channel
"""


def _python(script: str) -> str:
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_parent_loads_no_grpc_pykka_yaml_or_actor() -> None:
    assert _python(_PARENT) == ""


def test_forkserver_imports_everything_and_no_stand_ins() -> None:
    assert _python(_FORKSERVER) == "{}"

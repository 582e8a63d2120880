"""A child entry whose forkserver forks each child twice, and reports both."""

from __future__ import annotations

from supervisor.process.forkserver import ForkServer
from tests.supervisor.children import main

__all__ = ["main"]

_fork = ForkServer._fork


def _fork_twice(server: ForkServer, name: str, incarnation: int) -> None:
    _fork(server, name, incarnation)
    _fork(server, name, incarnation)


ForkServer._fork = _fork_twice  # type: ignore[method-assign]

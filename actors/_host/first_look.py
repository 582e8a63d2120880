"""Keeps an agent's first reading of the machine in RUN_DIR/machine, for all its actors and their restarts.

The kubelet reads the machine once, at its start, so its Node, its admission and its managers always agree. Here each of
them is a process of its own. Restarted after memory or CPUs were added, it must not see them before the others do. A
start of the agent looks anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from actors._host.files import checkpoint
from actors._host.machine import Machine, read_machine
from actors._host.system import agent_id

T = TypeVar("T")
log = logging.getLogger(__name__)

DIRECTORY = "machine"
VERSION = 1


class _Look(msgspec.Struct):
    """The file's content. `agent`: the run of the agent, see `agent_id`."""

    agent: str
    found: Any


def machine_of_agent(root_dir: str, run_dir: str, supervisor_pidfd: int) -> Machine:
    """Return the capacity as of the agent's start. Blocks on the disk of `root_dir`. Raises OSError."""
    return first_look("capacity", lambda: read_machine(root_dir), Machine, run_dir, supervisor_pidfd)


def first_look(name: str, read: Callable[[], T], shape: Any, run_dir: str, supervisor_pidfd: int) -> T:
    """Return what `read` returned first in this run of the agent, in any of its actors, under this `name`.

    `shape` is the type of that, for msgspec. Blocks as `read` does, and raises what it raises.
    """
    agent = agent_id(supervisor_pidfd)
    if not agent:  # a replay
        return read()
    path = f"{run_dir}/{DIRECTORY}/{name}.json"
    known: T | None = _kept(path, agent, shape)
    if known is not None:
        return known
    found = read()  # without the lock: a disk that hangs would stop the other actors, too
    try:
        with _lock(f"{path}.lock"):
            known = _kept(path, agent, shape)  # several actors start at once, and the first one counts
            if known is not None:
                return known
            checkpoint.save(path, VERSION, _Look(agent, found), sync=False)
    except OSError as error:
        log.warning("cannot write %s: %s; a restarted actor may see another machine than the others", path, error)
    return found


def _kept(path: str, agent: str, shape: Any) -> Any:
    """None without a look of this run. A file that cannot be used is replaced by a new look."""
    with contextlib.suppress(OSError, checkpoint.Unusable, msgspec.ValidationError):
        # Not recorded: a replay looks at its own machine.
        look = msgspec.convert(checkpoint.read(path, VERSION, secret=True), _Look | None)
        if look is not None and look.agent == agent:
            return msgspec.convert(look.found, shape, str_keys=True)
    return None


@contextlib.contextmanager
def _lock(path: str) -> Iterator[None]:
    """Hold the lock for a few operations in RUN_DIR, which is in memory."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)

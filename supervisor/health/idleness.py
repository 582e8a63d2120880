"""Tells whether an actor has nothing to do, without waking it: from its wait records and the state of two threads.

A handler that hangs shows as a message in it, or as messages that wait. A callback of the loop that hangs does not wait
in epoll(7), and runs in the main thread or the mailbox thread. When something cannot be read, the actor is not idle.
"""

from __future__ import annotations

from pathlib import Path

from proto.agent import registry
from proto.waits import table

_EPOLL = ("epoll", "ep_poll")
"""In the name of the kernel's function in which a thread waits: do_epoll_wait, do_epoll_pwait; ep_poll before 5.11."""


def is_idle(run_dir: Path, pid: int, name: str) -> bool:
    """True when no message waits or is handled, and the main thread and the mailbox thread wait for input.

    An actor with a loop of its own is never idle: only its Pong tells that the loop runs.
    """
    if name in registry.WITH_LOOP:
        return False
    seen = table.read_mailbox(run_dir / "waits" / name)
    if seen is None or seen.pid != pid or seen.waiting or seen.handles:
        return False
    return all(_waits_for_input(pid, thread) for thread in (pid, seen.thread))


def _waits_for_input(pid: int, thread: int) -> bool:
    try:
        wchan = Path(f"/proc/{pid}/task/{thread}/wchan").read_text()
    except OSError:
        return False
    return any(part in wchan for part in _EPOLL)

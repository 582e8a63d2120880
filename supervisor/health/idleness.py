"""Tells whether an actor has nothing to do, without waking it: from its wait records and its I/O thread's state.

A mailbox thread that hangs shows as a message in its handler, or as messages that wait. An I/O thread that hangs does
not wait in epoll(7). When anything cannot be read, the actor counts as not idle.
"""

from __future__ import annotations

from pathlib import Path

from proto.agent import registry
from proto.waits import table

_EPOLL = ("epoll", "ep_poll")
"""In the name of the kernel's function in which a thread waits: do_epoll_wait, do_epoll_pwait; ep_poll before 5.11."""


def is_idle(run_dir: Path, pid: int, name: str) -> bool:
    """True when no message waits or is handled, and the I/O thread, which is the main thread, waits for input.

    An actor with a loop of its own is never idle: only its Pong tells that the loop runs.
    """
    if name in registry.WITH_LOOP:
        return False
    seen = table.read_mailbox(run_dir / "waits" / name)
    if seen is None or seen.pid != pid or seen.waiting or seen.handles:
        return False
    try:
        wchan = Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return False
    return any(part in wchan for part in _EPOLL)

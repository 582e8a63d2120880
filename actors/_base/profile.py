"""Samples the stacks of this process's threads, without help from them: once, or repeatedly as a profile."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import Counter
from types import FrameType

from actors._base.messaging.futures import Future

PERIOD_S = 0.01


def sample(seconds: float) -> Future[dict[str, int]]:
    """Sample in a thread of its own for `seconds`. The result counts each stack; see proto.agent.actor.Samples."""
    future: Future[dict[str, int]] = Future()
    threading.Thread(target=_watch, args=(seconds, future), name="profile", daemon=True).start()
    return future


def _watch(seconds: float, future: Future[dict[str, int]]) -> None:
    seen: Counter[str] = Counter()
    own = threading.get_ident()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            if ident != own:
                seen[";".join([names.get(ident, str(ident)), *_frames(frame)])] += 1
        time.sleep(PERIOD_S)
    future.set(dict(seen.most_common()))


def _frames(frame: FrameType | None) -> list[str]:
    found = []
    while frame is not None:
        code = frame.f_code
        file = "/".join(code.co_filename.rsplit("/", 2)[-2:])
        found.append(f"{code.co_qualname} ({file}:{frame.f_lineno})")
        frame = frame.f_back
    return found[::-1]


def stacks() -> str:
    """The present stack of every thread, as text."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}\n")
    return "".join(parts)

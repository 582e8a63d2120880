"""The steps of a replay, and the matching of recorded answers to calls. Pure."""

from __future__ import annotations

import functools
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from proto.agent import registry
from proto.agent.recording import Frame, Kind, Recording

Key = tuple[str, ...]
"""The kind of a call: `ask` with target and request type, `cri` with the rpc, or `blocking` with the function."""
Complete = Callable[[Any], None]


class Crash(NamedTuple):
    """The exception that ended a process: class, text, and the file and function that raised it."""

    kind: str
    text: str
    file: str
    function: str

    def __str__(self) -> str:
        name = self.kind.removeprefix("builtins.")
        return f"{name}: {self.text} in {self.function} ({self.file})" if self.function else f"{name}: {self.text}"


class ScriptError(Exception):
    """The file has no recording that can be replayed; the text gives the reason."""


def choose(found: Iterable[Recording], actor: str, incarnation: int | None) -> Recording:
    """The recording to replay: of that incarnation, else the last that ended with a crash, else the last."""
    if actor not in registry.NAMES:  # it names a module
        raise ScriptError(f"there is no actor {actor}")
    own = [one for one in found if one.actor == actor and incarnation in (None, one.incarnation)]
    whole = [one for one in own if any(frame.kind is Kind.START for frame in one.frames)]
    if not whole:
        raise ScriptError(f"no recording of {actor} with its start" if own else f"no recording of {actor}")
    return ([one for one in whole if crash_of(one) is not None] or whole)[-1]


def crash_of(one: Recording) -> Crash | None:
    """The recorded crash."""
    for frame in one.frames:
        if frame.kind is Kind.CRASH and len(frame.payload) == len(Crash._fields):
            return Crash(*map(str, frame.payload))
    return None


def steps(one: Recording) -> list[Frame]:
    """The frames after the start, oldest first."""
    return [frame for frame in one.frames if frame.kind not in (Kind.START, Kind.CHECKPOINT)]


class Calls:
    """Calls under way and recorded ends, matched by kind and by the digest of the request.

    Two calls of one kind may end in any order, so an end with the same digest goes before the oldest call.
    """

    def __init__(self) -> None:
        self._open: dict[Key, list[tuple[int, Complete]]] = {}
        self._early: dict[Key, list[tuple[int, Any]]] = {}
        self.due: deque[Callable[[], None]] = deque()
        """Calls to complete, for ends that were recorded before the call was made here."""

    def made(self, key: Key, digest: int, complete: Complete) -> None:
        """A call begins."""
        early = self._early.get(key, [])
        for place, (other, outcome) in enumerate(early):
            if other == digest:
                del early[place]
                self.due.append(functools.partial(complete, outcome))
                return
        self._open.setdefault(key, []).append((digest, complete))

    def ended(self, key: Key, digest: int, outcome: Any) -> None:
        """A recorded end: of the call with this digest, else of the oldest one, else of a later call."""
        under_way = self._open.get(key, [])
        if not under_way:
            self._early.setdefault(key, []).append((digest, outcome))
            return
        places = [place for place, (other, _) in enumerate(under_way) if other == digest]
        _, complete = under_way.pop(places[0] if places else 0)
        complete(outcome)

    @property
    def unused(self) -> Counter[str]:
        """Recorded ends of calls that were not made here, by kind."""
        return Counter({" ".join(key): len(ends) for key, ends in self._early.items() if ends})

"""The answer to "why": a chain of waits from a subject to the root cause."""

from __future__ import annotations

import msgspec


class Link(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One wait of the chain. Times are seconds relative to the look; 0 for none."""

    actor: str
    """The actor that records it."""
    waiter: str
    kind: str
    target: str = ""
    what: str = ""
    age_s: float = 0.0
    first_age_s: float = 0.0
    """Of the first of waits that repeat: the age of a crash loop. 0 for a single wait."""
    deadline_in_s: float = 0.0
    next_try_in_s: float = 0.0
    error: str = ""
    detail: str = ""
    """State of the process that is waited for, with its kernel stack."""


class Cause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One root cause and the way to it. Without links: what the pod's status or the run directory tells."""

    code: str
    """One of `CODES`."""
    sentence: str
    """One line that a person can act on."""
    links: tuple[Link, ...] = ()
    severity: int = 0


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer for one subject."""

    subject: str
    causes: tuple[Cause, ...] = ()
    """The most likely first; empty when it waits for nothing."""
    state: str = ""
    """A sentence of a pod's state, when it waits for nothing."""
    took_ms: float = 0.0

    @property
    def sentence(self) -> str:
        """The first sentence."""
        if self.causes:
            return self.causes[0].sentence
        return self.state or f"{named(self.subject)} waits for nothing that is recorded."


CODES = {
    "agent-gone": "no agent runs",
    "actor-gone": "the actor's process has ended, or is not ready",
    "actor-held": "an operator keeps the actor stopped",
    "actor-stopped": "the actor's process is stopped by a signal",
    "actor-sleeps": "the actor's process is in an uninterruptible sleep",
    "actor-busy": "the actor's handler does not return",
    "cycle": "the waits form a cycle",
    "runtime-down": "nothing listens on the runtime's socket",
    "runtime-stopped": "the runtime's process is stopped by a signal",
    "helper-sleeps": "a helper process is in an uninterruptible sleep",
    "helper-stopped": "a helper process is stopped by a signal",
    "helper": "a helper process works",
    "thread-sleeps": "a thread is in an uninterruptible sleep",
    "blocking": "a call in a thread does not return",
    "cri": "a call of the runtime is under way",
    "http": "a request to a server is under way",
    "object": "an object of the API is missing",
    "admission": "the node does not admit the pod",
    "hook": "a pod's own command runs",
    "retry": "a step failed and is tried again",
    "condition": "a state is not reached",
    "queue": "others have their turn first",
    "lock": "another holds the lock",
    "timer": "a pause",
    "ask": "an actor has not answered",
    "handler": "a handler waits for something that is not recorded",
    "status": "the pod's status and events tell it: a probe, an init container, an end",
    "manifest": "the pod's manifest is refused",
}
"""Root causes, by code."""


def shown(subject: str) -> str:
    """A subject as people write it: pod default/web, volume data of pod default/web, image busybox:1."""
    kind, slash, rest = subject.partition("/")
    parts = rest.split("/")
    if kind == "volume" and len(parts) == 3:
        return f"volume {parts[2]} of pod {parts[0]}/{parts[1]}"
    if kind in ("pod", "image", "actor", "object", "host", "helper", "thread") and slash:
        return f"{kind} {rest}"
    return subject


def named(subject: str) -> str:
    """The same at the begin of a sentence."""
    text = shown(subject)
    return text[:1].upper() + text[1:]


def seconds(age_s: float) -> str:
    """A time as people read it: 0.4 s, 12 s, 3 min, 2 h."""
    if age_s < 10:
        return f"{max(0.0, age_s):.1f} s"
    if age_s < 120:
        return f"{age_s:.0f} s"
    return f"{age_s / 60:.0f} min" if age_s < 7200 else f"{age_s / 3600:.0f} h"

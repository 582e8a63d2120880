"""Spans of distributed traces (OpenTelemetry), and the context that tasks, messages and calls carry.

A context is the W3C traceparent of a sampled span; an empty one traces nothing. Spans go to the `tracing` actor, which
sends them to a collector. Without a configured endpoint there is no recorder: no span is made, and no byte is sent.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any

from proto.agent.tracing import MOST_SPANS, EndedSpan, RecordSpans, SpanKind

CURRENT: ContextVar[str] = ContextVar("traceparent", default="")
"""The context of the running task or handler, in its thread."""
MOST_WAITING = 4096
"""Spans that wait to be sent; further ones are dropped and counted."""
FLUSH_S = 0.2

_HEADER = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NOTHING = nullcontext(None)

Attributes = Mapping[str, str]


class Recorder:
    """The spans of this process on their way to the `tracing` actor. Usable from any thread."""

    def __init__(
        self, actor: str, tell: Callable[[RecordSpans], None], call_later: Callable[..., object], rate: int
    ) -> None:
        """`rate`: how many of a million new traces are recorded."""
        self._actor, self._tell, self._call_later = actor, tell, call_later
        self._bound = (rate << 63) // 1_000_000
        self._waiting: deque[EndedSpan] = deque()
        self._dropped = 0
        self._due = False

    def samples(self, trace_id: str) -> bool:
        """Decide on a new trace by its ID, as OpenTelemetry's TraceIdRatioBased."""
        return int(trace_id[16:], 16) >> 1 < self._bound

    def add(self, span: EndedSpan) -> None:
        """Queue a span, or drop it when too many wait."""
        if len(self._waiting) >= MOST_WAITING:
            self._dropped += 1
            return
        self._waiting.append(span)
        if not self._due:
            self._due = True
            self._call_later(FLUSH_S, self.flush)

    def flush(self) -> None:
        """Tell the tracing actor what waits."""
        self._due = False
        while self._waiting:
            spans = tuple(self._waiting.popleft() for _ in range(min(MOST_SPANS, len(self._waiting))))
            dropped, self._dropped = self._dropped, 0
            self._tell(RecordSpans(actor=self._actor, spans=spans, dropped=dropped))


recorder: Recorder | None = None
"""This process's; None where no endpoint is configured. Set before the actor starts."""


class Span:
    """A span that has begun. As a context manager it is current within the block, and ends with it."""

    __slots__ = ("_began_ns", "_kind", "_name", "_outer", "_parent", "attributes", "context", "goes_on")

    def __init__(self, name: str, kind: SpanKind, context: str, parent: str, attributes: dict[str, str]) -> None:
        self._name, self._kind, self.context, self._parent, self.attributes = name, kind, context, parent, attributes
        self._outer, self.goes_on = "", False
        """True: it does not end with the block."""
        self._began_ns = time.time_ns()

    def __enter__(self) -> Span:
        self._outer = CURRENT.get()
        CURRENT.set(self.context)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        CURRENT.set(self._outer)
        if not self.goes_on:
            self.end(str(error) or type(error).__name__ if error is not None else "")

    def end(self, error: str = "") -> None:
        """Record it as over now, failed when there is an error."""
        record(self._name, self._began_ns, self.context, self._parent, self._kind, self.attributes, error)


def begin(
    name: str, kind: SpanKind = "internal", parent: str | None = None, attributes: Attributes | None = None
) -> Span | None:
    """A span below `parent`, by default below the current one; None where nothing is traced."""
    above = CURRENT.get() if parent is None else parent
    if not above or recorder is None:
        return None
    return Span(name, kind, below(above), above, dict(attributes or {}))


def begin_request(name: str, attributes: Attributes) -> Span | None:
    """The span of a request to another server: below the current one, or the first of a new trace that is sampled."""
    above = CURRENT.get()
    context = below(above) if above and recorder is not None else new_trace()
    return Span(name, "client", context, above, dict(attributes)) if context else None


def span(
    name: str, kind: SpanKind = "internal", parent: str | None = None, attributes: Attributes | None = None
) -> AbstractContextManager[Span | None]:
    """The same for a `with` block."""
    return begin(name, kind, parent, attributes) or _NOTHING


def new_trace() -> str:
    """The context of a new trace's first span; empty when the trace is not sampled."""
    if recorder is None:
        return ""
    trace_id = os.urandom(16).hex()
    return f"00-{trace_id}-{os.urandom(8).hex()}-01" if recorder.samples(trace_id) else ""


def root(name: str, attributes: Attributes, kind: SpanKind = "internal") -> AbstractContextManager[Span | None]:
    """The first span of a new trace, for a `with` block, if the trace is sampled."""
    context = new_trace()
    return Span(name, kind, context, "", dict(attributes)) if context else _NOTHING


def served(name: str, header: str, attributes: Attributes) -> AbstractContextManager[Span | None]:
    """The span of a request from outside. Its traceparent header decides on the sampling; without one the rate does."""
    if recorder is None:
        return _NOTHING
    given = _HEADER.fullmatch(header)
    if given is None:
        return root(name, attributes, "server")
    is_sampled = int(given[3], 16) & 1
    return span(name, "server", f"00-{given[1]}-{given[2]}-01" if is_sampled else "", attributes)


def below(context: str) -> str:
    """The context of a new span in the same trace."""
    return f"{context[:36]}{os.urandom(8).hex()}-01"


def record(
    name: str,
    began_ns: int,
    context: str,
    parent: str = "",
    kind: SpanKind = "internal",
    attributes: Attributes | None = None,
    error: str = "",
    ended_ns: int = 0,
) -> None:
    """Record a span that is over; `ended_ns` 0: now. Times are Unix nanoseconds."""
    if recorder is None or not context:
        return
    recorder.add(
        EndedSpan(
            name=name,
            kind=kind,
            context=context,
            parent=parent,
            began_ns=began_ns,
            ended_ns=ended_ns or time.time_ns(),
            attributes=dict(attributes or {}),
            error=error[:1024],
        )
    )


def end_with(span_: Span, over: Any) -> None:
    """End a span with a future that is over."""
    try:
        over.result(0)
    except Exception as error:
        span_.end(str(error) or type(error).__name__)
    else:
        span_.end()

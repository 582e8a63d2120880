"""Messages of the tracing actor: spans that ended in any process."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from proto.wire.envelope import TRACEPARENT
from proto.wire.message import Message, Record

MOST_SPANS = 512
"""In one message."""
SpanKind = Literal["internal", "server", "client", "producer", "consumer"]


class EndedSpan(Record, frozen=True, kw_only=True):
    """A span of a sampled trace. Times are Unix nanoseconds."""

    name: str
    kind: SpanKind = "internal"
    context: Annotated[str, msgspec.Meta(pattern=TRACEPARENT)]
    """Its own traceparent."""
    parent: Annotated[str, msgspec.Meta(pattern=f"^$|{TRACEPARENT}")] = ""
    """The traceparent of the span above it; empty for the first span of a trace."""
    began_ns: int
    ended_ns: int
    attributes: dict[str, str] = {}
    error: str = ""
    """Why it failed; empty: it did not."""


class RecordSpans(Message, frozen=True, kw_only=True):
    """From all: spans to send to the collector. A repeat sends them twice. Lost spans are lost."""

    actor: str = ""
    """The process that they ended in."""
    spans: tuple[EndedSpan, ...]
    dropped: int = 0
    """Spans that were dropped before these, because too many waited."""

"""The tracing actor: sends spans of traces to an OTLP collector.

It alone uses OpenTelemetry's SDK and exporter; the other processes tell it their spans. The forkserver imports them
where a collector is configured, and all processes share those pages (6 MB). The exporter has a bounded queue and a
thread of its own, so an unreachable collector delays nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actors._base import Actor, handles
from proto.agent.tracing import RecordSpans

if TYPE_CHECKING:
    from actors.tracing.export import Export

IMPORT_S = 60.0


class Tracing(Actor):
    """State: the exporter with its queue. Spans in it are lost with the process."""

    name = "tracing"

    async def rebuild(self) -> None:
        """Make the exporter. It connects with the first spans."""
        self._spans = self._dropped = 0
        self._export: Export = await self.blocking(IMPORT_S, self._make)

    def _make(self) -> Export:
        from actors.tracing.export import Export  # noqa: PLC0415 - an optional dependency

        return Export(self.settings.tracing_endpoint, self.settings.node_name)

    @handles(RecordSpans)
    def on_spans(self, message: RecordSpans) -> None:
        """From all: spans to send."""
        self._spans += len(message.spans)
        self._dropped += message.dropped
        for span in message.spans:
            self._export.add(message.actor, span)

    def on_shutdown(self) -> None:
        """Send what waits, as far as the collector answers at once."""
        self._export.close()

    def describe(self) -> dict[str, Any]:
        """The collector, and counts of spans."""
        return {
            "endpoint": self.settings.tracing_endpoint,
            "failed_batches": self._export.failed_batches,
            "spans": self._spans,
            "dropped": self._dropped,
        }


ACTOR = Tracing

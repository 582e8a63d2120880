"""Sends spans by OpenTelemetry's batch processor and OTLP exporter. OTEL_BSP_* and OTEL_EXPORTER_OTLP_* have effect."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from proto.agent.tracing import EndedSpan

log = logging.getLogger(__name__)

CLOSE_S = 1.0
SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class Export(SpanExporter):
    """The queue, and the exporter that it is emptied by, in a thread of the library's."""

    def __init__(self, endpoint: str, node_name: str) -> None:
        # A line for each failed attempt, in the library's words; `export` has one for all.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self.failed_batches = 0
        """Since the last batch that the collector took."""
        self._endpoint = endpoint
        self._exporter = OTLPSpanExporter(endpoint=endpoint, insecure=True)
        self._resource = Resource.create({"service.name": "kubelet", "host.name": node_name})
        self._processor = BatchSpanProcessor(self)

    def add(self, actor: str, span: EndedSpan) -> None:
        """Queue a span. Beyond the queue's limit the oldest is dropped."""
        attributes = {"nodevisor.actor": actor, **span.attributes}
        self._processor.on_end(
            ReadableSpan(
                span.name,
                context=_context(span.context),
                parent=_context(span.parent) if span.parent else None,
                resource=self._resource,
                attributes=attributes,
                kind=SpanKind[span.kind.upper()],
                status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
                start_time=span.began_ns,
                end_time=span.ended_ns,
                instrumentation_scope=InstrumentationScope(f"nodevisor/{actor}"),
            )
        )

    def close(self) -> None:
        """Send what waits, for at most a second."""
        ending = threading.Thread(target=self._processor.shutdown, daemon=True)
        ending.start()
        ending.join(CLOSE_S)

    # In the library's thread

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch, and log when the collector stops to answer or answers again."""
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self.failed_batches += 1
            if self.failed_batches == 1:
                log.warning("cannot send traces to %s: they are dropped until it answers", self._endpoint)
        elif self.failed_batches:
            self.failed_batches = 0
            log.info("%s takes traces again", self._endpoint)
        return result

    def shutdown(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()


def _context(traceparent: str) -> SpanContext:
    return SpanContext(int(traceparent[3:35], 16), int(traceparent[36:52], 16), is_remote=False, trace_flags=SAMPLED)

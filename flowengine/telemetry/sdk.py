"""Handing finished spans to the SDK of OpenTelemetry, with given ids and times."""

from __future__ import annotations

from importlib.metadata import version

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from flowengine.telemetry.collector import CollectorExporter
from flowengine.telemetry.spans import Span

KINDS = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}
SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class SpanPipeline:
    """Exports finished spans in batches, on a thread of the SDK.

    Args:
        exporter: Receives them. None: OTLP over HTTP, as environment variables configure it.
    """

    def __init__(self, exporter: SpanExporter | None) -> None:
        if exporter is None:
            exporter = CollectorExporter()
        self._ids = _GivenIds()
        resource = Resource.create({"service.name": "flowengine"})
        self._provider = TracerProvider(
            resource=resource, id_generator=self._ids, shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("flowengine", version("flowengine"))

    def export(self, span: Span) -> None:
        """Queue a span. The SDK drops spans that a slow destination does not take in time."""
        self._ids.next = int(span.trace, 16), int(span.id, 16)
        parent = span.parent
        started = self._tracer.start_span(
            span.name,
            set_span_in_context(
                INVALID_SPAN if parent is None else NonRecordingSpan(_place(span.trace, parent))
            ),
            KINDS[span.kind],
            span.attributes,
            [Link(_place(*link)) for link in span.links],
            span.start * 1_000_000,
            record_exception=False,
        )
        if span.error is not None:
            started.set_status(Status(StatusCode.ERROR, span.error))
        started.end(span.end * 1_000_000)

    def close(self) -> None:
        """Export the queued spans, and end the thread."""
        self._provider.shutdown()


class _GivenIds(IdGenerator):
    """Gives the next span the ids that were chosen for it."""

    def __init__(self) -> None:
        self.next = (0, 0)

    def generate_trace_id(self) -> int:
        return self.next[0]

    def generate_span_id(self) -> int:
        return self.next[1]


def _place(trace: str, span: str) -> SpanContext:
    return SpanContext(int(trace, 16), int(span, 16), is_remote=True, trace_flags=SAMPLED)

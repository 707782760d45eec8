"""Spans in the JSON form of OTLP, which a collector accepts at `/v1/traces` (OTLP 1.x, JSON)."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from flowengine.telemetry.spans import Span, Value

KINDS = {"internal": 1, "client": 3}


def traces_data(spans: Iterable[Span]) -> dict[str, Any]:
    """Return spans as one `TracesData` document."""
    resource = {"attributes": [_attribute("service.name", "flowengine")]}
    scope = {"name": "flowengine", "version": version("flowengine")}
    scoped = {"scope": scope, "spans": [_span(span) for span in spans]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scoped]}]}


def _span(span: Span) -> dict[str, Any]:
    message: dict[str, Any] = {
        "traceId": span.trace,
        "spanId": span.id,
        "name": span.name,
        "kind": KINDS[span.kind],
        "startTimeUnixNano": str(span.start * 1_000_000),
        "endTimeUnixNano": str(span.end * 1_000_000),
        "attributes": [_attribute(key, value) for key, value in span.attributes.items()],
        "status": {} if span.error is None else {"code": 2, "message": span.error},
    }
    if span.parent is not None:
        message["parentSpanId"] = span.parent
    if span.links:
        message["links"] = [{"traceId": trace, "spanId": id} for trace, id in span.links]
    return message


def _attribute(key: str, value: Value) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"key": key, "value": {"boolValue": value}}
    if isinstance(value, int):
        return {"key": key, "value": {"intValue": str(value)}}
    if isinstance(value, float):
        return {"key": key, "value": {"doubleValue": value}}
    return {"key": key, "value": {"stringValue": value}}

"""Traces and metrics of executions for OpenTelemetry.

A trace follows from the journal: the ids of its spans are digests of the execution, the address of
the step and the time at which it began. The spans that a running engine exports and those of
`flowengine events --otel` are therefore the same, whichever processes drove the execution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import exports

if TYPE_CHECKING:
    from flowengine.telemetry.export import export_traces
    from flowengine.telemetry.metrics import export_metrics
    from flowengine.telemetry.spans import Span, recorded_spans

__all__ = ["Span", "export_metrics", "export_traces", "recorded_spans"]

_HOMES = {
    "Span": ".spans",
    "export_metrics": ".metrics",
    "export_traces": ".export",
    "recorded_spans": ".spans",
}

__getattr__, __dir__ = exports(__name__, __all__, _HOMES)

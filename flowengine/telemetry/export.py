"""Exporting the spans of running executions with the SDK of OpenTelemetry."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flowengine.kernel.graph.specs import StepSpec
from flowengine.sdk.python.extras import is_installed, missing_package
from flowengine.telemetry.spans import (
    CAPTURE_CONTENT,
    ENDPOINTS,
    ExecutionTracer,
    Span,
    TracedEngine,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter


def export_if_wanted(engine: TracedEngine) -> Callable[[], None]:
    """Export traces if environment variables name a destination and the SDK is installed.

    Returns:
        A function that exports the remaining spans and ends the export.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return _nothing
    chosen = os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    if chosen not in {"otlp", "none"}:
        logging.getLogger("flowengine.telemetry").warning(
            "no traces are exported, because OTEL_TRACES_EXPORTER is %r: "
            "supported are 'otlp' and 'none'",
            chosen,
        )
    is_on = chosen == "otlp" and any(os.environ.get(name) for name in ENDPOINTS)
    if not is_on or not is_installed("opentelemetry.sdk"):
        return _nothing
    return export_traces(engine)


def export_traces(
    engine: TracedEngine, exporter: SpanExporter | None = None, *, content: bool | None = None
) -> Callable[[], None]:
    """Export a span for each execution, step, attempt and wait that ends, and each environment.

    Args:
        engine: Its executions are traced.
        exporter: Receives the spans, in batches on a separate thread. Default: OTLP over HTTP, as
            the variables `OTEL_EXPORTER_OTLP_…` configure it.
        content: Whether spans include messages, arguments, results and error messages. Default:
            the variable `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`.

    Returns:
        A function that exports the remaining spans and ends the export.

    Raises:
        UsageError: The packages of the extra `telemetry` are not installed.
    """
    try:
        from flowengine.telemetry.sdk import SpanPipeline
    except ModuleNotFoundError as error:
        raise missing_package(error) or error from None
    if content is None:
        content = os.environ.get(CAPTURE_CONTENT, "").lower() == "true"
    pipeline = SpanPipeline(exporter)
    end = engine.subscribe(LiveSpans(engine, pipeline.export, content=content))
    engine.carry_traces(True)

    def close() -> None:
        engine.carry_traces(False)
        end()
        pipeline.close()

    return close


def _nothing() -> None:
    """End no export."""


class LiveSpans:
    """Makes spans from the updates of an engine."""

    def __init__(
        self, engine: TracedEngine, export: Callable[[Span], None], *, content: bool
    ) -> None:
        self._engine = engine
        self._export = export
        self._content = content
        self._traced: dict[str, tuple[ExecutionTracer, list[StepSpec]]] = {}
        """The tracer of each execution driven here, and the steps of its flow. A flow changes only
        while no process drives the execution."""

    def __call__(self, update: Any) -> None:
        if update.kind == "event":
            self._begin(update.execution, update.data["seq"])
        if update.kind in ("event", "step"):
            tracer, steps = self._traced[update.execution]
            for span in tracer.observe(update, steps):
                self._export(span)
        elif update.kind == "end" and update.execution in self._traced:
            tracer, _ = self._traced.pop(update.execution)
            record = self._engine.store.execution(update.execution)
            if record.ended_at is not None:
                self._export(tracer.end(record))

    def _begin(self, execution: str, seq: int) -> None:
        """Begin to trace an execution. Another process may have driven its first steps."""
        if execution in self._traced:
            return
        tracer = ExecutionTracer(self._engine.store.execution(execution), content=self._content)
        self._traced[execution] = (
            tracer,
            self._engine.executions.flow_of(execution).compiled["steps"],
        )
        for update, flow in (
            self._engine.executions.past_updates(execution, until=seq) if seq else ()
        ):
            for _ in tracer.observe(update, flow["steps"]):
                pass  # exported by the process that drove it

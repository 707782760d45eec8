"""Metrics of executions, for OpenTelemetry.

Durations, tokens and costs come from the spans of traces, so both always agree. Ages are read from
the store when they are collected. Names that begin with `gen_ai` are those of the semantic
conventions for generative AI (see `conventions`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from flowengine.errors import FlowEngineError
from flowengine.journal.store import every_item
from flowengine.kernel.notation.times import parse_time
from flowengine.sdk.python.extras import is_installed, missing_package
from flowengine.telemetry import spans as names
from flowengine.telemetry.export import LiveSpans
from flowengine.telemetry.spans import Span, TracedEngine

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from opentelemetry.sdk.metrics.export import MetricReader


ENDPOINT = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
EXPORTER = "OTEL_METRICS_EXPORTER"


def export_metrics_if_wanted(engine: TracedEngine) -> Callable[[], None]:
    """Export metrics if environment variables ask for them and the SDK is installed.

    Returns:
        A function that exports the last values and ends the export.
    """
    chosen = os.environ.get(EXPORTER, "otlp" if os.environ.get(ENDPOINT) else "none")
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or chosen != "otlp"
    if is_off or not is_installed("opentelemetry.sdk"):
        return lambda: None
    return export_metrics(engine)


def export_metrics(engine: TracedEngine, reader: MetricReader | None = None) -> Callable[[], None]:
    """Export metrics of the executions that an engine drives, and of its store.

    Args:
        engine: The engine.
        reader: Collects the values. Default: every minute, by OTLP over HTTP, as the variables
            `OTEL_EXPORTER_OTLP_…` and `OTEL_METRIC_EXPORT_…` configure it.

    Returns:
        A function that exports the last values and ends the export.

    Raises:
        UsageError: The packages of the extra `telemetry` are not installed.
    """
    try:
        from opentelemetry import metrics
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.resources import Resource

        if reader is None:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

            reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    except ModuleNotFoundError as error:
        raise missing_package(error) or error from None
    resource = Resource.create({"service.name": "flowengine"})
    provider = MeterProvider([reader], resource, shutdown_on_exit=False)
    if not isinstance(metrics.get_meter_provider(), MeterProvider):
        metrics.set_meter_provider(provider)  # for the metrics of environments
    meter = provider.get_meter("flowengine")
    observed = _Observed(meter, engine)
    end = engine.subscribe(LiveSpans(engine, _Recorded(meter).record, content=False))

    def close() -> None:
        end()
        observed.is_open = False
        provider.shutdown()

    return close


class _Recorded:
    """Records the spans of executions as metrics.

    Args:
        meter: Creates the instruments.
    """

    def __init__(self, meter: Meter) -> None:
        self._ended = meter.create_counter(
            "flowengine.executions.ended", "{execution}", "Executions that have ended, by status"
        )
        self._length = meter.create_histogram(
            "flowengine.execution.duration", "s", "Time from start to end, with all waits"
        )
        self._steps = meter.create_histogram(
            "flowengine.step.duration", "s", "Time of a step, with its attempts and waits"
        )
        self._attempts = meter.create_histogram(
            "flowengine.attempt.duration", "s", "Time of one attempt of a step"
        )
        self._waits = meter.create_histogram(
            "flowengine.wait.duration", "s", "Time that a step waited for a decision or an event"
        )
        self._calls = meter.create_histogram(
            "gen_ai.client.operation.duration", "s", "Time of a call of a model"
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage", "{token}", "Tokens of a call of a model"
        )
        self._cost = meter.create_counter("flowengine.cost", "{USD}", "Cost of calls of models")

    def record(self, span: Span) -> None:
        """Record a span that has ended."""
        seconds, given = max(0, span.end - span.start) / 1000, span.attributes
        about: dict[str, Any] = {"error.type": span.error} if span.error is not None else {}
        if names.EXECUTION in given:
            about |= {"flow": given[names.WORKFLOW], "status": given[names.STATUS]}
            self._ended.add(1, about)
            self._length.record(seconds, about)
        elif names.KIND in given:
            about |= {"kind": given[names.KIND], "status": given[names.STATUS]}
            self._steps.record(seconds, about)
        elif names.ENVIRONMENT in given:
            pass  # environments have separate metrics
        elif names.ATTEMPT not in given:
            self._waits.record(seconds)
        elif given.get(names.OPERATION) == "chat":
            self._model_call(seconds, span, about)
        else:
            self._attempts.record(seconds, about)

    def _model_call(self, seconds: float, span: Span, about: dict[str, Any]) -> None:
        given = span.attributes
        about |= {
            key: given[key]
            for key in (names.OPERATION, names.PROVIDER, names.REQUEST_MODEL, names.AGENT)
            if key in given
        }
        self._calls.record(seconds, about)
        for kind in ("input", "output"):
            if (tokens := given.get(names.TOKENS[f"{kind}_tokens"])) is not None:
                self._tokens.record(int(tokens), {**about, "gen_ai.token.type": kind})
        if names.COST in given:
            self._cost.add(float(given[names.COST]), about)


class _Observed:
    """The numbers that are read from the store when they are collected.

    Args:
        meter: Creates the instruments.
        engine: Reads the store.

    Attributes:
        is_open: Whether the store can be read.
    """

    def __init__(self, meter: Meter, engine: TracedEngine) -> None:
        self.is_open = True
        due = "Executions that can continue and that no process runs"
        oldest = "How long the oldest of them has been able to continue"
        stuck, asked = "Executions that no worker takes", "How long the oldest approval is open"
        open = "Executions that have not ended, by status"
        gauges: list[tuple[str, str, str, Callable[[], float | dict[str, int]]]] = [
            ("executions.open", "{execution}", open, engine.open_executions),
            ("queue.size", "{execution}", due, lambda: len(engine.waited())),
            ("queue.age", "s", oldest, lambda: max(engine.waited(), default=0.0)),
            ("executions.quarantined", "{execution}", stuck, engine.quarantined),
            ("approvals.age", "s", asked, lambda: oldest_approval(engine)),
        ]
        for name, unit, description, read in gauges:
            callback = self._observing(read)
            meter.create_observable_gauge(f"flowengine.{name}", [callback], unit, description)

    def _observing(
        self, read: Callable[[], float | dict[str, int]]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            from opentelemetry.metrics import Observation

            try:
                values = read() if self.is_open else {}
            except FlowEngineError:  # the next collection may succeed
                return []
            if not isinstance(values, dict):
                return [Observation(values)]
            return [Observation(count, {"status": status}) for status, count in values.items()]

        return observe


def oldest_approval(engine: TracedEngine) -> float:
    """Return for how many seconds the oldest open approval has been open. 0: there is none."""
    kinds = ("approval", "ask")
    waits = every_item(lambda after: engine.approvals.list(kinds=kinds, after=after))
    oldest = next(waits, None)
    return max(0.0, time.time() - parse_time(oldest["since"]) / 1000) if oldest else 0.0

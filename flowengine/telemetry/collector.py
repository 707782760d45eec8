"""The OTLP exporter of the environment variables, which reports a failure in one line."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from threading import get_ident
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from flowengine.telemetry.spans import ENDPOINTS

TIMEOUTS = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
PATIENCE = 3.0
"""Seconds for a batch, unless a variable sets them: a command ends only when its last batch was
exported or has failed, and the default of the SDK is ten."""


class CollectorExporter(SpanExporter):
    """Exports by OTLP over HTTP, as environment variables configure it.

    The library logs each attempt with the error of its HTTP client. Those records appear only at
    the level `debug`. The first failed batch is reported instead.
    """

    def __init__(self) -> None:
        limited = any(name in os.environ for name in TIMEOUTS)
        self._exporter = OTLPSpanExporter(timeout=None if limited else PATIENCE)
        self._logger = logging.getLogger(OTLPSpanExporter.__module__)
        self._logger.addFilter(self._hear)
        self._thread = 0
        """The thread that exports now."""
        self._answer = ""
        self._is_reported = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch."""
        self._thread, self._answer = get_ident(), "no collector answers"
        try:
            result = self._exporter.export(spans)
        finally:
            self._thread = 0
        if result is not SpanExportResult.SUCCESS and not self._is_reported:
            self._is_reported = True
            parts = urlsplit(next(filter(None, map(os.environ.get, ENDPOINTS)), ""))
            place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"  # without credentials
            logging.getLogger("flowengine.telemetry").warning(
                "traces were not exported: %s at %s", self._answer, place
            )
        return result

    def shutdown(self) -> None:
        """End it."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]
        self._logger.removeFilter(self._hear)

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Return whether everything was exported: nothing is queued here."""
        return self._exporter.force_flush(timeout_millis)

    def _hear(self, record: logging.LogRecord) -> bool:
        """Return whether a record of the library is shown. Take the collector's answer from it."""
        if self._thread != get_ident():
            return True  # of another exporter in this process
        codes = [argument for argument in record.args or () if isinstance(argument, int)]
        if codes:
            self._answer = f"the collector answered {codes[0]}"
        return logging.getLogger().isEnabledFor(logging.DEBUG)

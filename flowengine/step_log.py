"""Loggers of attempts and environments, whose lines have an origin and masked secrets."""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping
from typing import Any


class MaskedLog(logging.LoggerAdapter[logging.Logger]):
    """Writes to a logger, with a prefix in front of each line.

    Args:
        name: The name of the logger.
        place: The prefix.
        extra: Attributes of each record.
        mask: Replaces the values of secrets in plain data.
    """

    def __init__(
        self, name: str, place: str, extra: dict[str, object], mask: Callable[[Any], Any]
    ) -> None:
        super().__init__(logging.getLogger(name), extra)
        self._mask = mask
        self._place = place

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[str, MutableMapping[str, Any]]:
        """Add the prefix."""
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return f"{self._place}: {msg}", kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Write a line.

        Arguments are inserted first, so that secrets in them are masked as well.
        """
        if self.isEnabledFor(level):
            text = str(msg) % args if args else str(msg)
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
            super().log(level, "%s", self._mask(text), **kwargs)


class StepLog(MaskedLog):
    """Writes to the logger `flowengine.step`.

    Args:
        execution: Id of the execution.
        address: Address of the activation.
        mask: Replaces the values of secrets in plain data.
        traceparent: The span of the attempt, if it is traced. Its ids become the attributes
            `otelTraceID` and `otelSpanID`, named as by OpenTelemetry's logging instrumentation.
    """

    def __init__(
        self,
        execution: str,
        address: str,
        mask: Callable[[Any], Any],
        traceparent: str | None = None,
    ) -> None:
        extra: dict[str, object] = {"execution": execution, "step": address}
        if traceparent is not None:
            _, extra["otelTraceID"], extra["otelSpanID"], _ = traceparent.split("-")
        super().__init__("flowengine.step", f"{execution[:12]} {address}", extra, mask)

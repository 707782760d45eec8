"""Loggers of attempts and environments, whose lines have an origin and masked secrets."""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping
from typing import Any

from flowengine.sdk.steps.context import WRITING

Keep = Callable[[int, str], object]
"""Receives a level and a text."""


class MaskedLog(logging.LoggerAdapter[logging.Logger]):
    """Writes to a logger, with a prefix in front of each line.

    Args:
        name: The name of the logger.
        place: The prefix.
        extra: Attributes of each record.
        mask: Replaces the values of secrets in plain data.
        keep: Receives the level and the masked text of each line from the level `INFO` on, and of
            those below that are written. Whether a line is written depends on the process. None:
            no line is kept.
    """

    def __init__(
        self,
        name: str,
        place: str,
        extra: dict[str, object],
        mask: Callable[[Any], Any],
        keep: Keep | None = None,
    ) -> None:
        super().__init__(logging.getLogger(name), extra)
        self._mask = mask
        self._keep = keep
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
        is_written = self.isEnabledFor(level)
        if not is_written and not (self._keep is not None and level >= logging.INFO):
            return
        text = str(self._mask(_text(msg, args)))
        if self._keep is not None:
            self._keep(level, text + str(self._mask(_traceback(kwargs.get("exc_info")))))
        if is_written:
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
            token = WRITING.set(True)
            try:
                super().log(level, "%s", text, **kwargs)
            finally:
                WRITING.reset(token)


class StepLog(MaskedLog):
    """Writes to the logger `flowengine.step`, and keeps the lines of an attempt.

    Args:
        execution: Id of the execution.
        address: Address of the activation.
        mask: Replaces the values of secrets in plain data.
        traceparent: The span of the attempt, if it is traced. Its ids become the attributes
            `otelTraceID` and `otelSpanID`, named as by OpenTelemetry's logging instrumentation.
        keep: As for `MaskedLog`.
    """

    def __init__(
        self,
        execution: str,
        address: str,
        mask: Callable[[Any], Any],
        traceparent: str | None = None,
        keep: Keep | None = None,
    ) -> None:
        extra: dict[str, object] = {"execution": execution, "step": address}
        if traceparent is not None:
            _, extra["otelTraceID"], extra["otelSpanID"], _ = traceparent.split("-")
        super().__init__("flowengine.step", f"{execution[:12]} {address}", extra, mask, keep)


def _text(msg: object, args: tuple[object, ...]) -> str:
    """Return the text of a line. A step does not fail because a line cannot be made."""
    try:
        return str(msg) % args if args else str(msg)
    except Exception as error:
        return f"a line that cannot be made: {type(error).__name__}"


def _traceback(given: Any) -> str:
    """Return the traceback that belongs to a line, after a line break, or nothing."""
    import sys
    import traceback

    if given and not isinstance(given, BaseException | tuple):
        given = sys.exc_info()
    error = given[1] if isinstance(given, tuple) else given
    if not isinstance(error, BaseException):
        return ""
    return "\n" + "".join(traceback.format_exception(error)).rstrip()

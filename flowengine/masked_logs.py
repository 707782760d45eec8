"""Masking of secrets in all log records of this process, including those of libraries."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def mask_logs(mask: Callable[[Any], Any]) -> None:
    """Mask every record that is logged from now on, for all handlers.

    Records are created in one place, so they are masked there: filters of loggers apply only to
    that logger, and handlers may be added at any time.

    Args:
        mask: Replaces the values of secrets in plain data.
    """
    import logging

    make = logging.getLogRecordFactory()
    tracebacks = logging.Formatter()

    def masked(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        try:
            text = record.getMessage()
        except Exception:
            return record  # the handler reports the error in it
        hidden = mask(text)
        if hidden != text:
            record.msg, record.args = hidden, None
        if record.exc_info and record.exc_info[0] is not None:
            text = tracebacks.formatException(record.exc_info)
            hidden = mask(text)
            if hidden != text:
                record.exc_text = hidden
        return record

    logging.setLogRecordFactory(masked)

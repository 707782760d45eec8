"""What steps and the engine log, as lines on standard error."""

from __future__ import annotations

import logging

from flowengine.cli.terminal.output import err


def show_logs(level: str) -> None:
    """Show what is logged from a level on.

    Args:
        level: Its name.
    """
    logging.basicConfig(level=level.upper(), handlers=[_Lines()])


class _Lines(logging.Handler):
    """Writes each record as a line, and below it the exception that it is about."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            err(f"{record.name}: {record.getMessage()}")
            if record.exc_info:
                told = logging.Formatter().formatException(record.exc_info)
                for line in told.split("\n"):
                    err(f"  {line}")
        except Exception:
            self.handleError(record)

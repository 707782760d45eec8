"""Log records of steps and the engine, as lines on standard error."""

from __future__ import annotations

import logging

from flowengine.cli.terminal.output import err


def show_logs(level: str) -> None:
    """Show log records of a level and above."""
    logging.basicConfig(level=level.upper(), handlers=[_Lines()])


class _Lines(logging.Handler):
    """Writes each record as a line, and below it the exception."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            err(f"{record.name}: {record.getMessage()}")
            if record.exc_info:
                traceback = logging.Formatter().formatException(record.exc_info)
                for line in traceback.split("\n"):
                    err(f"  {line}")
        except Exception:
            self.handleError(record)

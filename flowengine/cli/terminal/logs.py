"""Log records of steps, libraries and the engine, as lines on standard error."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from flowengine.cli.terminal.output import err
from flowengine.telemetry.worker_log import WorkerLog


def show_logs(level: str) -> None:
    """Show log records of a level and above."""
    logging.basicConfig(level=level.upper(), handlers=[_Lines()])


@contextmanager
def taking_records(log: WorkerLog) -> Iterator[None]:
    """Have log records written to a worker's log, in its form."""
    root = logging.getLogger()
    before = root.handlers[:]
    root.handlers = [handler for handler in before if not isinstance(handler, _Lines)]
    root.addHandler(_OfWorker(log))
    try:
        yield
    finally:
        root.handlers = before


class _Lines(logging.Handler):
    """Writes each record as a line, and below it the exception."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.write(
                record, record.exc_info and logging.Formatter().formatException(record.exc_info)
            )
        except Exception:
            self.handleError(record)

    def write(self, record: logging.LogRecord, traceback: str | None) -> None:
        err(f"{record.name}: {record.getMessage()}")
        for line in traceback.split("\n") if traceback else ():
            err(f"  {line}")


class _OfWorker(_Lines):
    """Writes each record to a worker's log.

    Args:
        log: The log.
    """

    def __init__(self, log: WorkerLog) -> None:
        super().__init__()
        self._log = log

    def write(self, record: logging.LogRecord, traceback: str | None) -> None:
        level, message = record.levelname.lower(), record.getMessage()
        self._log(level, logger=record.name, message=message, traceback=traceback or None)

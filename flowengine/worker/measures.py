"""Numbers about a worker and the store whose work it takes."""

from __future__ import annotations

from typing import NamedTuple

from flowengine.engines.engine import Engine
from flowengine.telemetry.metrics import oldest_approval
from flowengine.worker.loop import Worker


class Measure(NamedTuple):
    """A number about a worker."""

    name: str
    help: str
    value: float
    is_total: bool = False
    """Whether it only rises."""


def measured(worker: Worker, engine: Engine) -> list[Measure]:
    """Return the numbers about a worker and its store.

    Args:
        worker: The worker.
        engine: Its engine.
    """
    waited = engine.waited()
    return [
        Measure("ready", "Whether it accepts work.", worker.is_ready),
        Measure("running", "Executions that it runs.", len(worker.backlog.running)),
        Measure("due", "Executions that can continue and that no process runs.", len(waited)),
        Measure(
            "oldest_due_seconds",
            "How long the oldest of them has been able to continue.",
            max(waited, default=0.0),
        ),
        Measure(
            "oldest_approval_seconds",
            "How long the oldest open approval has been open.",
            oldest_approval(engine),
        ),
        Measure("quarantined", "Executions that no worker takes.", engine.quarantined()),
        *(
            Measure(f"open_{status}", f"Executions of the store that are {status}.", count)
            for status, count in engine.open_executions().items()
        ),
        Measure("taken_total", "Executions that it has taken.", worker.taken, is_total=True),
        Measure("failed_total", "Those that have failed.", worker.failed, is_total=True),
        Measure(
            "refused_total", "Executions that it could not run.", worker.refused, is_total=True
        ),
    ]

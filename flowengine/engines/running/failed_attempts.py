"""What follows from an attempt that failed: that it failed, or that people are asked about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.engines.attempts.outcome import ASKING, AttemptFailed, failed

if TYPE_CHECKING:
    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.host import Host
    from flowengine.kernel.commands import Run
    from flowengine.kernel.events import Event


def failed_or_asked(host: Host, execution: Execution, run: Run, failure: AttemptFailed) -> Event:
    """Return the event that a failed attempt leads to."""
    if failure.error["type"] in ASKING:
        from flowengine.engines.running.gate import asked_instead

        if (event := asked_instead(host, execution, run, failure.error)) is not None:
            return event
    return failed(run, failure, host.clock.now())

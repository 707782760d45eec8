"""Quick steps, which run synchronously, some of them before earlier results are on disk."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from flowengine.engines.attempts.outcome import ASKING, AttemptFailed, failed
from flowengine.engines.attempts.printed import PRINTING, is_heard
from flowengine.engines.executions.outer_attempts import OUTER
from flowengine.kernel.commands import Run

if TYPE_CHECKING:
    from flowengine.engines.attempts.outcome import QuickCall
    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.host import Host
    from flowengine.kernel.events import Event, Succeeded


def may_run_ahead(host: Host, execution: Execution) -> bool:
    """Return whether the next command runs a quick step that may run ahead of its commit."""
    commands = execution.commands
    if not commands or execution.context.environments or execution.context.missing:
        return False
    command = commands[0]
    if not isinstance(command, Run) or execution.linked.runner.ahead(command.step) is None:
        return False
    return host.is_open(command, execution)


def run_ahead(host: Host, execution: Execution, until: float) -> None:
    """Run quick steps one after the other whose results are then committed at once.

    The result of a step is applied, and the next step starts, before it is on disk. If the process
    dies, they run again, which is safe because they are pure. In memory, only an interrupt lets
    them run again, which is safe for idempotent steps too. Nothing else may be uncommitted in that
    time. The result of any other step is stored before anything else runs.

    Args:
        host: Shared context of the executions.
        execution: All its events are on disk.
        until: When to stop.
    """
    commands, ahead = execution.commands, execution.linked.runner.ahead
    runs = run_heard if is_heard() else run_quick
    is_time = False
    while commands and not is_time:
        results = []
        while commands and not is_time:
            command = commands[0]
            if type(command) is not Run or (call := ahead(command.step)) is None:
                break
            if command.approved is not None or command.step in execution.linked.ruled:
                break  # it requires a check right before it runs
            commands.popleft()
            results.append(runs(host, execution, command, call))
            is_time = monotonic() > until
        if not results:
            return
        for event in results:
            execution.apply(event)


def run_quick(host: Host, execution: Execution, run: Run, call: QuickCall) -> Event:
    """Run a quick step and return its outcome."""
    token = OUTER.set((execution, run))
    try:
        kept = call(execution.context, run)
    except AttemptFailed as failure:
        return failed_or_asked(host, execution, run, failure)
    finally:
        OUTER.reset(token)
    execution.kept[run.unit] = kept
    event: Succeeded = {
        "type": "succeeded",
        "at": host.clock.now(),
        "unit": run.unit,
        "attempt": run.attempt,
        "value": kept.value,
    }
    if kept.log is not None:
        event["log"] = kept.log
    return event


def run_heard(host: Host, execution: Execution, run: Run, call: QuickCall) -> Event:
    """Run a quick step and return its outcome, with the end of what it prints if it fails."""
    follower = host.follower(execution.id, run.address, is_quick=True)
    printed = execution.linked.runner.printed(run.step, follower)
    token = PRINTING.set(printed)
    try:
        event = run_quick(host, execution, run, call)
        if event["type"] in ("failed", "lost") and (evidence := printed.evidence()):
            event["evidence"] = {**evidence, **event.get("evidence", {})}
        return event
    finally:
        PRINTING.reset(token)
        printed.close()


def failed_or_asked(host: Host, execution: Execution, run: Run, failure: AttemptFailed) -> Event:
    """Return the event of a failed attempt: a failure, or an approval request."""
    if failure.error["type"] in ASKING:
        from flowengine.engines.running.gate import asked_instead

        if (event := asked_instead(host, execution, run, failure)) is not None:
            return event
    return failed(run, failure, host.clock.now())

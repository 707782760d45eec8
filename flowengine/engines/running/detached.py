"""Detached flows: a step starts a separate execution and continues with its id.

See docs/language.md: flow.

The id is derived from the parent execution and the address of the step, which makes the start
idempotent even if the step is repeated after a crash. The execution is stored before the step has
ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.engines.attempts.outcome import AttemptFailed, failed, succeeded
from flowengine.engines.starting.separate import begin_separate
from flowengine.errors import InputError
from flowengine.kernel.notation.ids import separate_id

if TYPE_CHECKING:
    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.host import Host
    from flowengine.kernel.commands import Run
    from flowengine.kernel.events import Event


def begin_detached(host: Host, execution: Execution, run: Run) -> Event:
    """Create the execution that a step starts, and schedule it for driving here.

    Args:
        host: Shared context of the executions.
        execution: The execution of the step.
        run: The kernel's command.

    Returns:
        The outcome of the attempt.
    """
    now = host.clock.now()
    linked = execution.linked
    number: int = linked.compiled["steps"][run.step]["task"]["flow"]
    parent = {**execution.state["execution"], "workdir": execution.context.workdir}
    try:
        id = separate_id(execution.id, run.address)
        id = begin_separate(host, linked, number, id, parent, run.input or {})
    except InputError as error:
        failure = {"type": "ValidationError", "message": error.message, "data": None}
        return failed(run, AttemptFailed(failure), now)  # type: ignore[arg-type]
    return succeeded(run, {"execution_id": id}, now)

"""Detached flows: a step starts a separate execution and continues with its id.

See docs/language.md: flow.

The id is derived from the parent execution and the address of the step, which makes the start
idempotent even if the step is repeated after a crash. The execution is stored before the step has
ended. The process that drives the parent drives it next, unless another process holds it by then.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from flowengine.engines.attempts.outcome import AttemptFailed, failed, succeeded
from flowengine.engines.starting.beginning import create, execution_data
from flowengine.engines.starting.inputs import check_inputs
from flowengine.errors import InputError

if TYPE_CHECKING:
    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.executions.linked_flows import LinkedFlow
    from flowengine.engines.host import Host
    from flowengine.kernel.commands import Run
    from flowengine.kernel.events import Event

ID_LENGTH = 26
"""Number of hexadecimal digits of an id, the same as for other ids."""


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
    linked = _linked(host, execution.linked, run.step)
    parent = execution.state["execution"]
    id = _id(execution.id, run.address)
    data = execution_data(
        host, linked.compiled, now, id, parent["labels"], parent["started_by"]
    ) | {"parent": execution.id, "workdir": execution.context.workdir}
    try:
        inputs = check_inputs(linked.graph, run.input or {}, data, now, data["workdir"])
    except InputError as error:
        failure = {"type": "ValidationError", "message": error.message, "data": None}
        return failed(run, AttemptFailed(failure), now)  # type: ignore[arg-type]
    create(host, linked, {"type": "started", "at": now, "inputs": inputs, "execution": data})
    host.woken[id] = True
    return succeeded(run, {"execution_id": id}, now)


def _id(execution: str, address: str) -> str:
    text = json.dumps([execution, address], ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]


def _linked(host: Host, linked: LinkedFlow, step: int) -> LinkedFlow:
    """Return the flow that a step starts, as a separate flow."""
    from flowengine.flow.compile.link import alone
    from flowengine.flow.structural_hash import form_hash, structural_hash

    compiled = linked.compiled
    flow = alone(compiled, compiled["steps"][step]["task"]["flow"])
    return host.flows.of(flow, form_hash(flow, structural_hash(flow)))

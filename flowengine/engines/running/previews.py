"""Previews of calls that require approval, computed while the question is open.

A preview runs code of the tool or of a plug-in, which may raise, hang or return anything. The
question is opened first and does not wait for the preview.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flowengine.engines.attempts.serialization import copy
from flowengine.engines.executions.calls import environments_of, has_preview
from flowengine.engines.running.call_descriptions import environment_name
from flowengine.sdk.previews import PreviewContext, Shown, computed

if TYPE_CHECKING:
    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.host import Host


async def previewed(host: Host, execution: Execution, wait: int, step: int) -> Shown:
    """Return the preview to show with a question about a call.

    Args:
        host: Shared context of the executions.
        execution: The execution that opened the question.
        wait: Number of the question.
        step: The calling step.

    Returns:
        The preview, or a note why it is missing. Empty if the tool has no preview.
    """
    record = execution.waits.get(wait)
    if record is None or not has_preview(execution.linked.compiled["steps"][step]):
        return Shown()
    if not record.keys().isdisjoint({"preview", "note"}):  # computed by an earlier process
        return Shown(record.get("preview"), record.get("note"))
    subject = record.get("subject")
    args = copy(subject) if isinstance(subject, dict) else {}
    spec = execution.linked.compiled["steps"][step]
    names = [*environments_of(spec)]
    found = host.environments.opened
    resources = {name: found(execution.id, environment_name(spec, name)) for name in names}
    opened = {name: resource for name, resource in resources.items() if resource is not None}
    context = PreviewContext(execution.context.workdir, names, execution.context.resources, opened)
    runner = execution.linked.runner
    return await computed(lambda: runner.preview(step, args, context), partial(runner.mask, step))

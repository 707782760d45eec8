"""Previews of calls that require approval, computed while the question is open.

A preview runs code of the tool or of a plug-in, which may raise, hang or return anything. The
question is opened first and does not wait for the preview.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

from flowengine.engines.attempts.serialization import copy
from flowengine.engines.executions.calls import environments_of, has_preview
from flowengine.engines.executions.execution import Execution
from flowengine.engines.host import Host
from flowengine.engines.running.call_descriptions import run_of_call
from flowengine.sdk.python.user_code import computed
from flowengine.sdk.steps.previews import PreviewContext, Shown


async def previewed(
    host: Host, execution: Execution, wait: int, step: int, *, opens: bool = True
) -> Shown:
    """Return the preview to show with a question about a call.

    Args:
        host: Shared context of the executions.
        execution: The execution that opened the question.
        wait: Number of the question.
        step: The calling step.
        opens: Whether the call will be made in this process, so that its environments may be
            opened here.

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
    names = [*environments_of(execution.linked.compiled["steps"][step])]
    runner, workdir = execution.linked.runner, execution.context.workdir
    lent: Any = nullcontext({})
    if names:
        run = run_of_call(execution, wait)
        if run is not None and host.environments is not None:
            secrets = runner.references(step)
            lent = host.environments.lent(execution.context, run, secrets, opens=opens)

    def preview(opened: Mapping[str, Any]) -> object:
        context = PreviewContext(workdir, names, execution.context.resources, opened)
        return runner.preview(step, args, context)

    return await computed(preview, lent, partial(runner.mask, step))

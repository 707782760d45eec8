"""Previews of calls that people are asked about, computed beside the open question.

A preview is the tool's own code or that of a plug-in: it may raise, hang or give anything. The
question is open before it begins and does not wait for it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from flowengine.engines.attempts.serialization import copy
from flowengine.engines.executions.calls import environments_of, has_preview
from flowengine.engines.running.call_descriptions import environment_name
from flowengine.sdk import previews
from flowengine.sdk.previews import PreviewContext, Shown, failed, shown, too_slow
from flowengine.sdk.threads import on_thread

if TYPE_CHECKING:
    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.host import Host


async def previewed(host: Host, execution: Execution, wait: int, step: int) -> Shown:
    """Return what is shown with a question about a call.

    Args:
        execution: What asks.
        wait: Number of the question.
        step: The step that calls.

    Returns:
        The preview, or a note why there is none; neither: the tool has none.
    """
    record = execution.waits.get(wait)
    if record is None or not has_preview(execution.linked.compiled["steps"][step]):
        return Shown()
    subject = record.get("subject")
    args = copy(subject) if isinstance(subject, dict) else {}
    spec = execution.linked.compiled["steps"][step]
    names = [*environments_of(spec)]
    found = host.environments.opened
    resources = {name: found(execution.id, environment_name(spec, name)) for name in names}
    opened = {name: one for name, one in resources.items() if one is not None}
    context = PreviewContext(execution.context.workdir, names, execution.context.resources, opened)
    runner = execution.linked.runner
    mask = partial(runner.mask, step)

    def compute() -> tuple[Any, BaseException | None]:
        try:
            return runner.preview(step, args, context), None
        except BaseException as error:  # also what would end the process
            return None, error

    try:
        async with asyncio.timeout(previews.SECONDS):
            found, error = await on_thread(compute)
    except TimeoutError:
        return too_slow()
    return shown(found, mask) if error is None else failed(error, mask)

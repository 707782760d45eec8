"""The single entry point for model calls: within budgets, and with the images of the request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flowengine.agents.kept_images import illustrated
from flowengine.agents.models.port import Listener, Model, ModelReply, ModelRequest
from flowengine.agents.models.registry import in_folder, resolve
from flowengine.agents.reservations import bounds_of
from flowengine.sdk import Need, StepContext, StepError


async def ask_model(
    context: StepContext,
    request: ModelRequest,
    last: Mapping[str, Any],
    listen: Listener | None = None,
) -> ModelReply:
    """Request a reply from a model, no longer than budgets allow.

    Args:
        context: The attempt. Script files are resolved in its working directory.
        request: The request.
        last: As for `bounds_of`.
        listen: Receives the reply in parts. None: the reply is not streamed.

    Raises:
        StepError: The model did not reply. If its provider may charge for the request, the data of
            the error contains the highest possible usage.
    """
    model, granted = _model(context, request), context.granted
    images = illustrated(request.messages, context.execution.artifacts.path)
    shown = request if images is request.messages else replace(request, messages=images)
    if granted is None:
        return await model.complete(shown, listen)
    bounds = await bounds_of(model, request, last)
    longest = bounds.reply(granted)
    # Otherwise the model or a setting already limits the reply.
    if longest < bounds.longest or bounds.facts.longest_reply is None:
        shown = replace(shown, longest_reply=longest)
    try:
        return await model.complete(shown, listen)
    except StepError as error:
        if isinstance(error.data, Mapping) and error.data.get("unfinished"):
            error.data = {**error.data, "usage": bounds.used(granted)}
        raise


async def model_needs(
    context: StepContext, request: ModelRequest, last: Mapping[str, Any]
) -> Mapping[str, Need]:
    """Return the possible use of budgets by a model call."""
    return (await bounds_of(_model(context, request), request, last)).needs()


def _model(context: StepContext, request: ModelRequest) -> Model:
    return resolve(in_folder(request.model, context.execution.workdir))

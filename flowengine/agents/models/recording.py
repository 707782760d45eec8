"""Records what a model answers, as a script that answers the same without it."""

from __future__ import annotations

from typing import Any

from flowengine.agents.models.port import Listener, Model, ModelFacts, ModelReply, ModelRequest
from flowengine.sdk import StepError


class Recorder:
    """Passes requests on to a model, and keeps them with what came back.

    `script` is what `ScriptedModel` takes, and what a file of `scripted/FILE` holds. Keys and other
    settings are not in it; what people and tools said to the model is not, either.

    Args:
        model: The one that is asked.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.requests: list[ModelRequest] = []
        self.script: list[dict[str, Any]] = []
        """Replies and errors, as data, in the order in which they came."""

    async def complete(self, request: ModelRequest, listen: Listener | None = None) -> ModelReply:
        """Ask the model, and keep what it answers; see `Model`."""
        self.requests.append(request)
        try:
            reply = await self._model.complete(request, listen)
        except StepError as error:
            self.script.append(_raised(error))
            raise
        self.script.append(_answered(reply))
        return reply

    async def facts(self, model: str) -> ModelFacts:
        """Return what is known of a model; see `Model`."""
        return await self._model.facts(model)


def _answered(reply: ModelReply) -> dict[str, Any]:
    message, usage = reply.message, reply.usage
    entry: dict[str, Any] = {"text": message.get("content") or ""}
    if reasoning := message.get("reasoning"):
        entry["reasoning"] = reasoning
    if calls := message.get("tool_calls"):
        entry["calls"] = [{"id": call["id"], **call["function"]} for call in calls]
    if reply.finish != "calls":
        entry["finish"] = reply.finish
    entry["usage"] = {name: getattr(usage, name) for name in usage.__dataclass_fields__}
    return entry


def _raised(error: StepError) -> dict[str, Any]:
    entry = {"raise": error.name, "message": error.message}
    more = {"retryable": error.retryable, "retry_after": error.retry_after}
    return entry | {key: value for key, value in more.items() if value is not None}

"""Records what a model answers, as a script that answers the same without it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
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


def entry_of(message: Mapping[str, Any], usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a script that answers with a message.

    Args:
        message: Of a model.
        usage: What it used; numbers that are nothing are left out.
    """
    calls = [
        {"id": call["id"], "name": call["function"]["name"], "arguments": _arguments_of(call)}
        for call in message.get("tool_calls") or ()
    ]
    found = {
        "text": message.get("content") or "",
        "reasoning": message.get("reasoning", ""),
        "calls": calls,
        "usage": {name: n for name, n in usage.items() if n or name == "cost_usd"},
    }
    return {name: one for name, one in found.items() if one}


def _arguments_of(call: Mapping[str, Any]) -> Any:
    """Return the arguments of a call as data, where they would be sent as they were."""
    sent = call["function"]["arguments"]
    try:
        data = json.loads(sent)
    except (ValueError, RecursionError):
        return sent
    return data if isinstance(data, dict) and json.dumps(data) == sent else sent


def _answered(reply: ModelReply) -> dict[str, Any]:
    ended = {} if reply.finish in ("calls", "stop") else {"finish": reply.finish}
    return {**entry_of(reply.message, asdict(reply.usage)), **ended}


def _raised(error: StepError) -> dict[str, Any]:
    entry = {"raise": error.name, "message": error.message}
    more = {"retryable": error.retryable, "retry_after": error.retry_after}
    return entry | {key: value for key, value in more.items() if value is not None}

"""Recording of a model's replies as a script that reproduces them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from flowengine.agents.models.port import Listener, Model, ModelFacts, ModelReply, ModelRequest
from flowengine.agents.text_calls.records import object_in
from flowengine.sdk import StepError


class Recorder:
    """Passes requests on to a model, and records them with the replies.

    `script` is accepted by `ScriptedModel`, and as the content of a `scripted/FILE`. It does not
    contain keys or other settings, or the messages sent to the model.

    Args:
        model: The model to call.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.requests: list[ModelRequest] = []
        self.script: list[dict[str, Any]] = []
        """Replies and errors as data, in order of arrival."""

    async def complete(self, request: ModelRequest, listen: Listener | None = None) -> ModelReply:
        """Call the model, as declared by `Model`, and record the reply."""
        self.requests.append(request)
        try:
            reply = await self._model.complete(request, listen)
        except StepError as error:
            self.script.append(_raised(error))
            raise
        self.script.append(_answered(reply))
        return reply

    async def facts(self, model: str) -> ModelFacts:
        """Return the facts about a model, as declared by `Model`."""
        return await self._model.facts(model)


def entry_of(message: Mapping[str, Any], usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return the script entry that reproduces a message.

    Args:
        message: Message of a model.
        usage: Its usage. Zeros are left out.
    """
    calls = [
        {"id": call["id"], "name": call["function"]["name"], "arguments": _arguments_of(call)}
        for call in message.get("tool_calls") or ()
    ]
    recorded = {
        "text": message.get("content") or "",
        "reasoning": message.get("reasoning", ""),
        "calls": calls,
        "usage": {name: n for name, n in usage.items() if n or name == "cost_usd"},
    }
    return {name: value for name, value in recorded.items() if value}


def _arguments_of(call: Mapping[str, Any]) -> Any:
    """Return the arguments of a call as data, if serializing it reproduces the original text."""
    sent = call["function"]["arguments"]
    data = object_in(sent)
    return sent if data is None or json.dumps(data) != sent else data


def _answered(reply: ModelReply) -> dict[str, Any]:
    ended = {} if reply.finish in ("calls", "stop") else {"finish": reply.finish}
    return {**entry_of(reply.message, asdict(reply.usage)), **ended}


def _raised(error: StepError) -> dict[str, Any]:
    entry = {"raise": error.name, "message": error.message}
    more = {"retryable": error.retryable, "retry_after": error.retry_after}
    return entry | {key: value for key, value in more.items() if value is not None}

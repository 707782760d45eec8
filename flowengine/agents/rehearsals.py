"""Turns of agents in test cases. Replies come from the case, everything else runs as usual."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from flowengine.agents.context_reduction import ContextReduction
from flowengine.agents.first_messages import chosen, declared_models, opened_with
from flowengine.agents.models.failures import ContextWindowExceeded
from flowengine.agents.models.port import MODEL_VARIABLE, ModelRequest
from flowengine.agents.models.scripted import replied
from flowengine.agents.reply_reading import ReplyReading
from flowengine.agents.server_tools import scripted
from flowengine.agents.text_calls.marked_form import object_in
from flowengine.agents.turn_taking import turn_of
from flowengine.sdk import Plain, StepContext
from flowengine.sdk.steps.rehearsals import Rehearsal
from flowengine.sdk.values.read_only import plain

NAMELESS = "scripted/case"
"""The model if none is configured, so that running cases requires no variables."""
_TOO_LONG = ContextWindowExceeded("the case raises this error")


def opening(task: Mapping[str, Any], input: Mapping[str, Any]) -> Rehearsal:
    """Return the opening of an agent's work, with the server tools of the case."""
    models = {
        name: {**value, "model": value["model"] or os.environ.get(MODEL_VARIABLE) or NAMELESS}
        for name, value in task["models"].items()
    }
    instead = input.get("model") or ""
    named = {"models": chosen(models, instead), **declared_models(task["models"], instead)}
    args, wanted = input.get("args") or {}, task.get("servers")
    if not wanted:
        return Rehearsal(lambda _: opened_with(named, args))
    return Rehearsal(
        lambda reply: opened_with(named, args, scripted(reply.get("tools", []), wanted).data),
        names_tools=True,
    )


def turn(context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]) -> Rehearsal:
    taken = turn_of(context, task, input)
    request = taken.request(taken.model)
    size = taken.size(request)
    if taken.agent["context"] is not None:
        size.check()
    too_long = size.refused(_TOO_LONG, reduces=True)
    return Rehearsal(
        lambda reply: ReplyReading(taken, replied(reply, request)).output(),
        asked=_asked(request),
        reply=_reply_of,
        error_data={"ContextWindowExceeded": too_long.data},
    )


def reduction(
    context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
) -> Rehearsal:
    made = ContextReduction(context, task, input)
    cut = made.cut()
    if not (made.summarizes and cut["left_out"]):
        return Rehearsal(lambda _: cut)
    request = made.request(cut)
    return Rehearsal(
        lambda reply: made.summarized(cut, replied(reply, request)),
        asked=_asked(request),
        reply=_summary_of,
    )


def _asked(request: ModelRequest) -> dict[str, Plain]:
    first, *others = request.messages
    return {
        "instructions": first["content"],
        "tools": {
            tool.name: {"description": tool.description, "parameters": plain(tool.parameters)}
            for tool in request.tools
        },
        # The messages of models are already in the replies.
        "messages": [plain(other) for other in others if other["role"] != "assistant"],
    }


def _reply_of(output: Any) -> dict[str, Plain]:
    """Return the reply that produced the output of a turn."""
    parts = output["message"].get("provider_parts")
    entry = _entry(output["message"], output["usage"])
    return {**entry, "provider_parts": parts} if parts else entry


def _summary_of(output: Any) -> dict[str, Plain]:
    return _entry({"content": output["summary"]}, output["usage"])


def _entry(message: Mapping[str, Any], usage: Mapping[str, Any]) -> dict[str, Any]:
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

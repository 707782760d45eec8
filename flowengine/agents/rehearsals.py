"""Turns of agents in test cases. Replies come from the case, everything else runs as usual."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from flowengine.agents.first_messages import asked, models_on_offer, opened_with
from flowengine.agents.models.failures import ContextWindowExceeded
from flowengine.agents.models.port import MODEL_VARIABLE, ModelRequest
from flowengine.agents.models.scripted import replied
from flowengine.agents.reply_reading import ReplyReading
from flowengine.agents.rounds.parts import AskModel, Summarize
from flowengine.agents.server_tools import scripted
from flowengine.agents.text_calls.marked_form import object_in
from flowengine.agents.turn_taking import TakenRound
from flowengine.sdk import Plain
from flowengine.sdk.steps.rehearsals import Rehearsal
from flowengine.sdk.values.read_only import plain

NAMELESS = "scripted/case"
"""The model if none is configured, so that running cases requires no variables."""
_TOO_LONG = ContextWindowExceeded("the case raises this error")


def opening(task: Mapping[str, Any], input: Mapping[str, Any]) -> Rehearsal:
    """Return the opening of an agent's work, with the server tools of the case."""
    instead, args = asked(input)
    named, wanted = models_on_offer(_named(task["models"]), instead), task["servers"]
    return Rehearsal(
        lambda reply: opened_with(named, args, scripted(reply.get("tools", []), wanted).data),
        names_tools=True,
    )


def _named(models: Mapping[str, Any]) -> dict[str, Any]:
    """Return the models of agents, with one for those that name none."""
    nameless = os.environ.get(MODEL_VARIABLE) or NAMELESS
    return {name: {**value, "model": value["model"] or nameless} for name, value in models.items()}


def turn(taken: TakenRound) -> Rehearsal | None:
    """Return a round, with the reply of the case if it calls the model."""
    if taken.opens:
        taken.agent = {**taken.agent, "offers": _named(taken.agent["offers"])}
    made = taken.made_again()
    if isinstance(made, Summarize):
        summary = taken.summary(made)
        return Rehearsal(
            lambda reply: taken.summarized(made, replied(reply, summary)),
            asked=_asked(summary),
            reply=lambda output: _entry({"content": output["summary"]}, output["usage"]),
        )
    if not isinstance(made, AskModel):
        return Rehearsal(lambda _: made)
    ahead = taken.round.ahead
    if ahead is not None:
        return Rehearsal(lambda _: taken.replied(ahead))
    if "instructions" in taken.agent:
        return None  # a function of the program supplies them
    turn = taken.turn(str(taken.input["instructions"]))
    request = turn.request(turn.model)
    size = turn.size(request)
    if taken.agent["context"] is not None:
        size.check()
    too_long = size.refused(_TOO_LONG, reduces=True)
    return Rehearsal(
        lambda reply: taken.replied(ReplyReading(turn, replied(reply, request)).output()),
        asked=_asked(request),
        reply=_reply_of,
        error_data={"ContextWindowExceeded": too_long.data},
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

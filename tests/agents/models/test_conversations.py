"""One conversation through the port, in every way in which a model may call a tool."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowengine.agents.models import Message, Model, RateLimited
from flowengine.agents.models.recording import Recorder
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.agents.text_calls.formats import FORMATS, Format
from tests.agents.models.asking import Heard, request

ARGUMENTS = {"a": 1, "b": 2}


async def converse(model: Model, listen: Any = None, **more: Any) -> list[Message]:
    """Ask what 1 + 2 is, add, and ask again."""
    messages: list[Message] = [{"role": "user", "content": "What is 1 + 2?"}]
    while True:
        reply = await model.complete(request(messages=list(messages), **more), listen)
        messages.append(reply.message)
        if not reply.calls:
            return messages
        for call in reply.calls:
            result = str(sum(call.arguments.values()))
            messages.append(
                {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": result}
            )


def without_ids(messages: list[Message]) -> list[Message]:
    found = []
    for message in messages:
        one = dict(message)
        one.pop("tool_call_id", None)
        if calls := one.get("tool_calls"):
            one["tool_calls"] = [call | {"id": ""} for call in calls]
        found.append(one)
    return found


def native() -> list[Message]:
    call = {"name": "math.add", "arguments": ARGUMENTS}
    script = ScriptedModel([{"text": "Let me see.", "calls": [call]}, {"text": "3"}])
    return without_ids(asyncio.run(converse(script)))


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_the_conversation_is_the_same_whatever_the_format(form: Format) -> None:
    written = f"Let me see.\n{form.write([('math.add', ARGUMENTS)])}"
    model = ScriptedModel([{"text": written}, {"text": "3"}])
    heard = Heard()

    messages = asyncio.run(converse(model, heard, function_calling="text", text_format=form.name))

    assert without_ids(messages) == native()
    assert "".join(heard.text.split()) == "Letmesee.3"


def test_what_was_recorded_answers_the_same() -> None:
    call = {"name": "math.add", "arguments": ARGUMENTS, "id": "x"}
    used = {"input_tokens": 9, "output_tokens": 1, "cost_usd": 0.5}
    script: list[Any] = [
        {"raise": "RateLimited", "message": "slow down", "retry_after": 7},
        {"text": "Let me see.", "reasoning": "hm", "calls": [call], "usage": used},
        {"text": "3", "finish": "length"},
    ]
    recorder = Recorder(ScriptedModel(script))

    def play(model: Model) -> list[Message]:
        with pytest.raises(RateLimited) as told:
            asyncio.run(converse(model))
        assert (told.value.message, told.value.retry_after) == ("slow down", 7)
        return asyncio.run(converse(model))

    first = play(recorder)
    again = Recorder(ScriptedModel(recorder.script))

    assert play(again) == first
    assert again.script == recorder.script
    assert len(recorder.requests) == 3

"""One conversation through the port, for every way in which a model may call a tool."""

from __future__ import annotations

import asyncio
from typing import Any

from flowengine.agents.models import Message, Model, ModelRequest
from flowengine.agents.models.scripted import ScriptedModel
from tests.agents.models.asking import Heard, request, written
from tests.rows import each_row

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


@each_row("words", ["Let me see.\n{}", "<think>Hm.</think>Let me see.\n\n{}\n"])
# Shows M57, M65, M71
def test_the_conversation_is_the_same_where_calls_are_text(words: str) -> None:
    def first(asked: ModelRequest) -> dict[str, str]:
        return {"text": words.replace("{}", written(asked, "math.add", **ARGUMENTS))}

    model = ScriptedModel([first, {"text": "3"}])
    heard = Heard()

    messages = asyncio.run(converse(model, heard, function_calling="text"))
    messages[1].pop("reasoning", None)

    assert without_ids(messages) == native()
    assert "".join(heard.text.split()) == "Letmesee.3"

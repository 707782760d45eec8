from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from flowengine.agents.models import (
    ContextWindowExceeded,
    ModelError,
    ModelReply,
    ModelRequest,
    RateLimited,
    register,
    resolve,
    unregister,
    using,
)
from flowengine.agents.models.replies import form_of
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.errors import InputError
from flowengine.sdk import StepError, Timeout
from tests.agents.models.asking import Heard, request
from tests.rows import each_row


def ask(model: Any, *requests: ModelRequest) -> list[ModelReply]:
    async def all_of_them() -> list[ModelReply]:
        return [await model.complete(one) for one in requests]

    return asyncio.run(all_of_them())


@each_row(
    ("entry", "kind", "retryable"),
    [
        ({"raise": "RateLimited", "retry_after": 7}, RateLimited, None),
        ({"raise": "ContextWindowExceeded"}, ContextWindowExceeded, False),
        ({"raise": "Timeout"}, Timeout, None),
        ({"raise": "ModelError", "retryable": False}, ModelError, False),
        ({"raise": "mine.Own"}, StepError, None),
    ],
)
def test_an_entry_may_raise(entry: dict[str, Any], kind: type[StepError], retryable: Any) -> None:
    model = ScriptedModel([entry, {"text": "then"}])

    with pytest.raises(kind, match="the script raises this error") as told:
        ask(model, request())

    assert told.value.name == entry["raise"]
    assert told.value.retryable is retryable
    assert told.value.retry_after == entry.get("retry_after")
    assert ask(model, request())[0].message["content"] == "then"


def test_an_entry_is_chosen_by_the_instructions_or_by_the_last_message() -> None:
    said = {"role": "user", "content": "Was it sent?"}
    script: list[Any] = [
        {"text": "brief", "when": {"instructions": "briefly"}},
        {"text": "sent", "when": {"contains": "sent"}, "repeat": True},
        {"text": "never", "when": {"contains": "briefly"}},
        {"text": "never", "when": {"instructions": "sent"}},
    ]
    messages = [{"role": "system", "content": "Answer briefly."}, said]
    instructed, other = request(messages=messages), request(messages=[said])

    replies = ask(ScriptedModel(script), instructed, instructed, other)

    assert [reply.message["content"] for reply in replies] == ["brief", "sent", "sent"]


@each_row(
    ("entry", "message"),
    [
        ({"txt": "a"}, r"s\[0\]\.txt: unknown key: known are text, .*, raise, "),
        (
            {"when": {"turns": 1}},
            r"s\[0\]\.when\.turns: .*known are agent, model, instructions, contains, turn$",
        ),
        (3, r"s\[0\]: must be a mapping"),
        ({"text": 1}, r"s\[0\]\.text: must be text"),
        ({"calls": [{"arguments": {}}]}, r"s\[0\]\.calls\.0\.name: field required"),
    ],
)
def test_a_wrong_entry_is_told_by_its_place(entry: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ScriptedModel([entry], name="s")


def test_a_listener_hears_what_arrives_and_a_cut_that_takes_it_back() -> None:
    model = ScriptedModel(
        [
            {"text": "half of an ans", "raise": "ModelError", "cut": True},
            {"text": "a whole answer", "reasoning": "hm", "calls": [{"name": "math.add"}]},
        ]
    )
    heard = Heard()

    async def twice() -> ModelReply:
        with pytest.raises(ModelError):
            await model.complete(request(), heard)
        return await model.complete(request(), heard)

    asyncio.run(twice())

    assert heard.kinds == ["start", "text", "restart", "start", "reasoning", "text", "call", "end"]
    told = heard.text.removeprefix("half of an ans")
    assert told == "a whole answer"


def test_a_listener_that_fails_costs_no_reply(caplog: pytest.LogCaptureFixture) -> None:
    def fail(part: object) -> None:
        raise ValueError("the listener is broken")

    reply = asyncio.run(ScriptedModel([{"text": "fine"}]).complete(request(), fail))

    assert reply.message["content"] == "fine"
    assert len(caplog.records) == 1


# Shows M67
def test_a_model_without_function_calling_writes_its_calls() -> None:
    heard = Heard()
    asked = request(function_calling="text")
    text = f"Hi\n{form_of(asked).opening} tool=\"math.add\">{{'a': 1, 'b': 2}}"

    reply = asyncio.run(ScriptedModel([{"text": text}]).complete(asked, heard))

    assert [call.arguments for call in reply.calls] == [{"a": 1, "b": 2}]
    assert reply.message["content"] == "Hi"
    assert "repaired" in {event["event"] for event in reply.events}
    assert heard.text == "Hi"


def test_a_file_answers_by_the_turn_of_the_conversation_in_every_process(folder: Path) -> None:
    (folder / "replies.yaml").write_text("- first\n- {raise: RateLimited}\n- {text: second}\n")
    later = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "first"},
        {"role": "user", "content": "and?"},
    ]
    model = resolve("scripted/replies.yaml")

    assert resolve("scripted/replies.yaml") is model
    with pytest.raises(RateLimited):
        ask(model, request(messages=later))
    replies = ask(model, request(messages=later), request(), request())

    assert [reply.message["content"] for reply in replies] == ["second", "first", "first"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "No such file"),
        ("a: b", "must be a list"),
        ("- text: a\n- text: [b", r"it is not YAML in line 2, column 11: expected '[^\n]*$"),
        ("- " + "[" * 600, "it is not YAML"),
        ("- {txt: a}", "unknown key"),
    ],
)
def test_a_file_that_is_no_script_is_told(text: str | None, reason: str, folder: Path) -> None:
    if text is not None:
        (folder / "broken.yaml").write_text(text)

    with pytest.raises(ModelError, match=reason) as told:
        resolve("scripted/broken.yaml")

    assert told.value.retryable is False


def test_names_lead_to_who_is_in_front() -> None:
    mine, everywhere = ScriptedModel([]), ScriptedModel([])
    register("scripted/mine", mine)
    register("own", mine)
    try:
        assert resolve("scripted/mine") is mine
        assert resolve("own/any-model") is mine
        with using(everywhere):
            assert resolve("scripted/mine") is everywhere
            assert resolve("openai/gpt-4o") is everywhere
        with pytest.raises(ModelError, match="there are scripted/mine"):
            resolve("scripted/other")
    finally:
        unregister("scripted/mine")
        unregister("own")
    with pytest.raises(ModelError, match="no model is named"):
        resolve(" ")


def test_tasks_started_in_the_block_ask_the_model_in_front() -> None:
    model = ScriptedModel([{"text": "here"}])

    async def elsewhere() -> ModelReply:
        return await resolve("openai/gpt-4o").complete(request())

    async def main() -> ModelReply:
        with using(model):
            task = asyncio.create_task(elsewhere())
        return await task

    assert asyncio.run(main()).message["content"] == "here"

"""Requests as a provider receives them, byte for byte."""

from __future__ import annotations

import asyncio
from json import dumps
from typing import Any

import pytest

from flowengine.agents.models import Message, ModelReply, ToolOffer, resolve
from flowengine.sdk.texts.untrusted import RULES
from tests.agents.models.asking import ADD, request
from tests.agents.models.wire import Answer, Wire, failed, replied, written

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
ADDED = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "x",
            "type": "function",
            "function": {"name": "math.add", "arguments": '{"a": 1, "b": 2}'},
        }
    ],
}
THREE = {"role": "tool", "tool_call_id": "x", "name": "math.add", "content": "3"}
HISTORY: list[Message] = [
    {"role": "system", "content": "Be {exact}, 100 %s \\n."},
    {"role": "user", "content": "What is 1 + 2?"},
    ADDED,
    THREE,
]
EXPLAINED = f"{HISTORY[0]['content']}\n\n{RULES}"


def ask(wire: Wire, model: str = "openai/gpt-4o", **more: Any) -> ModelReply:
    base = wire.url if model.startswith("anthropic") else f"{wire.url}/v1"
    more.setdefault("settings", {"api_key": "key", "api_base": base})
    listen = more.pop("listen", None)
    return asyncio.run(resolve(model).complete(request(model=model, **more), listen))


def body(wire: Wire, model: str = "openai/gpt-4o", **more: Any) -> Any:
    """Return the request. The reply does not matter here."""
    claude = b'{"id":"1","type":"message","role":"assistant","model":"m","content":[{"type":"text",'
    claude += (
        b'"text":"Hi"}],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":1}}'
    )
    json = {"Content-Type": "application/json"}
    wire.answer(Answer((claude,), 200, json) if model.startswith("anthropic") else replied())
    ask(wire, model, **more)
    return wire.requests[-1].body


def test_a_request_of_a_model_with_function_calling(wire: Wire) -> None:
    sent = body(wire, messages=HISTORY)

    assert sent == {
        "model": "gpt-4o",
        "messages": [
            {"role": "system", "content": EXPLAINED},
            HISTORY[1],
            {
                "role": "assistant",
                "tool_calls": [
                    {
                        "id": "x",
                        "type": "function",
                        "function": {"name": "math__add", "arguments": '{"a": 1, "b": 2}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "x", "name": "math__add", "content": "3"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "math__add",
                    "description": "Add two numbers.",
                    "parameters": ADD.parameters,
                },
            }
        ],
    }


# Shows M54, M55
def test_a_request_of_a_model_without_it(wire: Wire) -> None:
    sent = body(wire, "openai/deepseek-r1", messages=HISTORY)

    assert set(sent) == {"model", "messages"}
    system, user, assistant, result = sent["messages"]
    assert system["role"] == "system"
    assert system["content"].startswith("You can call these tools:\n\nTool: math.add")
    assert system["content"].endswith(EXPLAINED)
    assert user == HISTORY[1]
    assert assistant == {"role": "assistant", "content": written(sent, "math.add", a=1, b=2)}
    mark = assistant["content"][len("<call-") :][:8]
    assert result == {
        "role": "user",
        "content": f'<result-{mark} tool="math.add">\n3\n</result-{mark}>',
    }


@pytest.mark.parametrize(
    ("model", "offers"),
    [
        ("xai/grok-4.3", True),
        ("openai/llama-3.3-70b-versatile", True),
        ("openai/grok-9-of-tomorrow", True),
        ("deepseek/deepseek-reasoner", False),
        ("openai/o1-mini", False),
    ],
)
def test_the_librarys_table_says_who_calls_functions(model: str, offers: bool, wire: Wire) -> None:
    assert ("tools" in body(wire, model)) == offers


@pytest.mark.parametrize(
    ("choice", "shown", "last"),
    [
        ("none", [], ""),
        ("auto", ["math.add", "now"], "Without a call, your reply is your answer."),
        ("required", ["math.add", "now"], "Your reply must have a call."),
        ("now", ["now"], "Your reply must have a call."),
    ],
)
def test_a_choice_holds_without_function_calling(
    choice: str, shown: list[str], last: str, wire: Wire
) -> None:
    now = ToolOffer("now", "Say what time it is.", {"type": "object", "properties": {}})

    sent = body(wire, "openai/deepseek-r1", tools=(ADD, now), tool_choice=choice)

    text = "".join(one["content"] for one in sent["messages"] if one["role"] == "system")
    assert [name for name in ("math.add", "now") if f"Tool: {name}\n" in text] == shown
    assert last in text


@pytest.mark.parametrize(
    ("more", "sent"),
    [
        ({}, {}),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
        (
            {"tool_choice": "math.add"},
            {"tool_choice": {"type": "function", "function": {"name": "math__add"}}},
        ),
        ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
        ({"tool_choice": "none"}, {"tool_choice": "none"}),
        ({"tools": (), "tool_choice": "auto", "parallel_tool_calls": False}, {}),
    ],
)
# Shows M7
def test_choice_and_parallel_calls_are_sent_where_there_are_tools(
    more: dict[str, Any], sent: dict[str, Any], wire: Wire
) -> None:
    found = body(wire, **more)

    assert {key: found[key] for key in ("tool_choice", "parallel_tool_calls") if key in found} == (
        sent
    )
    assert ("tools" in found) == (more.get("tools") != ())


# Shows M7
def test_a_provider_that_takes_neither_gets_neither(wire: Wire) -> None:
    found = body(wire, "perplexity/sonar", tools=(), tool_choice="auto", parallel_tool_calls=False)

    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(found)
    assert "tools" not in body(wire, "perplexity/sonar", tool_choice="none")


def test_settings_reach_the_provider(wire: Wire) -> None:
    settings = {"api_key": "key", "api_base": f"{wire.url}/v1", "temperature": 0.5, "seed": 7}

    found = body(wire, settings=settings)

    assert (found["temperature"], found["seed"]) == (0.5, 7)
    assert "api_key" not in found


SCHEMA = {
    "type": "object",
    "properties": {"sum": {"type": "integer"}},
    "required": ["sum"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("tools", [(), (ADD,)])
@pytest.mark.parametrize("strict", [True, False])
def test_an_answer_is_held_to_a_schema_by_the_provider(
    tools: tuple[ToolOffer, ...], strict: bool, wire: Wire
) -> None:
    schema = SCHEMA if strict else {**SCHEMA, "required": []}

    found = body(wire, tools=tools, returns=schema)

    form = {"name": "answer", "schema": schema, "strict": strict}
    assert found["response_format"] == {"type": "json_schema", "json_schema": form}
    explained = [{"role": "system", "content": RULES}] if tools else []
    assert found["messages"] == [*explained, {"role": "user", "content": "What is 1 + 2?"}]


def test_the_schema_is_told_in_words_where_the_provider_has_no_other_way(wire: Wire) -> None:
    words = "Your final answer must be one JSON value that fits this JSON Schema"
    model = "openai/gpt-3.5-turbo"  # listed in the table, but without a mode for schemas

    found = body(wire, model, returns=SCHEMA)
    with_system = body(wire, model, returns=SCHEMA, messages=HISTORY)

    assert "response_format" not in found
    assert found["messages"][0]["role"] == "system"
    assert found["messages"][0]["content"].startswith(words)
    assert with_system["messages"][0]["content"].startswith(f"{HISTORY[0]['content']}\n\n{words}")
    assert HISTORY[0]["content"] == "Be {exact}, 100 %s \\n."


def test_a_server_that_nobody_knows_gets_the_schema_in_both_ways(wire: Wire) -> None:
    found = body(wire, "openai/of-my-own", returns=SCHEMA, tools=())
    with_tools = body(wire, "openai/of-my-own", returns=SCHEMA)

    assert found["response_format"]["json_schema"]["schema"] == SCHEMA
    assert "response_format" not in with_tools  # calls would have to match the schema, too
    for sent in (found, with_tools):
        assert "fits this JSON Schema" in sent["messages"][0]["content"]


def test_what_a_provider_keeps_is_marked_and_stays_the_same(wire: Wire) -> None:
    mark = {"type": "ephemeral"}
    model = "anthropic/claude-sonnet-4-5"

    first = body(wire, model, messages=HISTORY[:2])
    second = body(wire, model, messages=HISTORY)

    text = EXPLAINED
    assert first["system"] == [{"type": "text", "text": text, "cache_control": mark}]
    assert first["messages"][-1]["content"][-1]["cache_control"] == mark
    assert second["system"] == first["system"]
    assert second["tools"] == first["tools"]
    assert second["messages"][0]["content"][0]["text"] == "What is 1 + 2?"
    assert "cache_control" not in second["messages"][0]["content"][0]
    last = second["messages"][-1]["content"][-1]
    assert (last["type"], last["cache_control"]) == ("tool_result", mark)


def test_the_request_before_is_found_after_a_reply_with_many_calls(wire: Wire) -> None:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "add", "arguments": "{}"}}
        for n in range(10)
    ]
    reply = {"role": "assistant", "content": "", "tool_calls": calls}
    results = [
        {"role": "tool", "tool_call_id": f"c{n}", "name": "add", "content": "3"} for n in range(10)
    ]

    sent = body(wire, "anthropic/claude-sonnet-4-5", messages=[*HISTORY[:2], reply, *results])

    asked, _, answers = (message["content"] for message in sent["messages"])
    assert asked[-1]["cache_control"] == {"type": "ephemeral"}
    assert ["cache_control" in answer for answer in answers] == [*[False] * 9, True]


def test_a_conversation_with_gemini(wire: Wire) -> None:
    candidate = {"content": {"role": "model", "parts": [{"text": "3"}]}, "finishReason": "STOP"}
    reply = {"candidates": [candidate], "usageMetadata": {"totalTokenCount": 0}}
    wire.answer(Answer((dumps(reply).encode(),), 200, {"Content-Type": "application/json"}))
    settings = {"api_key": "key", "api_base": f"{wire.url}/v1beta"}

    answered = ask(wire, "gemini/gemini-2.5-flash", messages=HISTORY, settings=settings)

    [sent] = wire.requests
    assert sent.path == "/v1beta/models/gemini-2.5-flash:generateContent"
    assert sent.body["system_instruction"] == {"parts": [{"text": EXPLAINED}]}
    call = {"name": "math__add", "args": {"a": 1, "b": 2}}
    result = {"name": "math__add", "response": {"content": "3"}}
    assert sent.body["contents"] == [
        {"role": "user", "parts": [{"text": "What is 1 + 2?"}]},
        {"role": "model", "parts": [{"function_call": call}]},
        {"role": "user", "parts": [{"function_response": result}]},
    ]
    assert answered.message["content"] == "3"
    assert answered.usage.estimated


def test_what_a_provider_said_of_its_thoughts_goes_back_to_it_alone(wire: Wire) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "signed"}
    parts = {"anthropic": {"thinking_blocks": [thought]}}
    history = [*HISTORY[:2], {**ADDED, "reasoning": "hm", "provider_parts": parts}, THREE]
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048}
    key = {"api_key": "key", "api_base": wire.url}

    claude = body(wire, "anthropic/claude-sonnet-4-5", messages=history, settings=thinking | key)
    other = body(wire, messages=history)

    assert claude["messages"][1]["content"][0] == thought
    assert "signed" not in str(other)
    assert "reasoning" not in str(other)
    assert "provider_parts" not in str([claude, other])


def test_images_go_to_models_that_take_them(wire: Wire) -> None:
    parts = [{"type": "text", "text": "What is this?"}, IMAGE]
    messages = [{"role": "user", "content": parts}]

    seen = body(wire, messages=messages)
    unknown = body(wire, "openai/of-my-own", messages=messages)
    blind = body(wire, "openai/gpt-3.5-turbo", messages=messages)

    assert seen["messages"][1]["content"] == parts
    assert unknown["messages"][1]["content"] == parts
    assert "aGk=" not in str(blind)
    assert "An image was left out" in str(blind["messages"][1]["content"])


def test_a_call_that_could_not_be_read_goes_back_as_an_object(wire: Wire) -> None:
    broken = {"id": "x", "type": "function", "function": {"name": "math.add", "arguments": '{"a'}}
    history = [HISTORY[1], {**ADDED, "tool_calls": [broken]}, THREE]

    [call] = body(wire, messages=history)["messages"][2]["tool_calls"]

    assert call["function"]["arguments"] == '{"unreadable": "{\\"a"}'


def test_a_call_made_by_another_provider_has_an_id_that_mistral_takes(wire: Wire) -> None:
    _, _, assistant, result = body(wire, "mistral/mistral-large-latest", messages=HISTORY)[
        "messages"
    ]

    [call] = assistant["tool_calls"]
    assert call["id"].isalnum()
    assert len(call["id"]) == 9
    assert result["tool_call_id"] == call["id"]


def test_nothing_is_left_of_a_request_that_failed(wire: Wire) -> None:
    """The caller's messages are unchanged."""
    messages = [dict(one) for one in HISTORY]
    wire.answer(failed(400))

    with pytest.raises(Exception, match="no"):
        ask(wire, messages=messages)

    assert messages == HISTORY


@pytest.mark.parametrize(
    ("model", "settings", "sent"),
    [
        ("openai/gpt-4o", {}, {"max_tokens": 100}),
        ("openai/gpt-4o", {"max_tokens": 50}, {"max_tokens": 50}),
        ("openai/gpt-4o", {"max_tokens": 500}, {"max_tokens": 100}),
        ("openai/gpt-4o", {"max_completion_tokens": 500}, {"max_completion_tokens": 100}),
        ("openai/gpt-5", {}, {"max_completion_tokens": 100}),
        ("anthropic/claude-sonnet-4-5", {}, {"max_tokens": 100}),
    ],
)
def test_a_reply_is_bounded_in_the_words_of_its_provider(
    wire: Wire, model: str, settings: dict[str, int], sent: dict[str, int]
) -> None:
    base = wire.url if model.startswith("anthropic") else f"{wire.url}/v1"
    whole = {"api_key": "key", "api_base": base, **settings}
    found = body(wire, model, settings=whole, longest_reply=100)

    assert {name: one for name, one in found.items() if name.startswith("max_")} == sent

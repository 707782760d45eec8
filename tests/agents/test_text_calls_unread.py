"""Forms of calls, in every order of their parts and in every place: told, and never the answer.

And their counterparts: prose, documentation, results and other JSON that mention a tool, which stay
answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest

from flowengine.agents.models.port import FunctionCalling
from flowengine.agents.models.replies import SentReply, read_sent
from flowengine.agents.text_calls.marked_form import ToolOffer
from tests.agents.add import ADD
from tests.agents.models.asking import request
from tests.rows import each_row

BAR, GAP = "\uff5c", "\u2581"
NOW = ToolOffer("get_time", "Tells the time.", {"type": "object", "properties": {}})
DOTTED = ToolOffer("github.get_issue", "", ADD.schema)
TOOLS = (ADD, NOW, DOTTED)
ARGS: dict[str, Any] = {"a": 1, "b": 2}

# Calls as JSON

NAMES = ("name", "tool", "tool_name", "function", "recipient_name", "action", "toolName", "Name")
ARGUMENTS = (
    "arguments", "parameters", "args", "input", "params", "action_input", "tool_input",
    "toolInput", "Arguments",
)  # fmt: skip
WRAPPERS = {
    "bare": "{}",
    "list": "[{}]",
    "hermes": "<tool_call>\n{}\n</tool_call>",
    "hermes, open": "<tool_call>{}",
    "several": "<tool_calls>[{}]</tool_calls>",
    "granite": "<|tool_call|>[{}]",
    "function_call": "<function_call> {}",
    "llama": "<|python_tag|>{}<|eom_id|>",
    "mistral": "[TOOL_CALLS][{}]",
    "functools": "functools[{}]",
    "internlm": "<|action_start|><|plugin|>\n{}<|action_end|>",
    "command-r": "Action: ```json\n[{}]\n```",
    "langchain": "Action:\n```json\n{}\n```",
    "nemotron": "<TOOLCALL>[{}]</TOOLCALL>",
    "fence": "```json\n{}\n```",
    "fence of calls": "```tool_call\n{}\n```",
}
INSIDE_A_FENCE = ("fence",)
PLACES = {
    "alone": "{}",
    "after words": "I will do that.\n\n{}",
    "before words": "{}\n\nThen I will tell you.",
    "between lines": "I will do that now:\n{}\nPlease wait.",
}


def objects() -> Iterator[str]:
    """Yield calls as JSON: each pair of keys in both orders, and with more keys in all orders."""
    for name in NAMES:
        for arguments in ARGUMENTS:
            yield json.dumps({name: "add", arguments: ARGS})
            yield json.dumps({arguments: ARGS, name: "add"})
    more = {"id": "x1", "type": "function", "name": "add", "arguments": ARGS}
    for order in permutations(more):
        yield json.dumps({key: more[key] for key in order})
    yield json.dumps({"arguments": ARGS, "name": "add"}, indent=2)
    yield json.dumps({"arguments": json.dumps(ARGS), "name": "add"})
    inner = {"arguments": json.dumps(ARGS), "name": "add"}
    yield json.dumps({"function": inner, "type": "function", "id": "x1"})
    yield "{'arguments': {'a': 1, 'b': 2}, 'name': 'add'}"
    yield '{"arguments": {"a": 1, "b": 2}, "name": "add"'


# Other forms, most of them with the arguments before the name

OTHERS = {
    "kimi k3": (
        '<|open|>tools<|sep|><|open|>call tool="add" index="1"<|sep|><|open|>argument key="a" '
        'type="number"<|sep|>1<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>'
    ),
    "kimi k3, one call": '<|open|>call tool="add"',
    "kimi k3, the index first": '<|open|>call index="1" tool="add"<|sep|>',
    "kimi k3 without its tokens": 'tools call tool="add" index="1"',
    "pythonic": "[add(a=1, b=2)]",
    "pythonic, two": "[add(a=1, b=2), add(a=3, b=4)]",
    "pythonic, spaced": "[ add( a = 1, b = 2 ) ]",
    "function syntax": "add(a=1, b=2)",
    "function syntax, an object": 'add({"a": 1, "b": 2})',
    "function syntax, several lines": "add(\n    a=1,\n    b=2,\n)",
    "print": "print(add(a=1, b=2))",
    "without arguments": "get_time()",
    "react": 'Action: add\nAction Input: {"a": 1, "b": 2}',
    "react, reversed": 'Action Input: {"a": 1, "b": 2}\nAction: add',
    "react, bold": '**Action:** add\n**Action Input:** {"a": 1, "b": 2}',
    "react, no JSON": "Thought: I add.\nAction: add\nAction Input: 1, 2",
    "react, snake case": 'action: add\naction_input: {"a": 1, "b": 2}',
    "react, in brackets": "Thought 1: I add.\nAction: add[1, 2]",
    "react, function syntax": "Action: add(1, 2)",
    "yaml": "tool: add\narguments:\n  a: 1\n  b: 2",
    "arguments beside the name": '{"tool": "add", "a": 1, "b": 2}',
    "arguments beside the name, reversed": '{"a": 1, "b": 2, "name": "add"}',
    "javascript": '{name: "add", arguments: {a: 1, b: 2}}',
    "awaited": "await add(a=1, b=2)",
    "assigned": "total = add(a=1, b=2)",
    "labels": 'Tool: add\nArguments: {"a": 1, "b": 2}',
    "labels, reversed": 'Parameters: {"a": 1, "b": 2}\nFunction: add',
    "two lines": 'add\n{"a": 1, "b": 2}',
    "two lines, reversed": '{"a": 1, "b": 2}\nadd',
    "two lines, bold": '**add**\n{"a": 1, "b": 2}',
    "two lines, pretty": 'add\n{\n  "a": 1,\n  "b": 2\n}',
    "two lines, arguments": 'add\n{"arguments": {"a": 1, "b": 2}}',
    "two lines, none": "get_time\n{}",
    "two lines, dotted": 'github.get_issue\n{"a": 1, "b": 2}',
    "two lines, as sent": 'github__get_issue\n{"a": 1, "b": 2}',
    "one line": 'add {"a": 1, "b": 2}',
    "one line, colon": 'add: {"a": 1, "b": 2}',
    "key": '{"add": {"a": 1, "b": 2}}',
    "key in a list": '[{"add": {"a": 1, "b": 2}}]',
    "one line, numbered": 'functions.add:0{"a": 1, "b": 2}',
    "llama": "<|python_tag|>add.call(a=1, b=2)",
    "llama without its token": "add.call(a=1, b=2)",
    "cline": "<add>\n<a>1</a>\n<b>2</b>\n</add>",
    "cline, dotted": "<github.get_issue><a>1</a></github.get_issue>",
    "xml, reversed": "<tool_call><parameter=a>1</parameter>\n<function=add>",
    "xml, parts": "<tool_call><arguments>{}</arguments><name>add</name></tool_call>",
    "xml, parts alone": '<arguments>{"a": 1}</arguments>\n<name>add</name>',
    "xml, words first": (
        '<invoke>\n<parameter name="a">one half</parameter>\n<tool_name>add</tool_name></invoke>'
    ),
    "glm, reversed": ("<tool_call><arg_key>a</arg_key>\n<arg_value>1</arg_value>\nadd</tool_call>"),
    "another bracket": '[call-0badcafe tool="add"]',
    "attribute last": '<call id="1" type="function" tool="add"/>',
    "mistral, reversed": '[TOOL_CALLS]{"a": 1, "b": 2}[ARGS]add',
    "qwen, reversed": '\u273fARGS\u273f: {"a": 1, "b": 2}\n\u273fFUNCTION\u273f: add',
    "harmony, reversed": '<|message|>{"a": 1, "b": 2}<|call|> to=functions.add',
    "deepseek, reversed": (
        f"<{BAR}tool{GAP}call{GAP}begin{BAR}>" + '{"a": 1}' + f"<{BAR}tool{GAP}sep{BAR}>add"
    ),
}
STAYS = {
    "mention": "I used add to find out, and it says 3.",
    "mention with parentheses": "I called add(a=1, b=2), and the result is 3.",
    "mention at the beginning": "add(a=1, b=2) gives (3).",
    "mention of nothing": "Use get_time() to get the time (now).",
    "inline code": "Use `[add(a=1)]` or `add\u00a0{}`.",
    "inline json": 'It is `{"arguments": {"a": 1}, "name": "add"}`.',
    "double ticks": 'It is ``{"name": "add", "arguments": {}}``.',
    "quotation marks": 'The page says "{"arguments": {"a": 1}, "name": "add"}".',
    "typographic quotation": "It says \u201c[add(a=1, b=2)]\u201d, which I will not do.",
    "link": "See [add(a=1)](https://example.com/add) for more.",
    "reference": "See [add] and [1].",
    "bullets": '- add: {"a": 1, "b": 2}\n- get_time: {}',
    "table": '| tool | arguments |\n|---|---|\n| add | {"a": 1, "b": 2} |',
    "documentation": "Function: add\nParameters, all of them numbers: a and b",
    "heading": "add\n\nAdds two numbers.",
    "label": "Action: add the numbers up.\nDone.",
    "tag in prose": 'The <tool_call> tag wraps the name "add" and its arguments.',
    "an element of another kind": "<add><i>1</i></add>",
    "an element in a sentence": "It wrote <add><a>1</a></add>.",
    "a method": "Use add.call_later(a=1).",
    "html": '<p class="action">add</p>',
    "placeholder": "Usage: sum <args> of the tool add.",
    "special token": "It is 3.<|im_end|>",
    "result": '{"name": "add", "result": 3}',
    "result in a sentence": 'The tool said {"name": "add", "input": "1 and 2", "score": 0.9}.',
    "log in a sentence": 'It logged {"tool": "add", "args": {"a": 1}, "result": 3} today.',
    "result by name": 'add\n{"result": 3}',
    "result by name, on one line": 'add: {"sum": 3}',
    "results by key": '{"add": {"result": 3}, "get_time": {"result": "noon"}}',
    "result of a tool without arguments": 'get_time\n{"now": "12:00"}',
    "label without arguments": "Tool: add\nStatus: done",
    "sentence with a label": "These are the parameters: a and b of the tool: add.",
    "name only": '{"name": "add"}',
    "another tool": '{"name": "sub", "arguments": {"a": 1}}',
    "a longer name": '{"name": "add_all", "arguments": {"a": 1}}',
    "people": '{"name": "Ada", "parameters": {"a": 1}} uses add.',
    "fence": 'To call it, write:\n\n```json\n{"arguments": {"a": 1}, "name": "add"}\n```',
    "fence in documentation": (
        'Parameters: two numbers.\n\n```json\n{"name": "add", "arguments": {"a": 1}}\n```\nSo.'
    ),
    "fence after its name": 'add\n\n```json\n{"a": 1, "b": 2}\n```\nis what you asked for.',
    "code": "```python\nprint(add(a=1, b=2))\n```",
    "quoted lines": '> add\n> {"a": 1, "b": 2}',
    "text": "f(x) = x + 1 and [2, 3] < {4} add up.",
}


def faults(text: str, calling: FunctionCalling = "native", **more: Any) -> list[str | None]:
    asked = request(tools=TOOLS, function_calling=calling, **more)
    reply = read_sent(SentReply(text), asked, calling)
    assert reply.calls == (), text
    if not reply.faults:
        assert reply.message["content"] == text
    return [fault.name for fault in reply.faults]


@pytest.mark.endurance
@pytest.mark.parametrize("calling", ["native", "text"])
def test_a_call_as_json_is_told_in_any_order_of_its_keys(calling: FunctionCalling) -> None:
    calls = [*objects()]
    assert len(calls) > 100
    missed = []
    for number, call in enumerate(calls):
        for how, wrapper in WRAPPERS.items():
            places = dict(PLACES)
            if number % 4 and how not in ("bare", "hermes"):
                places = {"alone": "{}"}
            if how in INSIDE_A_FENCE:
                places = {"alone": "{}"}
            for where, place in places.items():
                text = place.replace("{}", wrapper.replace("{}", call))
                if faults(text, calling) != ["add"]:
                    missed.append((how, where, call))
    assert missed == []


@each_row("calling", ["native", "text"])
def test_other_forms_are_told_wherever_they_stand(calling: FunctionCalling) -> None:
    missed = []
    for how, call in OTHERS.items():
        name = "get_time" if "get_time" in call else "add"
        name = "github.get_issue" if "github" in call else name
        for where, place in PLACES.items():
            if faults(place.replace("{}", call), calling) != [name]:
                missed.append((how, where, faults(place.replace("{}", call), calling)))
    assert missed == []


@each_row("calling", ["native", "text"])
@each_row(
    "marks",
    [
        "\u201c\u201d\u2018\u2019",
        "\u201e\u201c\u201a\u2018",
        "\u201d\u201d\u2019\u2019",
        "\u201f\u201d\u201b\u2019",
        "\uff02\uff02\uff07\uff07",
    ],
)
def test_typographic_quotation_marks_hide_no_call(calling: FunctionCalling, marks: str) -> None:
    def curled(text: str, plain: str, begin: str, end: str) -> str:
        parts = text.split(plain)
        return parts[0] + "".join(
            f"{end if at % 2 else begin}{part}" for at, part in enumerate(parts[1:])
        )

    calls = [*objects(), *(call for call in OTHERS.values() if '"' in call)]
    missed = []
    for call in calls:
        written = curled(curled(call, '"', *marks[:2]), "'", *marks[2:])
        for place in PLACES.values():
            text = place.replace("{}", written)
            if len(faults(text, calling)) != 1:
                missed.append(text)
    assert missed == []


@each_row("calling", ["native", "text"])
def test_what_mentions_a_tool_and_calls_nothing_stays_the_answer(calling: FunctionCalling) -> None:
    told = {how: told for how, text in STAYS.items() if (told := faults(text, calling))}
    assert told == {}


def test_an_answer_in_json_may_have_any_form_that_its_schema_allows() -> None:
    for call in objects():
        assert faults(call, returns={"type": "object"}) == [], call

"""Every format in which models write calls (M56 to M64), and what is mended or told (M67, M68)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from flowengine.agents.text_calls.formats import FORMATS, Format, by_name
from flowengine.agents.text_calls.formats.base import Found, literal
from flowengine.agents.text_calls.reading import read_reply
from flowengine.agents.text_calls.records import Call, RawCall, Reading, Tool
from flowengine.agents.text_calls.source import Source
from tests.agents.add import ADD

CODE = Tool(
    "code",
    "Runs code.",
    {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
)
NOW = Tool("now", "Says what time it is.")
TOOLS = [ADD, CODE, NOW]

BAR, GAP = "\uff5c", "\u2581"


def deepseek(text: str) -> str:
    """Write `<|tool_sep|>` with the bars and gaps of DeepSeek."""
    return text.replace("<|", f"<{BAR}").replace("|>", f"{BAR}>").replace("_", GAP)


def dsml(text: str) -> str:
    return text.replace("|", BAR)


def read(text: str, **more: Any) -> Reading:
    return read_reply(text, TOOLS, **more)


def pairs(reading: Reading) -> list[tuple[int, int]]:
    assert all(call.name == "add" for call in reading.calls)
    assert all(type(value) is int for call in reading.calls for value in call.arguments.values())
    return [(call.arguments["a"], call.arguments["b"]) for call in reading.calls]


ONE = {
    "xml": "<function=add>\n<parameter=a>1</parameter>\n<parameter=b>2</parameter>\n</function>",
    "xml, values on lines of their own": (
        "<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n</parameter>\n</function>"
    ),
    "xml in tool_call": (
        "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n"
        "<parameter=b>\n2\n</parameter>\n</function>\n</tool_call>"
    ),
    "xml whose tool_call was never opened": (
        "<function=add><parameter=a>1</parameter><parameter=b>2</parameter></function>\n</tool_call>"
    ),
    "xml without line breaks": (
        "<function=add><parameter=a>1</parameter><parameter=b>2</parameter></function>"
    ),
    "xml around json": '<function=add>{"a":1,"b":2}</function>',
    "invoke": '<invoke name="add"><parameter name="a">1</parameter>'
    '<parameter name="b">2</parameter></invoke>',
    "invoke in function_calls": (
        '<function_calls>\n<invoke name="add">\n<parameter name="a">1</parameter>\n'
        '<parameter name="b">2</parameter>\n</invoke>\n</function_calls>'
    ),
    "invoke of minimax": (
        '<minimax:tool_call>\n<invoke name="add">\n<parameter name="a">1</parameter>\n'
        '<parameter name="b">2</parameter>\n</invoke>\n</minimax:tool_call>'
    ),
    "glm": (
        "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n"
        "<arg_key>b</arg_key>\n<arg_value>2</arg_value>\n</tool_call>"
    ),
    "hermes": '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>',
    "hermes, arguments as a string": (
        '<tool_call>{"name":"add","arguments":"{\\"a\\": 1, \\"b\\": 2}"}</tool_call>'
    ),
    "hermes without its end": '<tool_call>{"name":"add","arguments":{"a":1,"b":2}}',
    "llama json": '{"name": "add", "parameters": {"a": 1, "b": 2}}',
    "llama json with a token": '<|python_tag|>{"name":"add","parameters":{"a":1,"b":2}}<|eom_id|>',
    "pythonic": "[add(a=1, b=2)]",
    "pythonic with tokens": "<|python_start|>[add(a=1, b=2)]<|python_end|>",
    "pythonic behind the old token": "<|python_tag|>add(a=1, b=2)<|eom_id|>",
    "deepseek r1": deepseek(
        "<|tool_calls_begin|><|tool_call_begin|>function<|tool_sep|>add\n"
        '```json\n{"a": 1, "b": 2}\n```<|tool_call_end|><|tool_calls_end|>'
    ),
    "deepseek r1 without its end": deepseek(
        "<|tool_calls_begin|><|tool_call_begin|>function<|tool_sep|>add\n"
        '```json\n{"a": 1, "b": 2}\n```'
    ),
    "deepseek v3.1": deepseek(
        '<|tool_calls_begin|><|tool_call_begin|>add<|tool_sep|>{"a": 1, "b": 2}'
        "<|tool_call_end|><|tool_calls_end|>"
    ),
    "deepseek v3.1 without its end": deepseek(
        '<|tool_calls_begin|><|tool_call_begin|>add<|tool_sep|>{"a": 1, "b": 2}'
    ),
    "dsml of v3.2": dsml(
        '<|DSML|function_calls>\n<|DSML|invoke name="add">\n'
        '<|DSML|parameter name="a" string="false">1</|DSML|parameter>\n'
        '<|DSML|parameter name="b" string="false">2</|DSML|parameter>\n'
        "</|DSML|invoke>\n</|DSML|function_calls>"
    ),
    "dsml of v4 without its end": dsml(
        '<|DSML|tool_calls>\n<|DSML|invoke name="add">\n'
        '<|DSML|parameter name="a" string="false">1</|DSML|parameter>\n'
        '<|DSML|parameter name="b" string="false">2</|DSML|parameter>\n'
        "</|DSML|invoke>"
    ),
    "mistral": '[TOOL_CALLS]add[ARGS]{"a": 1, "b": 2}',
    "mistral with an id": '[TOOL_CALLS]add[CALL_ID]k3j2h1g4f[ARGS]{"a": 1, "b": 2}',
    "mistral list": '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1, "b": 2}}]',
    "fenced json": '```json\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n```',
    "fenced tool_call": '```tool_call\n{"tool": "add", "args": {"a": 1, "b": 2}}\n```',
    "fenced function": '```\n{"function": "add", "input": {"a": 1, "b": 2}}\n```',
    "fenced list": '```json\n[{"name": "add", "parameters": {"a": 1, "b": 2}}]\n```',
    "fence of openai": (
        '```json\n{"tool_calls": [{"id": "x", "type": "function", "function": '
        '{"name": "add", "arguments": "{\\"a\\": 1, \\"b\\": 2}"}}]}\n```'
    ),
    "fence around tags": '```xml\n<function=add>{"a":1,"b":2}</function>\n```',
    "kimi": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0"
        '<|tool_call_argument_begin|>{"a": 1, "b": 2}<|tool_call_end|><|tool_calls_section_end|>'
    ),
    "harmony": (
        "<|channel|>commentary to=functions.add <|constrain|>json<|message|>"
        '{"a": 1, "b": 2}<|call|>'
    ),
    "harmony, the recipient before the channel": (
        "<|start|>assistant to=functions.add<|channel|>commentary json<|message|>"
        '{"a": 1, "b": 2}<|call|>'
    ),
    "functools": 'functools[{"name": "add", "arguments": {"a": 1, "b": 2}}]',
    "granite": '<|tool_call|>[{"name": "add", "arguments": {"a": 1, "b": 2}}]',
    "granite of 20b": '<function_call> {"name": "add", "arguments": {"a": 1, "b": 2}}',
    "phi": '<|tool_call|>[{"name": "add", "arguments": {"a": 1, "b": 2}}]<|/tool_call|>',
    "tool_code": "```tool_code\nadd(a=1, b=2)\n```",
    "tool_code with print": "```tool_code\nprint(default_api.add(a=1, b=2))\n```",
    "tool_code as a tag": "<tool_code>\nadd(a=1, b=2)\n</tool_code>",
    "react": 'Action: add\nAction Input: {"a": 1, "b": 2}',
}


@pytest.mark.parametrize("written", ONE.values(), ids=ONE)
def test_a_call_is_read_in_every_format(written: str) -> None:
    reading = read(written)

    assert pairs(reading) == [(1, 2)]
    assert (reading.content, reading.faults, reading.repairs) == ("", (), ())


@pytest.mark.parametrize("written", ONE.values(), ids=ONE)
def test_text_before_a_call_is_content(written: str) -> None:
    reading = read(f"I will add them.\n\n{written}\n")

    assert pairs(reading) == [(1, 2)]
    assert reading.content == "I will add them."


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.name)
def test_two_calls_are_read_in_order_in_every_format(one: Format) -> None:
    written = one.write([("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})])

    reading = read(f"Both.\n{written}")

    assert pairs(reading) == [(1, 2), (3, 4)]
    assert [call.place for call in reading.calls] == [0, 1]
    assert (reading.content, reading.faults, reading.repairs) == ("Both.", (), ())


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.name)
@pytest.mark.parametrize(
    "text",
    [
        'print("</function>")',
        "if a < b &lt; c:\n\treturn '\\d'",
        "\n  indented\n\n",
        "<tool_call>{}</tool_call>",
        "```json\n{}\n```",
        '"',
        "",
        "007",
        "caf\u00e9 \U0001f600",
    ],
)
def test_text_arrives_as_it_was_written_in_every_format(one: Format, text: str) -> None:
    reading = read(one.write([("code", {"code": text})]))

    assert reading.calls == (Call("code", {"code": text}),), reading


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.name)
def test_a_tool_without_parameters_is_called_in_every_format(one: Format) -> None:
    assert read(one.write([("now", {})])).calls == (Call("now", {}),)


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.name)
def test_nothing_that_the_length_limit_cut_off_is_called(one: Format) -> None:
    written = one.write([("add", {"a": 12, "b": 34})])

    whole = read(written, ended="length")
    for length in range(len(written)):
        reading = read(written[:length], ended="length")
        assert reading.calls in ((), whole.calls), written[:length]


def test_a_reply_reads_the_same_whatever_the_format() -> None:
    """The first reply of the script of M3: a sentence and a call."""
    replies = [f"I add.\n{one.write([('add', {'a': 1, 'b': 2})])}" for one in FORMATS]

    assert {repr(read(reply)) for reply in replies} == {
        repr(Reading(content="I add.", calls=(Call("add", {"a": 1, "b": 2}),)))
    }


def test_text_between_xml_calls_stays_content() -> None:
    one, two = ONE["xml"], ONE["xml"].replace("1", "3").replace("2", "4")

    reading = read(f"First:\n{one}\nand then\n{two}")

    assert pairs(reading) == [(1, 2), (3, 4)]
    assert reading.content == "First:\n\nand then"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('print("</function>")', 'print("</function>")'),
        ("\n    if a &lt; b < c:\n        pass\n", "    if a &lt; b < c:\n        pass"),
        ("\n\ntwo\n\n", "\ntwo\n"),
        ("C:\\new \"x\" 'y'", "C:\\new \"x\" 'y'"),
        ("a </parameter> b", "a </parameter> b"),
        ("<think>no</think>", "<think>no</think>"),
    ],
)
def test_xml_values_are_exact(value: str, text: str) -> None:
    reading = read(f"<function=code><parameter=code>{value}</parameter></function>")

    assert reading.calls == (Call("code", {"code": text}),)


def test_dsml_says_what_is_text() -> None:
    tool = Tool("any", "", {"properties": {"a": {}, "b": {}}})
    written = dsml(
        '<|DSML|tool_calls><|DSML|invoke name="any">'
        '<|DSML|parameter name="a" string="true">5</|DSML|parameter>'
        '<|DSML|parameter name="b" string="false">5</|DSML|parameter>'
        "</|DSML|invoke></|DSML|tool_calls>"
    )

    assert read_reply(written, [tool]).calls == (Call("any", {"a": "5", "b": 5}),)


def test_pythonic_calls_hold_literals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: pytest.fail("it was run"))

    reading = read('[add(a=__import__("os").getpid(), b=1)]')

    assert reading.calls == ()
    assert reading.faults[0].tool == "add"
    assert "'a' must be a literal" in reading.faults[0].message


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("add(1, 2)", "need their names"),
        ("add(a=1, a=2)", "given twice"),
        ("add(a=1+1, b=2)", "literal"),
        ("add(a=b'x', b=2)", "literal"),
        ("add(**{'a': 1})", "need their names"),
        ("import os", "only calls"),
        ("add(a=1", "not Python"),
    ],
)
def test_python_that_is_no_plain_call_is_told(code: str, told: str) -> None:
    reading = read(f"```tool_code\n{code}\n```")

    assert reading.calls == ()
    assert told in reading.faults[0].message


def test_python_with_the_words_of_json_is_mended() -> None:
    tool = Tool("set", "", {"properties": {"on": {"type": "boolean"}}})

    reading = read_reply("[set(on=true)]", [tool])

    assert reading.calls == (Call("set", {"on": True}),)
    assert reading.repairs


def test_harmony_channels_are_told_apart() -> None:
    reading = read(
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
        f"{ONE['harmony']}<|start|>assistant<|channel|>final<|message|>Done.<|return|>"
    )

    assert pairs(reading) == [(1, 2)]
    assert (reading.reasoning, reading.content) == ("Hm.", "Done.")


def test_a_result_that_the_model_made_up_is_left_out() -> None:
    react = ONE["react"]

    reading = read(f"Thought: add.\n{react}\nObservation: 3\nThought: again\n{react}")

    assert pairs(reading) == [(1, 2)]
    assert reading.content == "Thought: add."
    assert "made up" in reading.repairs[0]


# What is content


@pytest.mark.parametrize(
    "text",
    [
        "The sum is 3.",
        '```json\n{"name": "Bob", "age": 3}\n```',
        '{"name": "Bob", "age": 3}',
        "Write `<function=add>` to call it, or `<tool_call>`.",
        "A <tool_call> tag opens a call.",
        "The tag <function=add> opens a call.",
        "```python\nprint([add(a=1, b=2)])\n```",
        "```md\nAn example:\n<function=add>{}</function>\n```",
        "[Note] 1 < 2, and a[0] is functools[x].",
        "[link(s)](https://example.com)",
        "Action: we go.",
        "```\nnever closed",
        "[\n  {",
        "{'a': 1}",
        " leading and trailing blanks stay ",
        "",
    ],
)
def test_text_that_is_no_call_stays_as_it_is(text: str) -> None:
    assert read(text) == Reading(content=text)


# Reasoning (M66)

CALL = '<tool_call>{"name":"add","arguments":{"a":3,"b":4}}</tool_call>'
THOUGHT = '<tool_call>{"name":"add","arguments":{"a":1,"b":2}}</tool_call>'


@pytest.mark.parametrize(
    "text",
    [
        f"<think>Maybe {THOUGHT}?</think>\n{CALL}",
        f"Maybe {THOUGHT}?</think>\n{CALL}",
        f"<think>Maybe <think>{THOUGHT}</think>{CALL}",
        f"<think>Maybe {THOUGHT}? No:\n{CALL}",
        f"[THINK]{THOUGHT}[/THINK]{CALL}",
        f"<think>One.</think><think>{THOUGHT}</think>{CALL}",
    ],
)
def test_a_call_in_reasoning_is_not_made_and_the_one_after_it_is(text: str) -> None:
    reading = read(text)

    assert pairs(reading) == [(3, 4)]
    assert reading.content == ""
    assert '"a":1' in reading.reasoning
    assert "<think>" not in reading.reasoning.removeprefix("Maybe <think>")


def test_reasoning_is_kept_apart_from_content() -> None:
    reading = read("<think>\nHm.\n</think>\n\nThe sum is 3.")

    assert (reading.reasoning, reading.content) == ("Hm.", "The sum is 3.")


def test_reasoning_without_an_end_holds_no_call_in_its_middle() -> None:
    reading = read(f"<think>Maybe {THOUGHT}, and then I")

    assert reading.calls == ()
    assert reading.content == ""


def test_reasoning_that_was_cut_off_holds_no_call() -> None:
    assert read(f"<think>Maybe {THOUGHT}", ended="length").calls == ()


# Faults and repairs (M67, M68)


@pytest.mark.parametrize(
    ("text", "code", "tool"),
    [
        ("<function=add", "cut", "add"),
        ("<function=add>\n<parameter=a>1</param", "cut", "add"),
        ("<function=add><parameter=a>1</parameter><parameter=b>2", "cut", "add"),
        ("<function=add>a=1, b=2</function>", "unreadable", "add"),
        (
            "<function=add><parameter=a>1</parameter><parameter=a>2</parameter></function>",
            "unreadable",
            "add",
        ),
        ("<tool_call>", "cut", None),
        ("<tool_call>add(a=1, b=2)</tool_call>", "unreadable", "add"),
        ('<tool_call>{"name": "add", "arguments": {"a": 1, "b": "par', "cut", "add"),
        ('<tool_call>{"name="add", "arguments": {}}</tool_call>', "unreadable", None),
        ('<tool_call>{"a": 1}</tool_call>', "unreadable", None),
        ('{"name": "add", "arguments": {"a": 1, "b"', "cut", "add"),
        ('{"name": "ad", "arguments": {"a": 1, "b": 2}}', "unknown_tool", "add"),
        ('{"name": "add", "arguments": {"a": 1}}', "arguments", "add"),
        ('{"name": "add", "arguments": {"a": 1, "b": "0x10"}}', "arguments", "add"),
        ('{"name": "add", "arguments": [1, 2]}', "unreadable", "add"),
        ("[add(a=1, b=2", "cut", "add"),
        ("[TOOL_CALLS]", "cut", None),
        ('[TOOL_CALLS]add[ARGS]{"a": 1, "b": 2', "cut", "add"),
        ("<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0", "cut", None),
        ("<|channel|>commentary to=functions.add <|constr", "cut", "add"),
        ("Action: add", "cut", "add"),
        ("Action: add\nAction Input: 1 and 2", "unreadable", "add"),
        ("```tool_call\n{}\n```", "unreadable", None),
    ],
)
def test_what_cannot_be_read_is_told(text: str, code: str, tool: str | None) -> None:
    reading = read(text, ended="length" if text.endswith("2") else "stop")

    assert reading.calls == ()
    assert [(one.code, one.tool) for one in reading.faults] == [(code, tool)]


def test_calls_beside_a_fault_can_be_made_and_know_their_place() -> None:
    reading = read(f'{THOUGHT}<tool_call>{{"name": "ad"}}</tool_call>{CALL}')

    assert pairs(reading) == [(1, 2), (3, 4)]
    assert [call.place for call in reading.calls] == [0, 2]
    assert [one.place for one in reading.faults] == [1]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>{'name': 'add', 'arguments': {'a': 1, 'b': 2}}</tool_call>",
        '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2,}}</tool_call>',
        '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}</tool_call>',
        '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}} That is it.</tool_call>',
        '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}',
        '{"name": "add", "parameters": {"a": 1, "b": 2}',
        '```json\n{"name": "add", "arguments": {"a": 1, "b": 2}}\nDone.\n```',
        "<function=add><parameter=a>1</parameter><parameter=b>2</parameter>",
        "<tool_call><function=add><parameter=a>1</parameter><parameter=b>2</parameter></tool_call>",
        "<tool_call>add\n<arg_key>a</arg_key><arg_value>1</arg_value>"
        "<arg_key>b</arg_key><arg_value>2</arg_value>",
    ],
)
def test_what_has_one_reading_is_mended_and_an_event_says_so(text: str) -> None:
    reading = read(text)

    assert pairs(reading) == [(1, 2)]
    assert len(reading.repairs) == 1


# Order and extension (M64, M70)


def shout_read(source: Source, start: int) -> Found | None:
    end = source.text.find("!", start)
    if end < 0:
        return None
    name, *values = source.text[start + len("CALL ") : end].split()
    return Found(end + 1, [RawCall(name, dict(value.split("=") for value in values))])


def shout_write(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    return " ".join(
        f"CALL {name} {' '.join(f'{key}={value}' for key, value in given.items())}!"
        for name, given in calls
    )


SHOUT = Format("shout", (literal("CALL "),), shout_read, shout_write)


def test_a_format_of_ones_own_is_read_beside_the_others() -> None:
    formats = (SHOUT, *FORMATS)
    written = SHOUT.write([("add", {"a": 1, "b": 2})])

    assert pairs(read(f"{written} {CALL}", formats=formats)) == [(1, 2), (3, 4)]
    assert by_name("shout", formats) is SHOUT
    assert read(written).content == written


def test_formats_are_tried_in_their_order() -> None:
    hermes = by_name("hermes")
    mine = replace(hermes, read=lambda source, start: Found(len(source.text), content="mine"))

    assert read(CALL, formats=(mine, *FORMATS)).content == "mine"
    assert read(CALL, formats=(*FORMATS, mine)).calls
    with pytest.raises(ValueError, match="there are xml, hermes"):
        by_name("morse")

# Shows M56, M66
"""Calls in the requested form: read exactly, repaired or reported (M56, M57, M66 to M69)."""

from __future__ import annotations

from typing import Any

from flowengine.agents.text_calls.marked_form import (
    MarkedForm,
    ModelCall,
    ParsedReply,
    ToolOffer,
    mark_of,
    marked,
)
from flowengine.agents.text_calls.reading import read_reply
from tests.agents.add import ADD
from tests.rows import each_row

CODE = ToolOffer(
    "code",
    "Runs code.",
    {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
)
NOW = ToolOffer("now", "Says what time it is.")
TOOLS = [ADD, CODE, NOW]
FORM = marked("0badcafe")


def read(text: str, **more: Any) -> ParsedReply:
    return read_reply(text.replace("MARK", FORM.mark), TOOLS, FORM, **more)


def pairs(reading: ParsedReply) -> list[tuple[int, int]]:
    assert all(call.name == "add" for call in reading.calls)
    assert all(type(value) is int for call in reading.calls for value in call.arguments.values())
    return [(call.arguments["a"], call.arguments["b"]) for call in reading.calls]


ONE = {
    "as shown": (
        '<call-MARK tool="add">\n<parameter name="a">1</parameter>\n'
        '<parameter name="b">2</parameter>\n</call-MARK>'
    ),
    "values on lines of their own": (
        '<call-MARK tool="add">\n<parameter name="a">\n1\n</parameter>\n'
        '<parameter name="b">\n2\n</parameter>\n</call-MARK>'
    ),
    "without line breaks": (
        '<call-MARK tool="add"><parameter name="a">1</parameter>'
        '<parameter name="b">2</parameter></call-MARK>'
    ),
    "without quotes, in short": (
        "<call-MARK tool=add><parameter=a>1</parameter><parameter=b>2</parameter></call-MARK>"
    ),
    "another word for the tool": (
        "<call-MARK name='add'><parameter name='a'>1</parameter>"
        "<parameter name='b'>2</parameter></call-MARK>"
    ),
    "around json": '<call-MARK tool="add">{"a": 1, "b": 2}</call-MARK>',
    "around json in a string": '<call-MARK tool="add">\n{"a": "1", "b": "2"}\n</call-MARK>',
    "indented": '  <call-MARK tool="add">{"a": 1, "b": 2}</call-MARK>',
}


@each_row("written", ONE.values())
def test_a_call_is_read(written: str) -> None:
    reading = read(written)

    assert pairs(reading) == [(1, 2)]
    assert (reading.content, reading.faults, reading.repairs) == ("", (), ())


@each_row("written", ONE.values())
def test_text_before_a_call_is_content(written: str) -> None:
    reading = read(f"I will add them.\n\n{written}\n")

    assert pairs(reading) == [(1, 2)]
    assert reading.content == "I will add them."


@each_row("written", ONE.values())
@each_row("fence", ["```\n{}\n```", "```xml\n{}\n```\n", "~~~\n{}\n~~~", "```\n{}"])
# Shows M63
def test_a_code_fence_around_the_whole_reply_is_forgiven(fence: str, written: str) -> None:
    reading = read(fence.replace("{}", written))

    assert pairs(reading) == [(1, 2)]
    assert reading.repairs == ("the code fence around the calls was left out",)
    assert (reading.content, reading.faults) == ("", ())


def test_several_calls_are_read_in_order_also_in_fences_of_their_own() -> None:
    one, two = FORM.write([("add", {"a": 1, "b": 2})]), FORM.write([("add", {"a": 3, "b": 4})])

    for text in (f"{one}\n{two}", f"{one}{two}", f"```\n{one}\n```\n\n```\n{two}\n```"):
        reading = read(text)
        assert pairs(reading) == [(1, 2), (3, 4)]
        assert reading.content == ""


def test_text_between_calls_stays_content() -> None:
    one, two = FORM.write([("add", {"a": 1, "b": 2})]), FORM.write([("add", {"a": 3, "b": 4})])

    reading = read(f"First:\n{one}\nand then\n{two}")

    assert pairs(reading) == [(1, 2), (3, 4)]
    assert reading.content == "First:\n\nand then"


@each_row(
    "text",
    [
        'print("</call>")',
        "if a < b &lt; c:\n\treturn '\\d'",
        "\n  indented\n\n",
        "<tool_call>{}</tool_call>",
        "```json\n{}\n```",
        'a </parameter> b </parameter>\n<parameter name="code">',
        "<think>no</think>",
        "C:\\new \"x\" 'y'",
        '"',
        "",
        "007",
        "caf\u00e9 \U0001f600",
    ],
)
@each_row("reply", ["{}", "```\n{}\n```"])
# Shows M57
def test_text_arrives_as_it_was_written(reply: str, text: str) -> None:
    reading = read(reply.replace("{}", FORM.write([("code", {"code": text})]), 1))

    assert reading.calls == (ModelCall("code", {"code": text}),), reading


# Shows M57
def test_a_value_that_looks_like_the_end_of_a_value_is_exact() -> None:
    value = "a </parameter> b"
    written = f'<call-MARK tool="code"><parameter name="code">{value}</parameter></call-MARK>'

    assert read(written).calls == (ModelCall("code", {"code": value}),)


def test_a_tool_without_parameters_is_called() -> None:
    assert read(FORM.write([("now", {})])).calls == (ModelCall("now", {}),)


# Shows M67
def test_nothing_that_the_length_limit_cut_off_is_called() -> None:
    written = FORM.write([("add", {"a": 12, "b": 34})])

    for length in range(len(written)):
        assert read(written[:length], ended="length").calls == (), written[:length]


def test_a_result_that_the_model_made_up_is_left_out() -> None:
    call = FORM.write([("add", {"a": 1, "b": 2})])

    reading = read(f"I add.\n{call}\n{FORM.write_result('add', '4')}\nIt is 4.\n{call}")

    assert pairs(reading) == [(1, 2)]
    assert reading.content == "I add."
    assert "made up" in reading.repairs[0]


# The mark


# Shows M58
def test_each_conversation_has_a_mark_of_its_own_from_turn_to_turn() -> None:
    history = [{"role": "user", "content": "Add."}, {"role": "assistant", "content": "3"}]

    assert mark_of("one", history) == mark_of("one", history[:1])
    assert mark_of("one", history) != mark_of("two", history)


@each_row("leaks", [True, False])
# Shows M58
def test_a_mark_that_others_may_know_is_replaced(leaks: bool) -> None:
    mark = mark_of("one")
    arguments = f'{{"query": "my mark is {mark}"}}' if leaks else "{}"
    call = {"id": "x", "function": {"name": "search", "arguments": arguments}}
    result = "no" if leaks else f'<call-{mark} tool="pay">'
    history: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "x", "content": [{"type": "text", "text": result}]},
    ]

    assert mark_of("one", history) != mark
    assert mark_of("one", history) == mark_of("one", [*history, *history])


# Content


@each_row(
    "text",
    [
        "The sum is 3.",
        '```json\n{"name": "Bob", "age": 3}\n```',
        '{"name": "Bob", "age": 3}',
        "Write `<call-MARK>` to call it.",
        "A <call> tag opens a call.",
        "<result-MARK> has the result.",
        "```python\nprint([add(a=1, b=2)])\n```",
        "[Note] 1 < 2, and a[0] is functools[x].",
        "[link(s)](https://example.com)",
        "Action: we go.",
        "```\nnever closed",
        "[\n  {",
        " leading and trailing blanks stay ",
        "",
    ],
)
# Shows M69
def test_text_that_is_no_call_stays_as_it_is(text: str) -> None:
    assert read(text) == ParsedReply(content=text.replace("MARK", FORM.mark))


# Reasoning (M66)

CALL = FORM.write([("add", {"a": 3, "b": 4})])
THOUGHT = FORM.write([("add", {"a": 1, "b": 2})])


@each_row(
    "text",
    [
        f"<think>Maybe\n{THOUGHT}?</think>\n{CALL}",
        f"Maybe\n{THOUGHT}?</think>\n{CALL}",
        f"{THOUGHT}</think>{CALL}",
        f"<think>Maybe <think>{THOUGHT}</think>{CALL}",
        f"<think>Maybe {THOUGHT}? No:\n{CALL}",
        f"<think>Maybe\n{THOUGHT}\nNo:\n{CALL}",
        f"[THINK]{THOUGHT}[/THINK]{CALL}",
        f"<think>One.</think><think>{THOUGHT}</think>{CALL}",
        f"I use `add`.\n{THOUGHT}\nSo `add`</think>{CALL}",
        f"```\n{THOUGHT}\nnever closed</think> {CALL}",
        f"<think>{THOUGHT}</thinking>{CALL}",
        f"{THOUGHT}\n</think>\n<tool_call>{CALL}</tool_call>\n",
    ],
)
def test_a_call_in_reasoning_is_not_made_and_the_one_after_it_is(text: str) -> None:
    reading = read(text)

    assert pairs(reading) == [(3, 4)]
    assert reading.content == ""
    assert 'name="a">1' in reading.reasoning
    assert "<think>" not in reading.reasoning.removeprefix("Maybe <think>")


@each_row("form", [FORM, None])
@each_row(
    ("text", "content", "reasoning"),
    [
        ("Hm, `3`.</think>\n\nThree.", "Three.", "Hm, `3`."),
        ("<think></think>Three.", "Three.", ""),
        ("Write `<think>` and `</think>`.", "Write `<think>` and `</think>`.", ""),
        ("```\nx</think>\n```\n", "```\nx</think>\n```\n", ""),
        ("Hm.\n```py\nx = 3\n</think>Three.", "Three.", "Hm.\n```py\nx = 3"),
        ("I see.\n<think>Hm.</think>\n", "I see.", "Hm."),
        ("<tool_call>\n</tool_call>", "", ""),
        ("```json\n```", "", ""),
        ("```html\n<tool_call></tool_call>x\n```", "```html\n<tool_call></tool_call>x\n```", ""),
        (" three\n", " three\n", ""),
    ],
)
def test_what_is_answer_and_what_is_thought(
    text: str, content: str, reasoning: str, form: MarkedForm | None
) -> None:
    reading = read_reply(text, TOOLS, form)

    assert (reading.content, reading.reasoning) == (content, reasoning)


def test_reasoning_that_came_apart_is_not_ended_again() -> None:
    reading = read(f"One. </think>{CALL}", thought=True)

    assert (pairs(reading), reading.content) == ([(3, 4)], "One.")


def test_reasoning_without_an_end_holds_no_call_in_its_middle() -> None:
    reading = read(f"<think>Maybe\n{THOUGHT}, and then I")

    assert reading.calls == ()
    assert reading.content == ""


def test_reasoning_that_was_cut_off_holds_no_call() -> None:
    assert read(f"<think>Maybe\n{THOUGHT}", ended="length").calls == ()


# Faults and repairs (M67, M68)

HEAD = '<call-MARK tool="add">'


@each_row(
    ("text", "says", "tool"),
    [
        ("<call-MARK", "cannot be read", None),
        ('<call-MARK tool="add', "cannot be read", "add"),
        (f'{HEAD}\n<parameter name="a">1</param', "cannot be read", "add"),
        (f'{HEAD}<parameter name="a">1</parameter><parameter name="b">2', "was cut off", "add"),
        (f"{HEAD}a=1, b=2</call-MARK>", "cannot be read", "add"),
        (f"{HEAD}<parameter=a>1</parameter><parameter=a>2</parameter></call-MARK>", "cannot be",
         "add"),
        ("<call-MARK>add(a=1, b=2)</call-MARK>", "cannot be read", None),
        (f'{HEAD}{{"a": 1, "b": "par', "cannot be read", "add"),
        (f'{HEAD}{{"a"=1}}</call-MARK>', "cannot be read", "add"),
        (f"{HEAD}[1, 2]</call-MARK>", "cannot be read", "add"),
        ('<call-MARK tool="ad">{"a": 1, "b": 2}</call-MARK>', "There is no tool 'ad'", "add"),
        (f'{HEAD}{{"a": 1}}</call-MARK>', "do not fit", "add"),
        (f'{HEAD}{{"a": 1, "b": "0x10"}}</call-MARK>', "do not fit", "add"),
    ],
)  # fmt: skip
# Shows M68
def test_what_cannot_be_read_is_told(text: str, says: str, tool: str | None) -> None:
    reading = read(text, ended="length" if text.endswith("2") else "stop")

    assert reading.calls == ()
    [fault] = reading.faults
    assert fault.name == tool
    assert says in fault.message


def test_calls_beside_a_fault_can_be_made() -> None:
    reading = read(f'{THOUGHT}\n<call-MARK tool="ad"></call-MARK>\n{CALL}')

    assert pairs(reading) == [(1, 2), (3, 4)]
    assert [one.name for one in reading.faults] == ["add"]


@each_row(
    "text",
    [
        f"{HEAD}{{'a': 1, 'b': 2}}</call-MARK>",
        f'{HEAD}{{"a": 1, "b": 2,}}</call-MARK>',
        f'{HEAD}{{"a": 1, "b": 2</call-MARK>',
        f'{HEAD}{{"a": 1, "b": 2}} That is it.</call-MARK>',
        f'{HEAD}{{"a": 1, "b": 2}}',
        f"{HEAD}<parameter=a>1</parameter><parameter=b>2</parameter>",
    ],
)
# Shows M67
def test_what_has_one_reading_is_mended_and_an_event_says_so(text: str) -> None:
    reading = read(text)

    assert pairs(reading) == [(1, 2)]
    assert len(reading.repairs) == 1

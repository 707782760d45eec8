"""What a listener sees of a reply that arrives in pieces (M84)."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.text_calls.formats import FORMATS, Format
from flowengine.agents.text_calls.reading import read_reply
from flowengine.agents.text_calls.streaming import StreamFilter
from tests.agents.add import ADD

CALLS = [one.write([("add", {"a": 1, "b": 2})]) for one in FORMATS]


def deltas(text: str, size: int = 3) -> list[str]:
    stream = StreamFilter([ADD])
    shown = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
    return [*shown, stream.close()]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.name)
def test_no_syntax_of_calls_is_shown(one: Format, size: int) -> None:
    text = f"Hi \n{one.write([('add', {'a': 1, 'b': 2}), ('add', {'a': 3, 'b': 4})])}"

    assert "".join(deltas(text, size)).rstrip("\n") == "Hi "


def test_a_call_behind_text_on_the_same_line() -> None:
    text = 'Hi <tool_call>{"name":"add","arguments":{"a":1,"b":2}}</tool_call>'

    assert "".join(deltas(text)) == "Hi "


@pytest.mark.parametrize(
    "text",
    [
        "1 < 2 and <b>bold</b>, {x} [1] <",
        "a <\nb",
        "Write `<tool_call>` to call.",
        "- [ ] task\n- [x] done\n{not json}",
        "Action",
        "```python\nprint('<tool_call>')\n```\nThat is it.",
        "```\nnever closed",
        "A <tool_call> tag opens a call.",
        '{"name": "Bob", "age": 3} is Bob.',
        "",
    ],
)
def test_prose_is_delivered_whole(text: str) -> None:
    assert "".join(deltas(text)) == text
    assert "".join(deltas(text, 1)) == text


def test_prose_is_delivered_as_soon_as_it_is_known_to_be_prose() -> None:
    stream = StreamFilter([ADD])

    assert [stream.feed(piece) for piece in ("1 ", "<", " 2, ", "<to", "ol", "s>")] == [
        "1 ",
        "",
        "< 2, ",
        "",
        "",
        "<tools>",
    ]


def test_reasoning_is_not_shown() -> None:
    assert "".join(deltas("<think>Hm. <tool_call>{}</think>\nThree.")) == "\nThree."
    assert "".join(deltas("<think>Hm. I")) == ""


def test_what_follows_a_call_comes_at_the_end() -> None:
    assert deltas(f"One\n{CALLS[0]}\nTwo", 1000) == ["One\n", "\nTwo"]


def test_a_long_reply_in_small_pieces_is_not_slow() -> None:
    for unit in ("word < ", " ", "```\nx\n", "<think>", "```a\n" + "x" * 500, "<tool_call>", "[ "):
        text = (unit * 30_000)[:60_000]
        begun = time.process_time()
        deltas(text)
        assert time.process_time() - begun < 5, unit


PIECES = [
    *CALLS,
    *(text[: len(text) // 2] for text in CALLS),
    *(text[len(text) // 2 :] for text in CALLS),
    *("<think>", "<think>x</think>", "```json\n", "```\n", "\n", " ", "`", "<", "{", "[", "add"),
    *("Action", "text ", "\n\n", '"', "'", ",", "]"),
]


@settings(max_examples=200)
@given(drawn=st.binary(max_size=6), seed=st.integers(0, 999))
def test_the_pieces_shown_are_the_content_of_the_reply(drawn: bytes, seed: int) -> None:
    text = "".join(PIECES[byte % len(PIECES)] for byte in drawn)
    chance = random.Random(seed)
    stream, shown, rest = StreamFilter([ADD]), "", text
    while rest:
        size = chance.randint(1, 12)
        shown += stream.feed(rest[:size])
        rest = rest[size:]
    shown += stream.close()

    assert shown.strip() == read_reply(text, [ADD]).content.strip()

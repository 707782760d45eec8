# Shows M84
"""Parts of a streamed reply as passed to a listener (M84)."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.text_calls.marked_form import MarkedForm, marked
from flowengine.agents.text_calls.reading import read_reply
from flowengine.agents.text_calls.streaming import Shown, StreamFilter
from tests.agents.add import ADD
from tests.rows import each_row

FORM = marked("0badcafe")
CALL = FORM.write([("add", {"a": 1, "b": 2})])


def deltas(text: str, size: int = 3, form: MarkedForm | None = FORM) -> list[str]:
    stream = StreamFilter(form)
    shown = [texts(stream.feed(text[at : at + size])) for at in range(0, len(text), size)]
    return [*shown, texts(stream.close())]


def texts(parts: list[Shown]) -> str:
    return "".join(text for kind, text in parts if kind == "text")


@each_row("size", [1, 3, 1000])
@each_row("fence", ["Hi \n{}", "```\n{}\n```", "~~~xml\n\n{}\n~~~\n"])
def test_no_syntax_of_calls_is_shown(fence: str, size: int) -> None:
    calls = FORM.write([("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})])
    text = fence.replace("{}", calls)

    assert "".join(deltas(text, size)) == "Hi" * (fence[0] == "H")


@each_row(
    "text",
    [
        "1 < 2 and <b>bold</b>, {x} [1] <",
        "a <\nb",
        "Write `<call-0badcafe>` to call.",
        f"Write {CALL} to call.",
        "- [ ] task\n- [x] done\n{not json}",
        "Action",
        "```python\nprint('<call-0badcafe')\n```\nThat is it.",
        "```\n```\n ``` x",
        f"An example:\n```\n{CALL}\n```\n",
        "```\nnever closed",
        "A <call> tag opens a call.",
        '{"name": "Bob", "age": 3} is Bob.',
        "",
    ],
)
def test_prose_is_delivered_whole(text: str) -> None:
    assert "".join(deltas(text)) == text
    assert "".join(deltas(text, 1)) == text


def test_prose_is_delivered_as_soon_as_it_is_known_to_be_prose() -> None:
    stream = StreamFilter(FORM)

    pieces = ("1 ", "<", " 2, ", "<ca", "ll", "s>")
    assert [texts(stream.feed(piece)) for piece in pieces] == ["1", "", " < 2,", "", "", " <calls>"]


def test_a_code_fence_is_delivered_as_it_arrives() -> None:
    stream = StreamFilter(FORM)

    pieces = ["It is:\n```py\n", "a = 1\nb", " = 2\n", "```\nSo"]
    assert [texts(stream.feed(piece)) for piece in pieces] == [
        "It is:\n```py",
        "\na = 1\nb",
        " = 2",
        "\n```\nSo",
    ]


def test_a_tag_that_is_mentioned_holds_the_rest_back() -> None:
    assert deltas("Write `<think>`, and then go on.", 8)[0] == "Write `"
    assert deltas("Write `<think>`, and then go on.", 8)[-1].endswith("and then go on.")


def test_reasoning_is_not_shown() -> None:
    assert "".join(deltas(f"<think>Hm. {CALL}</think>\nThree.")) == "Three."
    assert "".join(deltas("<think>Hm. I")) == ""


@each_row("form", [FORM, None])
def test_reasoning_that_a_template_opened_is_taken_back(form: MarkedForm | None) -> None:
    stream = StreamFilter(form)

    first, second = stream.feed("One and two. "), stream.feed("So three.</think>\n\nThree")

    assert first == [("text", "One and two.")]
    assert second == [
        ("text", " So three."),
        ("restart", ""),
        ("reasoning", "One and two. So three."),
        ("text", "Three"),
    ]
    assert stream.close() == []


def test_what_follows_a_call_comes_at_the_end() -> None:
    assert deltas(f"One\n{CALL}\nTwo", 1000) == ["One", "\n\nTwo"]


@pytest.mark.endurance
def test_a_long_reply_in_small_pieces_is_not_slow() -> None:
    for unit in ("word < ", " ", "```\nx\n", "<think>", "```a\n" + "x" * 500, CALL, "[ "):
        text = (unit * 30_000)[:60_000]
        begun = time.process_time()
        deltas(text)
        assert time.process_time() - begun < 5, unit


PIECES = [
    CALL,
    f"{CALL}\n",
    f"\n```\n{CALL}\n```\n",
    CALL[: len(CALL) // 2],
    CALL[len(CALL) // 2 :],
    FORM.write_result("add", "3"),
    *("<think>", "<think>x</think>", "```json\n", "```\n", "\n", " ", "`", "<", "{", "[", "add"),
    *("Action", "text ", "\n\n", '"', "'", ",", "]", "</think>", "</think>\n", "</thinking>"),
    *("<tool_call>", "</tool_calls>", "`<think>`", "a\n", "[THINK]", "[/THINK]", "~~~~", "  "),
]


@pytest.mark.endurance
@pytest.mark.parametrize("form", [FORM, None], ids=["text", "native"])
@settings(max_examples=400)
@given(
    drawn=st.binary(max_size=8), seed=st.integers(0, 999), apart=st.sampled_from([None, "", "x"])
)
def test_the_pieces_shown_are_the_content_of_the_reply(
    form: MarkedForm | None, drawn: bytes, seed: int, apart: str | None
) -> None:
    text = "".join(PIECES[byte % len(PIECES)] for byte in drawn)
    chance = random.Random(seed)
    stream, shown, rest = StreamFilter(form), [], text
    if apart is not None:
        stream.reasoning(apart)
    while rest:
        size = chance.randint(1, 12)
        shown += stream.feed(rest[:size])
        rest = rest[size:]
    shown += stream.close()
    last = max((at for at, part in enumerate(shown) if part[0] == "restart"), default=-1)

    whole = read_reply(text, [ADD], form, thought=None if apart is None else bool(apart))
    assert texts(shown[last + 1 :]) == whole.content

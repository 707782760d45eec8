"""What a listener sees of a reply that arrives in pieces (M84)."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.text_calls.marked_form import marked
from flowengine.agents.text_calls.reading import read_reply
from flowengine.agents.text_calls.streaming import StreamFilter
from tests.agents.add import ADD

FORM = marked("0badcafe")
CALL = FORM.write([("add", {"a": 1, "b": 2})])


def deltas(text: str, size: int = 3) -> list[str]:
    stream = StreamFilter(FORM)
    shown = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
    return [*shown, stream.close()]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("fence", ["Hi \n{}", "```\n{}\n```", "~~~xml\n\n{}\n~~~\n"])
def test_no_syntax_of_calls_is_shown(fence: str, size: int) -> None:
    calls = FORM.write([("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})])
    text = fence.replace("{}", calls)

    assert "".join(deltas(text, size)).rstrip("\n") == "Hi " * (fence[0] == "H")


@pytest.mark.parametrize(
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

    assert [stream.feed(piece) for piece in ("1 ", "<", " 2, ", "<ca", "ll", "s>")] == [
        "1 ",
        "",
        "< 2, ",
        "",
        "",
        "<calls>",
    ]


def test_a_code_fence_is_delivered_line_by_line() -> None:
    stream = StreamFilter(FORM)

    pieces = ["It is:\n```py\n", "a = 1\nb", " = 2\n", "```\nSo"]
    assert [stream.feed(piece) for piece in pieces] == [
        "It is:\n```py\n",
        "a = 1\n",
        "b = 2\n",
        "```\nSo",
    ]


def test_reasoning_is_not_shown() -> None:
    assert "".join(deltas(f"<think>Hm. {CALL}</think>\nThree.")) == "\nThree."
    assert "".join(deltas("<think>Hm. I")) == ""


def test_what_follows_a_call_comes_at_the_end() -> None:
    assert deltas(f"One\n{CALL}\nTwo", 1000) == ["One\n", "\nTwo"]


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
    *("Action", "text ", "\n\n", '"', "'", ",", "]"),
]


@settings(max_examples=200)
@given(drawn=st.binary(max_size=6), seed=st.integers(0, 999))
def test_the_pieces_shown_are_the_content_of_the_reply(drawn: bytes, seed: int) -> None:
    text = "".join(PIECES[byte % len(PIECES)] for byte in drawn)
    chance = random.Random(seed)
    stream, shown, rest = StreamFilter(FORM), "", text
    while rest:
        size = chance.randint(1, 12)
        shown += stream.feed(rest[:size])
        rest = rest[size:]
    shown += stream.close()

    assert shown.strip() == read_reply(text, [ADD], FORM).content.strip()

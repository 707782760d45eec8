# Shows M72
"""Replies of any shape are parsed in linear time and raise nothing (M72)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import ValidationError

from flowengine.agents.text_calls.marked_form import Ended, marked
from flowengine.agents.text_calls.reading import MAX_CALLS, MAX_FAULTS, read_reply
from flowengine.agents.text_calls.requests import example_of
from flowengine.agents.text_calls.unread import unread_call
from flowengine.sdk.values.validation import Validator
from tests.agents.add import ADD
from tests.sliced_examples import sliced

SIZE = 1_000_000
FORM = marked("0badcafe")
OPEN = '<call-0badcafe tool="add">'
CALL = f'{OPEN}{{"a":1,"b":2}}</call-0badcafe>'


def seconds_for(text: str) -> float:
    """Return the seconds taken by the slowest parser of a reply."""
    readers: list[Callable[[], object]] = [
        lambda: read_reply(text, [ADD], FORM),
        lambda: read_reply(text, [], None),
        lambda: unread_call(text, {"add": ADD}),
    ]
    found = []
    for read in readers:
        begun = time.process_time()
        read()
        found.append(time.process_time() - begun)
    return max(found)


@pytest.mark.endurance
@pytest.mark.parametrize(
    "text",
    [
        "<call-0badcafe" * (SIZE // 14),
        "x <call-0badcafe " * (SIZE // 17),
        f"{OPEN}<parameter=a>" * (SIZE // 39),
        OPEN + "{" * (SIZE // 2) + "}" * (SIZE // 2),
        OPEN + "<parameter=a></parameter>" * (SIZE // 25),
        f"<call-0badcafe{' ' * SIZE}x",
        f"{OPEN}<parameter=a>1</parameter>{' ' * SIZE}x",
        "<think>" + "x <call-0badcafe " * (SIZE // 17),
        "<think></think>" * (SIZE // 15),
        "```\nx\n```\n" * (SIZE // 10),
        "`" * SIZE,
        "x\n<think>\n" * (SIZE // 10),
        "<tool_call>{" * (SIZE // 12),
        "{\n" * (SIZE // 2),
        f"```\n{CALL}\n" * (SIZE // 60),
        "<result-0badcafe" * (SIZE // 16),
        '{"name": "add", ' * (SIZE // 16),
        '{"add": {' * (SIZE // 9),
        'add\n{"' * (SIZE // 6),
        "Action: add\n" * (SIZE // 12),
        "<param>" * (SIZE // 7) + "add",
        "[add(a=" * (SIZE // 7),
        random.Random(1).randbytes(SIZE).decode("latin-1"),
    ],
    ids=lambda text: repr(text[:12]),
)
def test_a_megabyte_of_anything_is_read_within_a_second(text: str) -> None:
    assert any(seconds_for(text) < 1 for _ in range(5)), "processors that are shared are slower"


def test_a_reply_with_too_many_calls_or_faults_is_not_read_any_further() -> None:
    many = read_reply(CALL * (MAX_CALLS + 10), [ADD], FORM)
    broken = "<call-0badcafe>{}</call-0badcafe>"
    faults = read_reply(broken * (MAX_FAULTS + 10) + CALL, [ADD], FORM)

    assert len(many.calls) == MAX_CALLS
    assert "were not made" in many.faults[0].message
    assert (len(faults.calls), len(faults.faults)) == (0, MAX_FAULTS)


def test_an_example_of_a_call_is_found_among_few_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that lists thousands of values, of which none is valid, stops nothing."""
    tried: list[object] = []
    misfits = Validator.misfits

    def counted(validator: Validator, value: object, most: int) -> list[ValidationError]:
        tried.append(value)
        return misfits(validator, value, most)

    monkeypatch.setattr(Validator, "misfits", counted)
    choices = {"enum": [f"value {number}" for number in range(5000)], "type": "integer"}

    assert example_of({"properties": {"a": choices}, "required": ["a"]}) is None
    assert 0 < len(tried) <= 20


def pieces() -> list[str]:
    """Return fragments of replies, including ones that could break a parser."""
    whole = [FORM.write([("add", {"a": 1, "b": 2})]), FORM.write_result("add", "3"), CALL]
    halves = [text[: len(text) // 2] for text in whole]
    rests = [text[len(text) // 2 :] for text in whole]
    marks = ["<think>", "</think>", "```json\n", "```\n", "\n", " ", "`", '"', "'", "\\"]
    odd = ["{", "}", "[", "]", "<", ">", ",", ":", "add", "\x00", "\ud800", "\u2028", "9" * 5000]
    return whole + halves + rests + marks + odd


PIECES = pieces()


@sliced(examples=100)
@given(drawn=st.binary(max_size=32), ended=st.sampled_from(["stop", "length"]))
def test_any_reply_is_read_and_what_is_called_fits_the_schema(drawn: bytes, ended: Ended) -> None:
    """Four replies per example, which is four times as fast as one."""
    for part in range(4):
        text = "".join(PIECES[byte % len(PIECES)] for byte in drawn[part::4])
        check(text, ended)


def check(text: str, ended: Ended) -> None:
    reading = read_reply(text, [ADD], FORM, ended=ended)

    for call in reading.calls:
        assert call.name == "add"
        assert set(call.arguments) == {"a", "b"}
        assert all(type(value) is int for value in call.arguments.values())


def test_an_example_of_a_call_uses_the_first_alternative_within_its_bounds() -> None:
    number = {"type": "number", "minimum": 5, "maximum": 9}
    schema = {"properties": {"a": {"anyOf": [number, {"type": "string"}]}}, "required": ["a"]}

    assert example_of(schema) == {"a": 5}

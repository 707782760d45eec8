# Shows F12
"""YAML 1.2 core schema: plain data only, with a position for every key, value and character."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flowengine.flow.export.definition import to_yaml
from flowengine.flow.source.diagnostics import Position
from flowengine.flow.source.yaml_source import MAX_BYTES, Source, read, read_bytes, read_text
from tests.rows import each_row
from tests.sliced_examples import sliced


def marked(source: Source, place: Position) -> str:
    """Return the text of the file at a position."""
    return source.line_text(place.line)[place.column - 1 :][: place.length]


@each_row(
    ("written", "meant"),
    [
        ("true", True),
        ("False", False),
        ("on", "on"),
        ("Off", "Off"),
        ("null", None),
        ("", None),
        ("1.10", 1.1),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        ("12", 12),
        ("0", 0),
        ("0o17", 15),
        ("0x1F", 31),
        ("017", "017"),
        ("1_000", "1_000"),
        ("2026-11-25", "2026-11-25"),
        ("=", "="),
        ("'true'", "true"),
        ('"12"', "12"),
        ('"\\u00e9\\x41\\n"', "éA\n"),
    ],
)
def test_a_scalar_means_what_the_core_schema_says(written: str, meant: Any) -> None:
    source = read_text(f"value: {written}\n")

    assert source.problems == []
    assert source.data == {"value": meant}
    assert type(source.data["value"]) is type(meant)


def test_keys_and_values_have_their_places() -> None:
    source = read_text("steps:\n  - id: fetch\n    retry: {attempts: 3, delay: 1s}\n", "f.yaml")

    assert source.position(("steps", 0, "id")) == Position(2, 9, 5, "f.yaml")
    assert source.position(("steps", 0, "id"), key=True) == Position(2, 5, 2, "f.yaml")
    assert source.position(("steps", 0, "retry", "delay")) == Position(3, 33, 2, "f.yaml")
    assert source.position(("steps", 0)) == Position(2, 5, 2, "f.yaml")
    assert source.position(("steps", 0, "retry")) == Position(3, 12, 1, "f.yaml")


def test_what_is_not_there_is_where_it_would_be() -> None:
    """A path in the long form leads to the short one: `wait.for` to the value of `wait`."""
    source = read_text("steps:\n  - id: pause\n    wait: 3d\n")

    assert marked(source, source.position(("steps", 0, "wait", "for"))) == "3d"
    assert marked(source, source.position(("steps", 0, "retry", "attempts"))) == "id"
    assert marked(source, source.inside(("steps", 0, "wait", "for"), 1)) == "d"


def test_an_alias_is_where_it_stands_and_its_content_at_the_anchor() -> None:
    source = read_text('a: &key "${{ inputs.x }}"\nb: *key\n')

    assert marked(source, source.position(("b",))) == "*key"
    place = source.inside(("b",), len("${{ inputs."), 1)
    assert (place.line, marked(source, place)) == (1, "x")


TEXTS = {
    "plain": "value: one here two",
    "plain over lines": "value: one\n   here\n  two",
    "single quotes": "value: 'it''s here, isn''t it'",
    "double quotes": 'value: "caf\\u00e9 \\"x\\" \\\n   here\\n\\ttwo"',
    "double quotes over lines": 'value: "one\n\n   here two"',
    "literal": "value: |\n  one\n    here\n  two\n",
    "literal with header": "value: |2-  # note here\n   one\n  here\n",
    "folded": "value: >-\n  one\n  here\n\n  two\n",
    "behind an anchor": "value: &a  'one here'",
    "in a list": "value: [one, two, three here]",
    "carriage returns": "value: |\r\n  one\r\n  here\r\n",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_character_of_a_text_has_its_place_however_the_text_is_written(text: str) -> None:
    source = read_text(text + "\n")
    value = source.data["value"]
    loc: tuple[str | int, ...] = ("value",)
    if isinstance(value, list):
        loc, value = ("value", 2), value[2]

    place = source.inside(loc, value.index("here"), 4)

    assert marked(source, place) == "here"


words = st.text(alphabet="ab'\"\\ \n#:{é\u20ac\U0001f600\t", max_size=12)


@given(before=words, after=words)
def test_any_text_keeps_its_places_through_quoting_and_folding(before: str, after: str) -> None:
    value = f"{before}Z{after}"
    for written in (to_yaml({"value": [value]}), json.dumps({"value": [value]})):
        source = read_text(written)
        assert source.data == {"value": [value]}
        assert marked(source, source.inside(("value", 0), len(before))) == "Z"


json_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.endurance
@given(json_data)
def test_what_is_written_reads_back_the_same(data: Any) -> None:
    """`to_yaml`, JSON and the reader agree on every JSON value."""
    for written in (to_yaml(data), json.dumps(data), json.dumps(data, indent="\t")):
        source = read_text(written)
        assert source.problems == []
        assert source.data == data


@sliced(examples=20)
@given(st.text(alphabet="ab: -{}[]'\"|>&*!%@`#\n\t,?$~<.0", max_size=60) | st.text(max_size=60))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    """Any file yields data or problems with positions, never an exception."""
    source = read_text(text)

    for problem in source.problems:
        assert 1 <= problem.column <= len(source.line_text(problem.line)) + 1


@given(st.binary(max_size=60))
@example(b"~")
def test_no_bytes_make_the_reader_fail(content: bytes) -> None:
    source = read_bytes(content, "f.yaml")

    assert source.root is not None or source.problems


def messages(source: Source) -> list[str]:
    return [f"{one.line}:{one.column} {one.message}" for one in source.problems]


def test_a_file_that_is_not_utf8_is_refused_at_the_byte() -> None:
    source = read_bytes("id: café\n".encode("latin-1"), "f.yaml")

    assert messages(source) == ["1:8 the file is not UTF-8: byte 0xe9"]


def test_a_file_of_more_than_a_mebibyte_is_refused() -> None:
    source = read_bytes(b"#" * (MAX_BYTES + 1), "f.yaml")

    assert messages(source) == ["1:1 the file is larger than 1 MiB"]
    assert read_bytes(b"#" * MAX_BYTES, "f.yaml").problems[0].message == "the file is empty"


@each_row("text", ["", "\n", "# nothing\n"])
def test_an_empty_file_says_so(text: str) -> None:
    assert messages(read_text(text)) == ["1:1 the file is empty"]


def test_a_byte_order_mark_is_no_part_of_the_file() -> None:
    source = read_bytes(b"\xef\xbb\xbfid: a\n", "f.yaml")

    assert source.data == {"id": "a"}
    assert source.position(("id",)).column == 5


@each_row("encoding", ["utf-16", "utf-32", "utf-8-sig"])
def test_a_byte_order_mark_declares_the_encoding(encoding: str) -> None:
    assert read_bytes("id: é\n".encode(encoding), "f.yaml").data == {"id": "é"}


@each_row(
    ("written", "meant"),
    [
        (r'"\ud83d\ude00 \uD83D\uDE00"', "😀 😀"),
        (r'{"\ud83d\ude00": "\\ud83d\\ude00\\\ud83d\ude00"}', {"😀": "\\ud83d\\ude00\\😀"}),
        (r"'\ud83d\uDE00 ''\ud83d\ude00'", r"\ud83d\uDE00 '\ud83d\ude00"),
        (r"[\ud83d\ude00, \\uD83d\udE00]", [r"\ud83d\ude00", r"\\uD83d\udE00"]),
        ("a: |\n  \\ud83d\\ude00\n", {"a": "\\ud83d\\ude00\n"}),
        (r'"\ud83d"', r"1:2 '\ud83d' is not the escape of a character"),
        (r'"\ude00\ud83d"', r"1:2 '\ude00' is not the escape of a character"),
        (r'"a\u12"', r"1:3 '\u12' is not the escape of a character"),
    ],
)
def test_escapes_of_json_are_read_in_double_quotes(written: str, meant: Any) -> None:
    source = read_text(written)

    assert (messages(source)[0] if source.problems else source.data) == meant


@each_row("end", ["\n", "\r\n", "\r"])
def test_lines_count_the_same_with_any_line_end(end: str) -> None:
    source = read_text(end.join(["a: 1", "b: 2", "c: x", ""]))

    assert source.position(("c",)) == Position(3, 4, 1, "flow.yaml")
    assert source.line_text(3) == "c: x"


def test_line_breaks_of_yaml_1_1_are_refused_in_text() -> None:
    source = read_text("a: one\u2028two\nb: 1\n")

    assert messages(source) == ["1:7 the character U+2028 is in the text"]
    assert source.position(("b",)).line == 2


def test_control_characters_are_refused() -> None:
    assert messages(read_text("a: b\x00c\n")) == ["1:5 the character U+0000 is not allowed"]


def test_deep_nesting_is_refused_without_recursion_errors() -> None:
    for text in ("[" * 5000, "{a: " * 5000, "- " * 5000 + "x"):
        assert [one.message for one in read_text(text).problems] != []


def test_tags_construct_nothing() -> None:
    source = read_text("a: !!python/object/apply:os.getcwd []\nb: !!int '3'\nc: ! x\n")

    assert [one.split(" ")[0] for one in messages(source)] == ["1:4", "2:4", "3:4"]
    assert source.data == {"a": [], "b": "3", "c": "x"}


def test_a_file_is_named_as_the_user_named_it(folder: Path, monkeypatch: Any) -> None:
    (folder / "f.yaml").write_text("a: 1\n", encoding="utf-8")

    assert read("f.yaml").name == "f.yaml"
    assert read("f.yaml").position(("a",)).file == "f.yaml"

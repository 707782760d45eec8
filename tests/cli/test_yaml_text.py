"""Outputs on one line are YAML that all parsers read as the same value."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from flowengine.flow.export.yaml_text import entry, inline
from flowengine.flow.source.yaml_source import read_text
from tests.rows import each_row
from tests.sliced_examples import sliced

AMBIGUOUS = """
null Yes NO ~ y off 1_000 12:30:45 0x1F 0o17 0b1 017 1e3 .inf -.inf 2026-11-03 1.10 +5 - ? = << ...
2026-11-03T10:00:00Z --- a,b [x] {y} x? #c @a `b %d
"""
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    [*AMBIGUOUS.split(), "- a", "a: b", "a #b", "a:", " a", "a ", "", "two\nlines", "tab\t"]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@sliced(examples=20)
@given(VALUES)
def test_both_versions_of_yaml_read_the_value_back(value: Any) -> None:
    line = entry("key", value)

    assert "\n" not in line
    assert yaml.safe_load(line) == {"key": value}
    source = read_text(f"flowengine: 1\n{line}\n")
    assert (source.problems, source.data["key"]) == ([], value)


@each_row(
    ("value", "text"),
    [
        ("Hello, Ada!", "Hello, Ada!"),
        (["Ana", "Zoé, too"], '[Ana, "Zoé, too"]'),
        ({"id": 7, "at": None}, "{id: 7, at: null}"),
        ("2026-11-03", '"2026-11-03"'),
        (1e16, "1.0e+16"),
        ("\ud800", '"\\ud800"'),
        (b"\x00", '!!binary "AA=="'),
    ],
)
def test_values_are_written_plainly_where_that_is_safe(value: Any, text: str) -> None:
    assert inline(value) == text

"""Step results are serialized in one pass of msgpack, as strict as a check of each part."""

from __future__ import annotations

import datetime
import enum
import math
import sys
from collections import OrderedDict
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.engines.attempts.serialization import copy, keep
from flowengine.journal.encoding import pack
from flowengine.sdk import ValidationError
from flowengine.sdk.values.plain_values import to_plain
from tests.rows import each_row
from tests.sliced_examples import sliced


class Colour(enum.StrEnum):
    RED = "red"


class Text(str):
    __slots__ = ()


few = st.none() | st.text(max_size=3)
plain = (
    st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([-(2**63), 2**63, 2**64 - 1, sys.float_info.max, -sys.float_info.max])
    | st.text()
    | st.binary(max_size=3)
)
refused = st.sampled_from([math.nan, -math.nan, math.inf, -math.inf, 2**64, -(2**63) - 1, "\ud800"])
richer = st.sampled_from(
    [
        Colour.RED,
        Text("t"),
        bytearray(b"b"),
        memoryview(b"m"),
        datetime.date(2026, 1, 2),
        msgpack.Timestamp(1),
        msgpack.ExtType(5, b"x"),
        object(),
        {1},
        1j,
    ]
)
odd_keys = st.sampled_from([Text("k"), Colour.RED, b"k", b"", "\ud800", 1, None, 1.5, (1,), True])


def nested(leaves: Any, keys: Any) -> Any:
    """Draw small values, because large ones are rejected nearly always."""
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=5,
    )


anything = (
    nested(few | plain, st.text())
    | nested(few | refused, st.text(max_size=3))
    | nested(few | richer | st.tuples(few, few), st.text(max_size=3))
    | nested(few | st.dictionaries(st.text(), few).map(OrderedDict), st.text(max_size=3))
    | nested(few, st.sampled_from(["k", "l"]) | odd_keys)
)


def outcome(of: Any, value: Any) -> Any:
    try:
        return of(value)
    except ValidationError as error:
        return error.message


def exact(value: Any) -> Any:
    """Distinguish values that compare equal: `1`, `True` and `1.0`, a list and a tuple."""
    if type(value) is dict:
        return [(exact(key), exact(item)) for key, item in value.items()]
    if type(value) is list:
        return [exact(item) for item in value], list
    return type(value), repr(value)


@sliced(examples=150)
@given(anything)
def test_one_pass_keeps_and_refuses_what_a_look_at_each_part_does(value: Any) -> None:
    wanted, kept = outcome(to_plain, value), outcome(keep, value)

    if isinstance(kept, str):
        assert kept == wanted
        return
    assert exact(kept.value) == exact(wanted)
    if kept.packed is not None:
        assert kept.packed == pack(wanted)


def nested_deep(depth: int, innermost: Any) -> Any:
    for _ in range(depth):
        innermost = [innermost]
    return innermost


@each_row("innermost", [1, [], {}])
@each_row("depth", [199, 200, 201, 202, 600])
def test_depth_is_bounded_to_the_same_level(depth: int, innermost: Any) -> None:
    value = {"value": nested_deep(depth, innermost), "more": ["x" * 300] * 300}

    wanted, kept = outcome(to_plain, value), outcome(keep, value)

    assert kept == wanted if isinstance(wanted, str) else kept.value == wanted


def test_value_that_holds_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["self"] = [value]

    with pytest.raises(ValidationError, match="contains itself"):
        keep(value)


@sliced(examples=15)
@given(
    st.recursive(st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_copy_shares_no_container(value: Any) -> None:
    copied = copy(value)

    assert copied == value
    assert not containers(copied) & containers(value)


def containers(value: Any) -> set[int]:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = {id(value)} if isinstance(value, dict | list) else set()
    return own.union(*map(containers, parts))

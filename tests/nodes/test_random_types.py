"""Random types and values of them: what is written is read again, also as JSON."""

from __future__ import annotations

import dataclasses
import enum
import json
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, Union

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, computed_field

from flowengine.engines.attempts.serialization import keep
from flowengine.sdk.python.conversions import conversion_to
from flowengine.sdk.python.live_types import LiveTypes
from flowengine.sdk.texts.json_values import plain
from flowengine.sdk.values.declared_forms import writing
from flowengine.sdk.values.validation import Validator


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass(frozen=True)
class Point:
    at: date
    code: bytes = b""


class Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    price: Decimal
    took: timedelta = timedelta(0)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> Decimal:
        return self.price * 2


class Typed(NamedTuple):
    hint: Any
    values: st.SearchStrategy[Any]


DECIMALS = st.decimals(-(10**9), 10**9, places=3)
DATES = st.dates()
SCALARS = [
    Typed(bool, st.booleans()),
    Typed(int, st.integers(-(2**63), 2**63 - 1)),
    Typed(str, st.text(max_size=5)),
    Typed(float, st.floats(allow_nan=False, allow_infinity=False)),
    Typed(bytes, st.binary(max_size=5)),
    Typed(Decimal, DECIMALS),
    Typed(date, DATES),
    Typed(datetime, st.datetimes(timezones=st.just(UTC))),
    Typed(timedelta, st.timedeltas()),
    Typed(uuid.UUID, st.uuids()),
    Typed(Color, st.sampled_from(Color)),
    Typed(Point, st.builds(Point, DATES, st.binary(max_size=3))),
    Typed(Line, st.builds(Line, price=DECIMALS, took=st.timedeltas())),
]
KEYS = [each for each in SCALARS if each.hint not in {Point, Line, timedelta}]
ITEMS = [each for each in SCALARS if each.hint is not float]  # `0.0` and `-0.0` are one item


def of(generic: Any, *parts: Any) -> Any:
    """Return a generic type, which type checkers do not know."""
    return generic[parts]


def around(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    """Return types that contain others."""
    return st.one_of(
        inner.map(lambda one: Typed(of(list, one.hint), st.lists(one.values, max_size=3))),
        inner.map(lambda one: Typed(of(Union, one.hint, None), st.none() | one.values)),
        st.tuples(inner, inner).map(
            lambda two: Typed(
                of(tuple, two[0].hint, two[1].hint), st.tuples(two[0].values, two[1].values)
            )
        ),
        st.tuples(st.sampled_from(KEYS), inner).map(
            lambda two: Typed(
                of(dict, two[0].hint, two[1].hint),
                st.dictionaries(two[0].values, two[1].values, max_size=3),
            )
        ),
        st.sampled_from(ITEMS).map(
            lambda one: Typed(of(frozenset, one.hint), st.frozensets(one.values, max_size=3))
        ),
    )


TYPES = st.recursive(st.sampled_from(SCALARS), around, max_leaves=4)
TYPED = TYPES.flatmap(lambda typed: st.tuples(st.just(typed.hint), typed.values))


def shape(value: Any) -> Any:
    """Return the types inside a value."""
    if isinstance(value, dict):
        return [(type(key), shape(item)) for key, item in value.items()]
    return [shape(item) for item in value] if isinstance(value, list | tuple) else type(value)


@pytest.mark.endurance
@settings(max_examples=100)
@given(typed=TYPED)
def test_a_value_is_what_it_was(typed: tuple[Any, Any]) -> None:
    hint, value = typed
    write, read = writing(hint), conversion_to(hint)
    kept = keep(value if write is None else write(value)).value
    sent = json.loads(json.dumps(kept, default=plain))
    for form in (kept, sent):
        again = form if read is None else read(form)
        assert again == value
        assert shape(again) == shape(value)
        for result in (False, True):
            types = LiveTypes(result=result)
            Validator(types.records.tidied(types.schema(hint))).check(form, "the value")

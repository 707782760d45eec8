from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.agents.models import ModelError
from flowengine.agents.models.provider_schemas import WireNames, wire_name
from tests.rows import each_row
from tests.sliced_examples import sliced


@each_row(
    ("name", "wire"),
    [
        ("add", "add"),
        ("get-it_2", "get-it_2"),
        ("github.get_issue", "github__get_issue"),
        ("a" * 64, "a" * 64),
    ],
)
def test_what_providers_take_stays_and_dots_become_two_underscores(name: str, wire: str) -> None:
    assert wire_name(name) == wire


def test_long_and_strange_names_end_with_a_digest() -> None:
    one, other = wire_name("a" * 80), wire_name("a" * 81)

    assert one != other
    assert len(one) == 64
    assert wire_name("größe").startswith("gr__e_")


@sliced(examples=20)
@given(st.sets(st.text(max_size=90), max_size=8))
def test_every_name_fits_the_wire_and_comes_back(names: set[str]) -> None:
    try:
        known = WireNames(names)
    except ModelError:  # two clash, which is an error
        assert len({wire_name(name) for name in names}) < len(names)
        return

    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", wire_name(name))
        assert known.from_wire(wire_name(name)) == name


def test_two_tools_of_one_name_on_the_wire_are_refused_by_both_names() -> None:
    with pytest.raises(ModelError, match=r"'a\.b' and 'a__b' would both be called 'a__b'") as told:
        WireNames(["a.b", "a__b"])

    assert told.value.retryable is False


def test_a_name_that_is_not_on_offer_comes_back_as_it_is() -> None:
    assert WireNames(["add"]).from_wire("sub") == "sub"

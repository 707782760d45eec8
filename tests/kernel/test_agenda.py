"""The agenda: handlers accept the arguments of their entries. mypy checks the types."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from flowengine.kernel.agenda import AGENDA
from flowengine.kernel.moving.fields import FOLLOWS
from flowengine.kernel.state import entries

MADE_BY = {
    name: make
    for name, make in vars(entries).items()
    if inspect.isfunction(make) and inspect.signature(make).return_annotation == "Entry"
}


@pytest.mark.parametrize("make", MADE_BY.values(), ids=MADE_BY)
def test_every_entry_is_done_by_what_takes_its_arguments(make: Callable[..., Any]) -> None:
    entry = make(*range(len(inspect.signature(make).parameters)))

    row = AGENDA[entry[0]]
    inspect.signature(row.do).bind("advance", *entry[1:])


def test_the_agenda_knows_what_is_made_and_no_more() -> None:
    made = {make(*[0] * len(inspect.signature(make).parameters))[0] for make in MADE_BY.values()}

    assert set(AGENDA) == made
    assert set(FOLLOWS) <= made

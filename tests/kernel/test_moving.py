# Shows F75
"""Migration of states to another graph: all fields are covered, and executions continue (F75)."""

from __future__ import annotations

from flowengine.kernel.agenda import AGENDA
from flowengine.kernel.moving.fields import FIELDS, FOLLOWS
from flowengine.kernel.state import records as states


def test_every_field_of_a_state_is_known_to_who_moves_it() -> None:
    """A new field of the state must declare whether it refers to the graph."""
    for name, kinds in FIELDS.items():
        declared = getattr(states, name).__annotations__
        assert set(kinds) == set(declared), f"{name}: tell flowengine/kernel/moving/fields.py"
    records = {
        name
        for name, one in vars(states).items()
        if isinstance(one, type) and one.__module__ == states.__name__
    }
    assert records == {*FIELDS, states.Left.__name__}, "a base, of which there are no records"


def test_all_that_may_follow_is_known_to_the_agenda() -> None:
    assert set(FOLLOWS) <= set(AGENDA)

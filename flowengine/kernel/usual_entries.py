"""Agenda entries of an execution whose steps succeed, and the functions that process them.

`agenda` has all entries. It imports what any event may need, so it is only imported for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeAlias

from flowengine.kernel import flows
from flowengine.kernel.state import entries
from flowengine.kernel.state.entries import Entry
from flowengine.kernel.state.records import Activation, Arrival, Scope, Unit
from flowengine.kernel.steps import activation_outcomes, attempt_outcomes, attempts, scopes
from flowengine.kernel.tokens import activations
from flowengine.kernel.tokens.joins import arrive
from flowengine.kernel.transition import Transition
from flowengine.util.named_tuples import NamedTuple

P = ParamSpec("P")
_Doing: TypeAlias = "Callable[[Callable[P, None]], EntryRow]"


class EntryRow(NamedTuple):
    """How an entry is processed."""

    table: str | None
    """The table of the state that contains the entry's first argument. The entry is dropped if the
    record has ended. None: the function looks up the record itself because it has work to do in any
    case."""
    do: Callable[..., None]


def of_any(entry: Callable[P, Entry]) -> _Doing[Concatenate[Transition, P]]:
    return lambda do: EntryRow(None, do)


def of_unit(
    entry: Callable[Concatenate[int, P], Entry],
) -> _Doing[Concatenate[Transition, Unit, P]]:
    return lambda do: EntryRow("units", do)


def of_act(
    entry: Callable[Concatenate[int, P], Entry],
) -> _Doing[Concatenate[Transition, Activation, P]]:
    return lambda do: EntryRow("acts", do)


def of_scope(
    entry: Callable[Concatenate[int, P], Entry],
) -> _Doing[Concatenate[Transition, Scope, P]]:
    return lambda do: EntryRow("scopes", do)


def _arrive(tx: Transition, arrival: Arrival) -> None:
    """Accept a token that arrives at a step. See `joins`."""
    join = tx.graph.nodes[arrival["step"]].join
    if join is None or join["kind"] == "each":
        tx.agenda.append(entries.activate(arrival["step"], [arrival]))
        return

    arrive(tx, arrival)


USUAL = {
    "arrive": of_any(entries.arrive)(_arrive),
    "activate": of_any(entries.activate)(activations.activate),
    "attempt": of_unit(entries.attempt)(attempts.attempt),
    "ended": of_unit(entries.ended)(attempt_outcomes.attempt_ended),
    "act_ended": of_act(entries.act_ended)(activation_outcomes.activation_ended),
    "end_all": of_scope(entries.end_all)(scopes.end_all),
    "flow_ended": of_any(entries.flow_ended)(flows.succeed),
    "flow_end": of_any(entries.flow_end)(flows.end),
}
"""Entry name → how the entry is processed."""

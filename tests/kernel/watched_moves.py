"""Records the state transitions made in simulated executions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flowengine.kernel import new_state
from flowengine.kernel.state import moves, phases
from flowengine.kernel.state.phases import CUTS, GONE, SCOPES, UNITS, WAITS, States
from flowengine.kernel.state.records import State
from tests.replacing import patches_everywhere
from tests.simulation.simulator import unpacked

SIMULATOR = "tests.simulation.simulator"
Move = tuple[str, str, str]
Seen = set[Move]
"""The transitions made."""
TABLES: dict[str, States[Any]] = {table.of: table for table in phases.ALL}
ALLOWED = {
    (table.of, now, then)
    for table in phases.ALL
    for now, targets in table.moves.items()
    for then in targets
}
WATCHED: dict[str, tuple[str, Callable[[Any], str]]] = {
    "units": (UNITS.of, lambda unit: str(unit["phase"])),
    "waits": (WAITS.of, moves.wait_state),
    "scopes": (SCOPES.of, lambda scope: str(scope["phase"])),
    "cuts": (CUTS.of, lambda cut: str(cut["phase"])),
}


class Targets(dict[str, Any]):
    """The possible targets of a state, recording each one that is checked."""

    def __init__(self, targets: dict[str, Any], tell: Callable[[str], None]) -> None:
        super().__init__(targets)
        self.tell = tell

    def __contains__(self, then: object) -> bool:
        self.tell(str(then))
        return super().__contains__(then)


class Records(dict[int, Any]):
    """A table of the state, recording the state of each removed record."""

    def __init__(self, records: dict[int, Any], tell: Callable[[Any], None]) -> None:
        super().__init__(records)
        self.tell = tell

    def __delitem__(self, number: int) -> None:
        self.tell(self[number])
        super().__delitem__(number)


@contextmanager
def watched_moves() -> Iterator[Seen]:
    """Yield the transitions made within the block."""
    seen: Seen = set()

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            return unpacked(value)
        return _watched(unpacked({**value, **{k: dict(value[k]) for k in WATCHED}}), seen)

    with patches_everywhere() as patch:
        for table in TABLES.values():
            for now, targets in list(table.moves.items()):
                patch.setitem(table.moves, now, Targets(targets, _asks(seen, table.of, now)))
        patch.setattr(f"{SIMULATOR}.new_state", lambda: _watched(new_state(), seen))
        patch.setattr(f"{SIMULATOR}.unpacked", read)
        yield seen


def _asks(seen: Seen, of: str, now: str) -> Callable[[str], None]:
    return lambda then: seen.add((of, now, then))


def _leaves(seen: Seen, of: str, state_of: Callable[[Any], str]) -> Callable[[Any], None]:
    return lambda record: seen.add((of, state_of(record), GONE))


def _watched(state: State, seen: Seen) -> State:
    """Return a state that records the removals from its tables."""
    watched: Any = state
    for name, (of, state_of) in WATCHED.items():
        watched[name] = Records(watched[name], _leaves(seen, of, state_of))
    return state

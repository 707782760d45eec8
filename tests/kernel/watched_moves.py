"""Watches which moves between states are made in simulated executions, and by which modules."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import flowengine.kernel
from flowengine.kernel import new_state
from flowengine.kernel.state import moves, phases
from flowengine.kernel.state.phases import GONE, SCOPES, UNITS, WAITS, States
from flowengine.kernel.state.records import State
from flowengine.testing.simulator import unpacked

SIMULATOR = "flowengine.testing.simulator"
KERNEL = Path(flowengine.kernel.__file__).parent
Move = tuple[str, str, str]
Seen = dict[Move, set[str]]
"""The moves that were made → the modules that made them."""
TABLES: dict[str, States[Any]] = {table.of: table for table in phases.ALL}
ALLOWED = {
    (table.of, now, then): set(re.findall(r"[\w/]+\.py", by))
    for table in phases.ALL
    for now, targets in table.moves.items()
    for then, (_, by) in targets.items()
}
WATCHED: dict[str, tuple[str, Callable[[Any], str]]] = {
    "units": (UNITS.of, lambda unit: str(unit["phase"])),
    "waits": (WAITS.of, moves.wait_state),
    "scopes": (SCOPES.of, moves.scope_state),
}


class Targets(dict[str, Any]):
    """The states that one state can move to, which tells for which it was asked."""

    def __init__(self, targets: dict[str, Any], tell: Callable[[str], None]) -> None:
        super().__init__(targets)
        self.tell = tell

    def __contains__(self, then: object) -> bool:
        self.tell(str(then))
        return super().__contains__(then)


class Records(dict[int, Any]):
    """A table of the state, which tells in which state a record leaves it."""

    def __init__(self, records: dict[int, Any], tell: Callable[[Any], None]) -> None:
        super().__init__(records)
        self.tell = tell

    def __delitem__(self, number: int) -> None:
        self.tell(self[number])
        super().__delitem__(number)


@contextmanager
def watched_moves() -> Iterator[Seen]:
    """Yield the moves that are made meanwhile."""
    seen: Seen = {}

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            return unpacked(value)
        return _watched(unpacked({**value, **{k: dict(value[k]) for k in WATCHED}}), seen)

    with pytest.MonkeyPatch.context() as patch:
        for table in TABLES.values():
            for now, targets in list(table.moves.items()):
                patch.setitem(table.moves, now, Targets(targets, _asks(seen, table.of, now)))
        patch.setattr(f"{SIMULATOR}.new_state", lambda: _watched(new_state(), seen))
        patch.setattr(f"{SIMULATOR}.unpacked", read)
        yield seen


def wrong(seen: Seen) -> Seen:
    """Return the moves that a module made which the tables do not name for them."""
    strange = {move: by - ALLOWED.get(move, set()) for move, by in seen.items()}
    return {move: by for move, by in strange.items() if by}


def _asks(seen: Seen, of: str, now: str) -> Callable[[str], None]:
    return lambda then: seen.setdefault((of, now, then), set()).add(_mover())


def _leaves(seen: Seen, of: str, state_of: Callable[[Any], str]) -> Callable[[Any], None]:
    return lambda record: seen.setdefault((of, state_of(record), GONE), set()).add(_mover())


def _mover() -> str:
    """The module of the kernel that makes a move, by `moves.py`."""
    frame = sys._getframe(1)
    while True:
        path = frame.f_code.co_filename
        if path.startswith(f"{KERNEL}/") and not path.endswith("/moves.py"):
            return path.removeprefix(f"{KERNEL}/")
        assert frame.f_back is not None
        frame = frame.f_back


def _watched(state: State, seen: Seen) -> State:
    """Return a state that tells what leaves it."""
    watched: Any = state
    for name, (of, state_of) in WATCHED.items():
        watched[name] = Records(watched[name], _leaves(seen, of, state_of))
    return state

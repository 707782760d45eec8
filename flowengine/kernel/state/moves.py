"""The one place that moves the parts of an execution, and refuses a move that `phases` lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.kernel.state.phases import MOVES, Phase

if TYPE_CHECKING:
    from flowengine.kernel.state.records import Unit


def move(unit: Unit, phase: Phase) -> None:
    """Move a unit into a phase; a unit that is there already stays.

    Raises:
        AssertionError: There is no such move; it is a mistake in the kernel.
    """
    now = unit["phase"]
    if now != phase:
        if phase not in MOVES[now]:
            raise AssertionError(f"unit {unit['id']} cannot move from {now} to {phase}")
        unit["phase"] = phase

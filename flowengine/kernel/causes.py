"""The causes of failures in an execution, recorded during replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = ("unit", "act", "scope")
"""The kinds of places whose failure can be held back."""

FailurePlace = tuple[str, int]
"""`unit`, `act` or `scope` with its number. Also `items`, the failed items of a map, and
`cleanup`."""


class Blame:
    """The causes of failures, recorded during replay.

    Attributes:
        number: Number of the event that is being applied.
    """

    def __init__(self) -> None:
        self.number = 0
        self._causes: dict[FailurePlace, list[FailurePlace]] = {}
        self._seen: dict[FailurePlace, tuple[int, str]] = {}

    def note(self, place: FailurePlace, *causes: FailurePlace) -> None:
        """Record the causes of a place's failure. Without causes, the error was raised there."""
        self._causes[place] = list(causes)

    def add(self, place: FailurePlace, cause: FailurePlace) -> None:
        """Add a cause to a place's failure."""
        self._causes.setdefault(place, []).append(cause)

    def causes(self, place: FailurePlace) -> list[FailurePlace]:
        """Return the recorded causes of a place's failure."""
        return self._causes.get(place, [])

    def see(self, place: FailurePlace, address: str) -> None:
        """Record that a place fails now, and its address.

        Later calls for the same place have no effect.
        """
        self._seen.setdefault(place, (self.number, address))

    def forget(self, place: FailurePlace) -> None:
        """Remove the record of a failure from which a place has recovered."""
        self._causes.pop(place, None)
        self._seen.pop(place, None)

    def seen(self, place: FailurePlace) -> tuple[int, str]:
        """Return the number of the event at which a place failed, and its address."""
        return self._seen.get(place, (self.number, ""))

    def raised(self, place: FailurePlace) -> list[FailurePlace]:
        """Return the places that raised the errors behind a place's failure."""
        found, seen, left = list[FailurePlace](), set[FailurePlace](), [place]
        while left:  # each of many subflows in one another adds one
            if (one := left.pop()) not in seen:
                seen.add(one)
                causes = self._causes.get(one)
                left += reversed(causes or ())
                found += () if causes else (one,)
        return found


def added(hold: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """Add failures to those held back. A failure that is in both is held back twice."""
    if hold is None:
        return dict(more)
    kinds = {kind: [*hold.get(kind, ()), *more.get(kind, ())] for kind in KINDS}
    return {**hold, **more, **{kind: numbers for kind, numbers in kinds.items() if numbers}}

"""What made each place of an execution fail, noted while events are replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = ("unit", "act", "scope")
"""The kinds of places whose failure can be held back."""

Place = tuple[str, int]
"""`unit`, `act` or `scope`, and its number; also `items`, the failed ones of a map, and
`cleanup`."""


class Blame:
    """What made each place fail, noted while events are replayed.

    Attributes:
        number: Number of the event that is applied.
    """

    def __init__(self) -> None:
        self.number = 0
        self._causes: dict[Place, list[Place]] = {}
        self._seen: dict[Place, tuple[int, str]] = {}

    def note(self, place: Place, *causes: Place) -> None:
        """Note what made a place fail; nothing: the error was raised there."""
        self._causes[place] = list(causes)

    def add(self, place: Place, cause: Place) -> None:
        """Note one more cause of a place."""
        self._causes.setdefault(place, []).append(cause)

    def causes(self, place: Place) -> list[Place]:
        """Return what made a place fail, as far as it was noted."""
        return self._causes.get(place, [])

    def see(self, place: Place, address: str) -> None:
        """Note that a place fails now, and its address; the first time counts."""
        self._seen.setdefault(place, (self.number, address))

    def forget(self, place: Place) -> None:
        """Forget a failure after which a place goes on."""
        self._causes.pop(place, None)
        self._seen.pop(place, None)

    def seen(self, place: Place) -> tuple[int, str]:
        """Return the number of the event by which a place failed, and its address."""
        return self._seen.get(place, (self.number, ""))

    def raised(self, place: Place) -> list[Place]:
        """Return the places where the errors were raised that made a place fail."""
        causes = self._causes.get(place)
        if not causes:
            return [place]
        return list(dict.fromkeys(place for cause in causes for place in self.raised(cause)))


def added(hold: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is held back when more is; what is there twice is held back twice."""
    if hold is None:
        return dict(more)
    kinds = {kind: [*hold.get(kind, ()), *more.get(kind, ())] for kind in KINDS}
    return {**hold, **more, **{kind: numbers for kind, numbers in kinds.items() if numbers}}

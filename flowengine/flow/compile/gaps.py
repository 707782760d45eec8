"""Parts of a flow that were left out because of errors, and the checks that are still possible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flowengine.flow.compile.step_info import Info
from flowengine.flow.models import Loc

INNER = frozenset({"group", "parallel", "finally"})
"""Keys of a step that contain lists of steps."""
GRAPH = INNER | {"id", "next", "on_error", "join", "when", "cancel", "trigger"}
"""Keys of a step that determine its edges."""
WITHOUT_OUTCOME = frozenset({"id", "title", "with", "output", "emit", "effect", "on_crash"})
"""Keys of a step that add no outcome and no type of error."""


class Gaps:
    """The unknown parts of a flow, about which errors were reported.

    Errors that would only follow from a gap are not reported. Errors that hold however it is filled
    are.
    """

    def __init__(self) -> None:
        self.bodies: set[int] = set()
        """Bodies in which a step, or a way between steps, is missing."""
        self.steps: set[int] = set()
        """Steps with unknown parts, so that the steps after them are unknown."""
        self.joins: set[int] = set()
        """Steps whose join is unknown."""
        self.outcomes: set[int] = set()
        """Steps whose outcomes are unknown."""
        self.cancels = False
        """Whether it is unknown which steps are cancelled."""

    def __bool__(self) -> bool:
        """Whether a step, or a way between steps, is missing anywhere."""
        return bool(self.bodies)

    def add(self, unread: Iterable[Loc], own: Loc, steps: Iterable[Info]) -> None:
        """Record the parts that were left out.

        Args:
            unread: Places of the file.
            own: Place of the flow.
            steps: Its steps.
        """
        by_loc = {info.loc: info for info in steps}
        for loc in unread:
            if loc[: len(own)] != own:
                continue
            info = next(
                (by_loc[prefix] for prefix in _prefixes(loc, own) if prefix in by_loc), None
            )
            if info is not None:
                self._of_step(info, loc[len(info.loc) :])
            elif loc[len(own) :][:1] in {(), ("steps",), ("finally",), ("on_error",)}:
                self.bodies.add(0)

    def _of_step(self, info: Info, rest: Loc) -> None:
        key = rest[0] if rest else None
        body = info.spec["body"]
        if key is None:
            self.bodies.add(body)
            self.steps.add(info.number)
            self.joins.add(info.number)
        elif key in GRAPH:
            self.bodies.add(body)
        if key in INNER and "child" in info.spec:
            self.bodies.add(info.spec["child"])
        if key == "join":
            self.joins.add(info.number)
        self.cancels |= key == "cancel"
        named = key is None or key in type(info.model).fields_by_key()
        if key not in WITHOUT_OUTCOME and (named or info.action == "none"):
            self.outcomes.add(info.number)


def _prefixes(loc: Loc, own: Loc) -> Iterator[Loc]:
    """Yield a place and its enclosing places in the same flow, from the inside out."""
    for length in range(len(loc), len(own), -1):
        yield loc[:length]

"""What was left out of a flow as wrong, and what can be said of the rest all the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flowengine.flow.compile.step_info import Info
from flowengine.flow.models import Loc

INNER = frozenset({"group", "parallel", "finally"})
"""Keys of a step that hold lists of steps."""
GRAPH = INNER | {"id", "next", "on_error", "join", "when", "cancel", "trigger"}
"""Keys of a step without which its edges are not known."""
WITHOUT_OUTCOME = frozenset({"id", "title", "with", "output", "emit", "effect", "on_crash"})
"""Keys of a step that add no outcome and no type of error."""


class Gaps:
    """What is not known of a flow, since something was reported.

    Errors that would only follow from a gap are not reported; those that hold however it is filled
    are.
    """

    def __init__(self) -> None:
        self.bodies: set[int] = set()
        """Bodies in which a step, or a way between steps, is missing."""
        self.steps: set[int] = set()
        """Steps of which something is missing altogether: what comes after them is not known."""
        self.joins: set[int] = set()
        """Steps at which it is not known how tokens meet."""
        self.outcomes: set[int] = set()
        """Steps of which it is not known how they can end."""
        self.cancels = False
        """Whether it is not known what some step cancels."""

    def __bool__(self) -> bool:
        """Whether a step, or a way between steps, is missing anywhere."""
        return bool(self.bodies)

    def add(self, unread: Iterable[Loc], own: Loc, steps: Iterable[Info]) -> None:
        """Take in what was left out.

        Args:
            unread: Places of the file.
            own: Where the flow stands.
            steps: Its steps.
        """
        by_loc = {info.loc: info for info in steps}
        for loc in unread:
            if loc[: len(own)] != own:
                continue
            info = next((by_loc[one] for one in _prefixes(loc, own) if one in by_loc), None)
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
    """Yield a place and those around it in the same flow, from the inside out."""
    for length in range(len(loc), len(own), -1):
        yield loc[:length]

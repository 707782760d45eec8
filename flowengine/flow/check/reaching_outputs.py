"""Steps that precede a token: those that may, and those that certainly have an output.

See docs/language.md: Expressions.

Computed by two forward dataflows over the steps of a scope, and a backward one for its end. Sets of
steps are bits of an integer, by position in the scope.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, or_

from flowengine.flow.check import net as nets
from flowengine.flow.check.net import Cancels, Move, Step
from flowengine.kernel.graph import linked
from flowengine.kernel.graph.compiled import END, END_ALL
from flowengine.kernel.graph.specs import CompiledFlow, StepSpec


class EarlierSteps:
    """The steps before each step of one body, and before its end.

    Args:
        body: Number of the body.
        cancels: The result of `cancellations` for the flow.
    """

    def __init__(self, flow: CompiledFlow, body: int, cancels: Cancels) -> None:
        self.steps = nets.reachable(flow, body, cancels)
        self.place = {step: place for place, step in enumerate(self.steps)}
        self.specs = [flow["steps"][step] for step in self.steps]
        start = flow["bodies"][body].get("start", [])
        self.begun = {self.place[step] for step in start if step in self.place}
        self.restarts = nets.restarted(flow, body)
        self.everything = (1 << len(self.steps)) - 1
        ends = [step in cancels.ends for step in self.steps]
        self.moves = [
            [] if end else list(nets.split_moves(spec.get("split")))
            for spec, end in zip(self.specs, ends, strict=True)
        ]
        self.caught = [
            [] if end else list(nets.handler_targets(spec.get("on_error", [])))
            for spec, end in zip(self.specs, ends, strict=True)
        ]
        graph = [self._ahead(place) for place in range(len(self.steps))]
        self.components = linked.components(graph)
        self.incoming = self._incoming()
        self.may = [0] * len(self.steps)
        self.sure = [self.everything] * len(self.steps)
        self._forward()
        self._end: int | None = None

    def may_be_behind(self, step: Step, here: Step) -> bool:
        """Return whether a step may precede a token at another step."""
        return self._has(self.may, step, here)

    def surely_behind(self, step: Step, here: Step) -> bool:
        """Return whether a step certainly has an output when a token is at another step."""
        return self._has(self.sure, step, here)

    def surely_at_end(self, step: Step) -> bool:
        """Return whether a step certainly has an output when the scope has succeeded."""
        if self._end is None:
            self._end = self._visited()
        return step in self.place and bool(self._end >> self.place[step] & 1)

    def _has(self, sets: list[int], step: Step, here: Step) -> bool:
        if step not in self.place or here not in self.place:
            return False
        return bool(sets[self.place[here]] >> self.place[step] & 1)

    def _ahead(self, place: int) -> list[int]:
        to = [t for move in self.moves[place] for t in move.edges()] + self.caught[place]
        return list(dict.fromkeys(self.place[t] for t in to if t >= 0))

    def _incoming(self) -> list[list[tuple[int, bool]]]:
        """Return, for each step, the origins of its tokens, and whether each follows a success."""
        result: list[dict[int, bool]] = [{} for _ in self.steps]
        for place in range(len(self.steps)):
            for target in self._ahead(place):
                failed = self.steps[target] in self.caught[place]
                result[target][place] = not failed and gives_output(self.specs[place])
        return [list(sources.items()) for sources in result]

    def _forward(self) -> None:
        begun = {self.place[step] for step in self.restarts} | self.begun
        for component in reversed(self.components):
            changed = True
            while changed:
                changed = False
                for place in component:
                    new = self._behind(place, begun)
                    if new != (self.may[place], self.sure[place]):
                        self.may[place], self.sure[place] = new
                        changed = True

    def _behind(self, place: int, begun: set[int]) -> tuple[int, int]:
        may, sure = 0, []
        for source, succeeded in self.incoming[place]:
            bit = 1 << source
            may |= self.may[source] | bit
            sure.append(self.sure[source] | bit if succeeded else self.sure[source] & ~bit)
        if place in begun:
            sure.append(0)
        if self.steps[place] in self.restarts:
            may = self.everything  # all steps that had run when the flow failed
        merge = or_ if self.specs[place].get("join", {}).get("kind") == "all" else and_
        return may, reduce(merge, sure) if sure else self.everything

    def _visited(self) -> int:
        """Return the steps that have an output in every play that succeeds."""
        visits = [self.everything] * len(self.steps)
        # Whether another token can end a token, regardless of the steps ahead of it.
        is_cut_short = any(
            spec.get("join", {}).get("late") == "cancel" for spec in self.specs
        ) or any(END_ALL in move.edges() for moves in self.moves for move in moves)
        merge = and_ if is_cut_short else or_
        for component in self.components:
            changed = True
            while changed:
                changed = False
                for place in component:
                    new = self._visit(place, visits, merge is or_)
                    if new != visits[place]:
                        visits[place] = new
                        changed = True
        begun = [visits[place] for place in self.begun]
        result = reduce(merge, begun) if begun else 0
        return reduce(and_, (visits[self.place[step]] for step in self.restarts), result)

    def _visit(self, place: int, visits: list[int], whole: bool) -> int:
        if self.specs[place].get("map", {}).get("each"):
            return 0  # there may be no items, and so no token
        own = 1 << place if gives_output(self.specs[place]) else 0
        result = self.everything
        for move in self.moves[place]:
            result &= own | self._after(move, visits, whole)
        for target in self.caught[place]:
            result &= self._at(target, visits)
        return result

    def _after(self, move: Move, visits: list[int], whole: bool) -> int:
        sure = [self._at(target, visits) for target in move.sure]
        others = [self._at(target, visits) for target in move.edges()[len(move.sure) :]]
        one_of = reduce(and_, others) if others and (not sure or move.other is not None) else 0
        if not sure:
            return one_of
        return reduce(or_ if whole else and_, sure) | (one_of if whole else 0)

    def _at(self, target: Step, visits: list[int]) -> int:
        if target in {END, END_ALL}:
            return 0
        place = self.place.get(target)
        # unknown steps are reported elsewhere
        return self.everything if place is None else visits[place]


def gives_output(spec: StepSpec) -> bool:
    """Return whether a step that a token has left certainly has an output.

    It has none if it was skipped, or if it failed and the flow continued.

    Returns:
        Whether its output certainly exists.
    """
    if "when" in spec:
        return False
    return all(handler.get("do") != "continue" for handler in spec.get("on_error", []))

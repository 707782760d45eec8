"""Branches of a flow, and those that a case has taken.

A branch is one of these: a step is entered, a step is skipped by its `when`, an edge with a
condition, a routed outcome, an entry of `on_error`, a compensation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from flowengine.kernel.graph.compiled import END, END_ALL, OPENING

if TYPE_CHECKING:
    from flowengine.kernel.commands import Observation
    from flowengine.kernel.graph.specs import CompiledFlow, HandlerSpec, StepSpec

ENTERED = frozenset({"running", "waiting", "succeeded", "failed", "uncertain", "retrying"})


HIDDEN = frozenset({"finally", OPENING})
"""Hidden steps that belong to a flow, not to one of its steps."""


class Branch(NamedTuple):
    """One branch of a flow."""

    step: int
    what: str
    """`entered`, `skipped`, `outcome`, `to` or `handler`."""
    which: str | int = ""
    """The outcome, the target or the number of the handler."""


class Coverage:
    """The branches of a flow that have been taken.

    Args:
        flow: The flow.
    """

    def __init__(self, flow: CompiledFlow) -> None:
        self.flow = flow
        self.branches = list(dict.fromkeys(_branches(flow)))
        self.taken: set[Branch] = set()
        self._known = frozenset(self.branches)

    def see(self, observations: Iterable[Observation]) -> None:
        """Add the branches that one execution has taken."""
        for seen in observations:
            self.taken |= self._known.intersection(_taken(seen))

    @property
    def missed(self) -> list[Branch]:
        """The branches that no case has taken, in the order of the file."""
        left = [branch for branch in self.branches if branch not in self.taken]
        return sorted(left, key=self.place)

    def reported(self) -> list[Branch]:
        """Return the missed branches without those of steps that were never entered themselves."""
        missed = self.missed
        unseen = {branch.step for branch in missed if branch.what == "entered"}
        return [miss for miss in missed if miss.what == "entered" or miss.step not in unseen]

    def place(self, branch: Branch) -> tuple[int, int]:
        """Return line and column of the step of a branch."""
        line, column = (self.flow["steps"][branch.step].get("at") or [0, 0])[:2]
        return line, column

    def name(self, branch: Branch) -> str:
        """Return a branch in words."""
        step = self.flow["steps"][branch.step]
        undoes = " compensate" if step["body"] < 0 and step["id"] not in HIDDEN else ""
        name = f"{step['id']}{undoes}"
        match branch.what:
            case "entered":
                return f"{name}: never entered"
            case "skipped":
                return f"{name}: never skipped by its 'when'"
            case "outcome":
                return f"{name}: outcome {branch.which} never occurred"
            case "to":
                return f"{name}: never continued to {self._target(int(branch.which))}"
        return f"{name}: on_error entry {_handler(step['on_error'][int(branch.which)])} never used"

    def _target(self, target: int) -> str:
        named = {END: "end", END_ALL: "end_all"}
        return named.get(target) or self.flow["steps"][target]["id"]


def _branches(flow: CompiledFlow) -> Iterator[Branch]:
    generated = {
        step
        for body in flow.get("flows", [])
        if body.get("counts_alone")
        for step in range(*body["steps"])
    }
    for number in sorted(_inside(flow)):
        step = flow["steps"][number]
        if (step["body"] < 0 and step["id"] in HIDDEN) or step.get("plumbing"):
            continue
        yield Branch(number, "entered")
        if number in generated:  # its other branches are generated
            continue
        if "when" in step:
            yield Branch(number, "skipped")
        yield from _ways(number, step)
        for index in range(len(step.get("on_error", ()))):
            yield Branch(number, "handler", index)


def _inside(flow: CompiledFlow) -> set[int]:
    """Return the steps of one execution, without those that `detach` starts as another one."""
    subflows = flow.get("flows", [])
    of_subflows = {step for subflow in subflows for step in range(*subflow["steps"])}
    steps = set(range(len(flow["steps"]))) - of_subflows
    left = list(steps)
    while left:
        step = flow["steps"][left.pop()]
        if step.get("action") == "flow":
            callee = flow["bodies"][step["child"]].get("flow", 0)
            more = set(range(*subflows[callee - 1]["steps"])) - steps if callee else set()
            steps |= more
            left += more
    return steps


def _ways(number: int, step: StepSpec) -> Iterator[Branch]:
    split = step.get("split")
    if split is None:
        return
    if split["kind"] == "outcome":
        for outcome in split["outcomes"]:
            yield Branch(number, "outcome", outcome)
        return
    entries = split.get("entries", [])
    if any("when" in entry for entry in entries):
        for entry in entries:
            yield Branch(number, "to", entry["to"])


def _taken(seen: Observation) -> Iterator[Branch]:
    if seen.status == "skipped":
        yield Branch(seen.step, "skipped")
    elif seen.status in ENTERED:
        yield Branch(seen.step, "entered")
    if seen.outcome is not None:
        yield Branch(seen.step, "outcome", seen.outcome)
    for target in seen.to:
        yield Branch(seen.step, "to", target)
    if seen.handler >= 0:
        yield Branch(seen.step, "handler", seen.handler)


def _handler(handler: HandlerSpec) -> str:
    types = ", ".join(handler.get("types", ())) or "for every error"
    return f"{types} → {handler.get('do', 'raise')}"

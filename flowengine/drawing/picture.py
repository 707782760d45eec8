"""The drawing of a compiled flow: boxes in frames, and arrows between them.

No edge of a flow leaves its scope, so a picture is a tree of frames - the flow, one for each group
and each `finally` - each with its own boxes and arrows. A subflow is drawn once, as a frame beside
the main flow's steps, because it may run itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from flowengine.drawing.notes import Notes, condition, cut
from flowengine.kernel.graph.compiled import END
from flowengine.kernel.graph.specs import CompiledFlow, HandlerSpec, SplitSpec, StepSpec
from flowengine.kernel.notation.addresses import NOTIFIES, flow_name

WORST_FIRST = (
    *("failed", "refused", "rejected", "expired", "uncertain", "running", "waiting", "cancelled"),
    *("succeeded", "skipped"),
)
"""The first of these among the activations of a step determines its color."""
Shape = Literal[
    "start", "end", "end_all", "error", "trigger", "choice", "fork", "person", "wait", "fail",
    "cancel", "flow", "undo", "finally", "step",
]  # fmt: skip
"""`fork` continues along all arrows, and `choice` along some. Only a group is a `finally`."""
Line = Literal["next", "calls", "error", "undo", "after"]
"""`calls` leads to a step that the other one calls, `undo` to a compensation, and `after` from an
end to the steps after it."""
Statuses = Mapping[str, Mapping[str, int]]
"""Step id → status → how many of its activations have it."""


class Box(NamedTuple):
    """An element of a frame."""

    id: str
    """Unique in the picture: letters, digits and underscores."""
    shape: Shape
    lines: list[str]
    """The name, then the action and the join."""
    status: str | None
    frame: ScopeFrame | None
    """Its contents, if it is a group."""
    counts: Mapping[str, int] = {}
    """Status → how many of its activations have it, if there are several."""

    def detail(self) -> str:
        """Return the line below the name: the state of its activations, or its action."""
        lines = [line for line in self.lines[1:] if line != self.status]
        return "" if not lines else lines[-1] if self.counts else lines[0]


class Arrow(NamedTuple):
    """An arrow between two boxes of the same frame."""

    source: str
    target: str
    label: str
    kind: Line


class ScopeFrame(NamedTuple):
    """A scope."""

    boxes: list[Box]
    arrows: list[Arrow]

    def ids(self) -> Iterator[str]:
        """Yield the ids of all boxes, also of those in groups."""
        for box in self.boxes:
            yield box.id
            if box.frame is not None:
                yield from box.frame.ids()


class Picture(NamedTuple):
    """A whole flow."""

    title: str
    frame: ScopeFrame


def step_name(step: StepSpec) -> str:
    """Return the display name of a step: its title, or else its id."""
    return step.get("title") or step["id"]


def draw(flow: CompiledFlow, statuses: Statuses | None = None) -> Picture:
    """Return the picture of a flow.

    Args:
        flow: As plain data.
        statuses: The activations of each step, to show an execution.

    Returns:
        Boxes and arrows.
    """
    title = flow.get("title") or flow_name(flow["id"])
    return Picture(title, _Drawer(flow, statuses).whole())


class _Drawer:
    def __init__(self, flow: CompiledFlow, statuses: Statuses | None) -> None:
        self.flow = flow
        self.steps = flow["steps"]
        self.expressions = flow["expressions"]
        self.notes = Notes(flow)
        self.statuses = None if statuses is None else {k: Counter(v) for k, v in statuses.items()}
        named = Counter(step["id"] for step in self.steps if step["body"] >= 0)
        self.alone = {name for name, count in named.items() if count == 1}
        """Ids that no step of another flow has."""
        self.generated = {
            self.flow["bodies"][step["child"]].get("flow", 0)
            for step in self.steps
            if step["action"] == "flow" and step.get("kind", "flow") != "flow"
        }
        """Numbers of the flows that step kinds made, whose conditions users do not know."""

    def whole(self) -> ScopeFrame:
        """Return the frame of the main flow, with one for each flow that it runs."""
        boxes, arrows = self.frame(0)
        for number, flow in enumerate(self.flow.get("flows", ()), 1):
            frame = self.frame(flow["body"], flow.get("on_error", []))
            kind = "" if flow["id"].startswith(NOTIFIES) else "flow "
            name = f"{kind}{flow_name(flow['id'])}"
            boxes.append(Box(f"flow_{number}", "step", [name], None, frame))
        return ScopeFrame(boxes, arrows)

    def frame(self, number: int, handlers: list[HandlerSpec] | None = None) -> ScopeFrame:
        """Return the frame of a body, with the flow's handlers if it is the body of a flow."""
        body = self.flow["bodies"][number]
        inside = [self.steps[step] for step in body["steps"]]
        boxes = [self.box(each) for step in inside for each in (step, *self.callees(step))]
        arrows = [Arrow(f"start_{number}", self.id(self.steps[s]), "", "next")
                  for s in body["start"]]  # fmt: skip
        for step in inside:
            arrows += self.arrows(step, number)
            if "trigger" in step:
                source = f"trigger_{self.id(step)}"
                boxes.append(Box(source, "trigger", [self.notes.trigger(step)], None, None))
                arrows.append(Arrow(source, self.id(step), "", "next"))
        boxes += [self.undo(step) for step in inside if "compensate" in step]
        if handlers is None:
            handlers = self.flow.get("on_error", []) if number == 0 else []
        if handlers:
            lines = list(self.notes.handlers(handlers, "on"))
            boxes.append(Box(f"error_{number}", "error", ["error", *lines], None, None))
        arrows += self.error_arrows(f"error_{number}", handlers, number)
        targets = {arrow.target for arrow in arrows}
        ends = [
            Box(f"{name}_{number}", name, name.split("_"), None, None)
            for name in ("end", "end_all")
            if f"{name}_{number}" in targets
        ]
        if "final" in body:
            cleaning = self.frame(self.steps[body["final"]]["child"])
            boxes.append(Box(f"finally_{number}", "finally", ["finally"], None, cleaning))
            arrows += [Arrow(end.id, f"finally_{number}", "", "after") for end in ends]
        begins = [Box(f"start_{number}", "start", [], None, None)] if body["start"] else []
        return ScopeFrame([*begins, *boxes, *ends], arrows)

    def callees(self, step: StepSpec) -> list[StepSpec]:
        """Return the steps that a step calls."""
        if "exchange" not in step or "child" not in step:
            return []
        return [self.steps[number] for number in self.flow["bodies"][step["child"]]["steps"]]

    def id(self, step: StepSpec) -> str:
        """Return the id of a step's box: steps of other flows may have the same id."""
        flow, name = (
            self.number(step),
            step["id"].replace(".", "__"),
        )  # only generated ids have dots
        return f"flow_{flow}_step_{name}" if flow else f"step_{name}"

    def number(self, step: StepSpec) -> int:
        """Return the number of the flow that a step belongs to (0 for the main flow)."""
        return self.flow["bodies"][step["body"]].get("flow", 0)

    def box(self, step: StepSpec) -> Box:
        runs_flow = step["action"] == "flow"
        holds = "child" in step and not runs_flow and "exchange" not in step
        frame = self.frame(step["child"]) if holds else None
        lines = [cut(step_name(step)), *self.notes.of(step)]
        status, counts = None, Counter[str]()
        if self.statuses is not None and (step["id"] in self.alone or not self.number(step)):
            counts = self.statuses.get(step["id"], counts)
            status, text = standing(counts)
            lines += [text] if text else []
        several = dict(counts) if counts.total() > 1 else {}
        action = step["action"]
        shape = _routing(step.get("split")) if action == "none" else _SHAPES.get(action, "step")
        return Box(self.id(step), shape, lines, status, frame, several)

    def undo(self, step: StepSpec) -> Box:
        how = self.steps[step["compensate"]]
        lines = [cut(f"undo {step_name(step)}"), self.notes.action(how)]
        return Box(f"undo_{self.id(step)}", "undo", lines, None, None)

    def arrows(self, step: StepSpec, body: int) -> Iterator[Arrow]:
        source, has_conditions = self.id(step), self.number(step) not in self.generated
        split: Any = step.get("split", {"kind": "one", "to": END})
        if step["action"] == "fail" or step.get("cancel", {}).get("execution"):
            split = {"kind": "none"}
        if split["kind"] == "one":
            yield Arrow(source, self.target(split["to"], body), "", "next")
        elif split["kind"] == "outcome":
            yield from self.outcome_arrows(source, split, body, named="exchange" not in step)
        yield from (Arrow(source, self.id(one), "", "calls") for one in self.callees(step))
        for entry in split.get("entries", ()):
            label = "else" if entry.get("otherwise") and has_conditions else ""
            if "when" in entry and has_conditions:
                label = condition(entry["when"], self.expressions)
            yield Arrow(source, self.target(entry["to"], body), label, "next")
        handlers = step.get("on_error", [])
        yield from self.error_arrows(source, handlers, body, conditions=has_conditions)
        if "compensate" in step:
            yield Arrow(source, f"undo_{source}", "", "undo")

    def outcome_arrows(self, source: str, split: Any, body: int, *, named: bool) -> Iterator[Arrow]:
        """Yield one arrow for each target, with all outcomes that lead there.

        The outcomes of a step that makes calls are named like their targets.
        """
        by_target: dict[int, list[str]] = {}
        for outcome, target in split["outcomes"].items():
            by_target.setdefault(target, []).append(outcome)
        if "otherwise" in split:
            by_target.setdefault(split["otherwise"], []).append("else")
        for target, outcomes in by_target.items():
            label = ", ".join(outcomes) if named else ""
            yield Arrow(source, self.target(target, body), label, "next")

    def error_arrows(
        self, source: str, handlers: list[HandlerSpec], body: int, *, conditions: bool = True
    ) -> Iterator[Arrow]:
        """Yield one arrow for each target, with all errors that lead there."""
        by_target: dict[int, list[str]] = {}
        for handler in handlers:
            if handler.get("do") == "next":
                label = ", ".join(handler.get("types", [])) or "any error"
                if "when" in handler and conditions:
                    label += f" when {condition(handler['when'], self.expressions)}"
                label += ", undo" if handler.get("compensate") else ""
                by_target.setdefault(handler["to"], []).append(label)
        for target, labels in by_target.items():
            yield Arrow(
                source, self.target(target, body), "; ".join(dict.fromkeys(labels)), "error"
            )

    def target(self, target: int, body: int) -> str:
        if target >= 0:
            return self.id(self.steps[target])
        return f"end_{body}" if target == END else f"end_all_{body}"


_SHAPES: Mapping[str, Shape] = {
    "approval": "person",
    "wait": "wait",
    "fail": "fail",
    "cancel": "cancel",
    "flow": "flow",
}
"""Action of a step → its shape."""


def _routing(split: SplitSpec | None) -> Shape:
    """Return the shape of a step that only routes tokens: to one of several targets, or to all."""
    if split is None or split["kind"] == "one":
        return "step"
    if split["kind"] == "all" and all("when" not in entry for entry in split["entries"]):
        return "fork"
    return "choice"


def standing(counts: Counter[str]) -> tuple[str | None, str]:
    """Return the status that determines a step's color, and the text about it.

    Args:
        counts: How many of its activations have each status.

    Returns:
        The worst status (None without activations), and the counts in words.
    """
    if not counts:
        return None, ""
    status = next((item for item in WORST_FIRST if counts[item]), next(iter(counts)))
    if counts.total() == 1:
        return status, status
    return status, ", ".join(f"{n} {name}" for name, n in counts.items())

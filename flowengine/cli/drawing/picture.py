"""What is drawn: boxes in frames, arrows between them, read off the compiled flow.

No edge of a flow leaves its scope, so a picture is a tree of frames - the flow, and one for each
group - each with its own boxes and arrows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from flowengine.cli.drawing.words import condition, value
from flowengine.kernel.graph import END, CompiledFlow, HandlerSpec, StepSpec

WORST_FIRST = ("failed", "uncertain", "running", "waiting", "cancelled", "succeeded", "skipped")
"""Of several activations of a step the first of these colours it."""


class Box(NamedTuple):
    """A thing in a frame."""

    id: str
    """Unique in the picture: letters, digits and underscores."""
    shape: str
    """`start`, `end`, `end_all`, `error`, `choice`, `person`, `wait`, `fail`, `undo` or `step`."""
    lines: list[str]
    """Its name, then what it does and how tokens meet there."""
    status: str | None
    frame: Frame | None
    """What is in it, if it is a group."""


class Arrow(NamedTuple):
    """A way from a box to a box of the same frame."""

    source: str
    target: str
    label: str
    kind: str
    """`next`, `error` or `undo`."""


class Frame(NamedTuple):
    """A scope."""

    boxes: list[Box]
    arrows: list[Arrow]


class Picture(NamedTuple):
    """A whole flow."""

    title: str
    frame: Frame


def draw(flow: CompiledFlow, statuses: Mapping[str, Iterable[str]] | None = None) -> Picture:
    """Return the picture of a flow.

    Args:
        flow: In plain form.
        statuses: Step id → status of each of its activations, to show an execution.

    Returns:
        Boxes and arrows.
    """
    return Picture(flow.get("title") or flow["id"], _Drawer(flow, statuses).frame(0))


class _Drawer:
    def __init__(self, flow: CompiledFlow, statuses: Mapping[str, Iterable[str]] | None) -> None:
        self.flow = flow
        self.steps = flow["steps"]
        self.expressions = flow["expressions"]
        self.statuses = None if statuses is None else {k: Counter(v) for k, v in statuses.items()}
        self.flows = [{"body": 0, "id": flow["id"]}, *flow.get("flows", [])]
        self.drawn: set[int] = set()
        """Subflows that are in the picture; each is drawn where it is run first."""
        named = Counter(step["id"] for step in self.steps if step["body"] >= 0)
        self.alone = {name for name, count in named.items() if count == 1}
        """Ids that no step of another flow has."""

    def frame(self, number: int) -> Frame:
        body = self.flow["bodies"][number]
        inside = [self.steps[step] for step in body["steps"]]
        boxes = [self.box(step) for step in inside]
        arrows = [arrow for step in inside for arrow in self.arrows(step, number)]
        boxes += [self.undo(step) for step in inside if "compensate" in step]
        own: Any = next((one for one in self.flows if one["body"] == number), {})
        handlers = self.flow.get("on_error", []) if number == 0 else own.get("on_error", [])
        further = list(self.error_arrows("error", handlers, number))
        if further:
            boxes.append(Box("error", "error", ["error"], None, None))
        arrows += further
        start = f"start_{number}"
        targets = {arrow.target for arrow in arrows}
        ends = [
            Box(f"{name}_{number}", name, name.split("_"), None, None)
            for name in ("end", "end_all")
            if f"{name}_{number}" in targets
        ]
        begins = [Arrow(start, self.id(self.steps[step]), "", "next") for step in body["start"]]
        return Frame([Box(start, "start", [], None, None), *boxes, *ends], begins + arrows)

    def id(self, step: StepSpec) -> str:
        return f"{self.mark(step)}_{step['id']}"

    def undo_id(self, step: StepSpec) -> str:
        return self.id(step).replace("step", "undo", 1)

    def mark(self, step: StepSpec) -> str:
        """Return what tells the steps of one flow from those of another that are called alike."""
        flow = self.flow["bodies"][step["body"]].get("flow", 0)
        return f"step{flow}" if flow else "step"

    def inside(self, step: StepSpec) -> Frame | None:
        """Return what is drawn in a step: a group, or a flow that is not in the picture yet."""
        child = step.get("child", -1)
        if child < 0 or child in self.drawn:
            return None
        if step["action"] == "flow":
            self.drawn.add(child)
        return self.frame(child)

    def box(self, step: StepSpec) -> Box:
        frame = self.inside(step)
        lines = [step["id"], *self.notes(step)]
        status = None
        if self.statuses is not None and (step["id"] in self.alone or self.mark(step) == "step"):
            status, told = _standing(self.statuses.get(step["id"], Counter()))
            lines += [told] if told else []
        return Box(self.id(step), _shape(step), lines, status, frame)

    def notes(self, step: StepSpec) -> Iterator[str]:
        """Yield what a step does, and what is around its action."""
        if step["action"] in ("task", "wait", "approval", "fail", "cancel"):
            yield _action(step)
        if step["action"] == "flow":
            yield f"flow {self.called(step)}"
        yield from (note for note in (self.join(step), self.when(step)) if note)
        if "map" in step:
            names = step["map"].get("names") or ["item"]
            yield f"map {names[0]} in {value(step['map']['over'], self.expressions)}"
        if "loop" in step:
            loop = step["loop"]
            word = "until" if "until" in loop else "while"
            tested = loop["until"] if "until" in loop else loop["before"]
            most = value(loop["max"], self.expressions)
            yield f"loop {word} {condition(tested, self.expressions)}, max {most}"
        if "retry" in step:
            yield f"retry {step['retry'].get('attempts', 1)}"
        if "cancel" in step:
            targets = step["cancel"].get("targets", [])
            names = [self.steps[target]["id"] for target in targets]
            yield f"cancels {', '.join(names) or 'the execution'}"

    def called(self, step: StepSpec) -> str:
        """Return the name of the flow that a step runs."""
        return next(str(one["id"]) for one in self.flows if one["body"] == step["child"])

    def join(self, step: StepSpec) -> str:
        join = step.get("join")
        if join is None:
            return ""
        if join["kind"] != "count":
            return f"join {join['kind']}"
        late = f", late {join['late']}" if "late" in join else ""
        return f"join {value(join['need'], self.expressions)}{late}"

    def when(self, step: StepSpec) -> str:
        return f"when {condition(step['when'], self.expressions)}" if "when" in step else ""

    def undo(self, step: StepSpec) -> Box:
        how = self.steps[step["compensate"]]
        does = f"flow {self.called(how)}" if how["action"] == "flow" else _action(how)
        return Box(self.undo_id(step), "undo", [f"undo {step['id']}", does], None, None)

    def arrows(self, step: StepSpec, body: int) -> Iterator[Arrow]:
        source = self.id(step)
        split: Any = step.get("split", {"kind": "one", "to": END})
        if step["action"] == "fail" or step.get("cancel", {}).get("execution"):
            split = {"kind": "none"}
        if split["kind"] == "one":
            yield Arrow(source, self.target(split["to"], body), "", "next")
        elif split["kind"] == "outcome":
            yield from self.outcome_arrows(source, split, body)
        for entry in split.get("entries", ()):
            label = "else" if entry.get("otherwise") else ""
            if "when" in entry:
                label = condition(entry["when"], self.expressions)
            yield Arrow(source, self.target(entry["to"], body), label, "next")
        yield from self.error_arrows(source, step.get("on_error", []), body)
        if "compensate" in step:
            yield Arrow(source, self.undo_id(step), "", "undo")

    def outcome_arrows(self, source: str, split: Any, body: int) -> Iterator[Arrow]:
        """Yield one arrow for each target, with all outcomes that lead there."""
        by_target: dict[int, list[str]] = {}
        for outcome, target in split["outcomes"].items():
            by_target.setdefault(target, []).append(outcome)
        if "otherwise" in split:
            by_target.setdefault(split["otherwise"], []).append("else")
        for target, outcomes in by_target.items():
            yield Arrow(source, self.target(target, body), ", ".join(outcomes), "next")

    def error_arrows(self, source: str, handlers: list[HandlerSpec], body: int) -> Iterator[Arrow]:
        for handler in handlers:
            if handler.get("do") == "next":
                label = ", ".join(handler.get("types", [])) or "any error"
                if "when" in handler:
                    label += f" when {condition(handler['when'], self.expressions)}"
                yield Arrow(source, self.target(handler["to"], body), label, "error")

    def target(self, target: int, body: int) -> str:
        if target >= 0:
            return self.id(self.steps[target])
        return f"end_{body}" if target == END else f"end_all_{body}"


def _action(step: StepSpec) -> str:
    """Return what a step calls."""
    kind, task = step.get("kind", step["action"]), step.get("task", {})
    if kind == "std":
        return f"std.{task.get('tool', '')}"
    function = task.get("function", "") if kind == "python" else ""
    return f"{kind} {function}".strip()


def _shape(step: StepSpec) -> str:
    action = step["action"]
    if action == "none":
        return "choice" if step.get("split", {}).get("kind", "one") != "one" else "step"
    return {"approval": "person", "wait": "wait", "fail": "fail"}.get(action, "step")


def _standing(counts: Counter[str]) -> tuple[str | None, str]:
    """Return the status that colours a step, and what is said of it."""
    if not counts:
        return None, ""
    status = next((one for one in WORST_FIRST if counts[one]), next(iter(counts)))
    if counts.total() == 1:
        return status, status
    return status, ", ".join(f"{n} {name}" for name, n in counts.items())

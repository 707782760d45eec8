"""The numbered steps of a flow and their bodies, before any expression is compiled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from flowengine.flow.loading.files import Definition
from flowengine.flow.loading.load import steps_below
from flowengine.flow.models import Compensation, Loc, ParallelStep, Step
from flowengine.kernel.graph.specs import BodySpec, CompiledFlow, StepSpec


@dataclass(slots=True, eq=False)
class Call:
    """A step, or the compensation of one, during compilation."""

    model: Step | Compensation
    spec: StepSpec
    action: str
    """The action's key, or `none`."""
    given: Any
    """The value of that key: the tool's name, or the configuration of the kind."""

    @property
    def id(self) -> str:
        """The step's id. A compensation has none."""
        return ""

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"the compensation of {self.spec['id']!r}"

    @property
    def loc(self) -> Loc:
        return self.model.loc


@dataclass(slots=True, eq=False)
class Info(Call):
    """A step during compilation."""

    model: Step
    number: int
    parent: int
    """The enclosing group, or -1 at top level."""
    children: list[int] = field(default_factory=list)
    """The steps of a group, without those of its `finally`, or the callees of a step."""
    flow: Definition | None = None
    """The flow that it runs, if it runs one and waits for it."""
    effect: str = "once"
    makes_calls: bool = False
    """Whether its results name the steps that it calls, and so its outcome."""

    @property
    def id(self) -> str:
        """The step's id."""
        return self.model.id

    @property
    def name(self) -> str:
        """Its name in messages."""
        return repr(self.model.id)

    @property
    def each(self) -> bool:
        """Whether it has a map whose items continue with separate tokens."""
        given = self.model.map
        return given is not None and given.join is not None and given.join.need == "none"


# Parts of a flow that were left out because of errors, and the checks that are still possible.

INNER = frozenset({"group", "parallel", "finally"})
"""Keys of a step that contain lists of steps."""
GRAPH = INNER | {"id", "next", "on_error", "join", "when", "cancel", "trigger"}
"""Keys of a step that determine its edges."""
WITHOUT_OUTCOME = frozenset(
    {"id", "title", "with", "output", "emit", "effect", "on_crash", "needs"}
)
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
            # From the inside out, in the same flow.
            around = (loc[:length] for length in range(len(loc), len(own), -1))
            info = next((by_loc[place] for place in around if place in by_loc), None)
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


BodyKind = Literal["flow", "group", "finally"]


class Plan:
    """A flow during its compilation."""

    def __init__(self, model: Definition) -> None:
        self.model = model
        self.steps: list[Info] = []
        self.flow: CompiledFlow = {"steps": [], "bodies": []}
        self.gaps = Gaps()
        """Parts left out because of errors."""
        self.by_id: dict[str, int] = {}
        """For ids shared by two steps, the first."""
        self.called: set[int] = set()
        """Bodies whose steps only calls activate."""
        self.finals: dict[int, int] = {}
        """Body → the body of its `finally`."""
        self._add_body(model.steps, -1, "flow")
        if model.finally_:
            self.finals[0] = self._add_body(model.finally_, -1, "finally")
        ids = {str(step.get("id")) for _, step in steps_below(model.data, ())}
        self.misnamed = ids - self.by_id.keys()
        """Ids in the file that were refused. Naming them is not a further error."""
        self.gaps.add(model.unread, model.loc, self.steps)

    def body(self, number: int) -> BodySpec:
        return self.flow["bodies"][number]

    def siblings(self, info: Info) -> list[Info]:
        """Return the steps of a step's body, in file order."""
        return [self.steps[n] for n in self.body(info.spec["body"])["steps"]]

    def is_parallel(self, body: int) -> bool:
        owner = self.body(body)["owner"]
        is_group = self.body(body)["kind"] == "group"
        return is_group and (body in self.called or self.steps[owner].action == "parallel")

    def cleans_up(self, info: Info) -> bool:
        """Return whether a step is directly in a `finally`, not in a group inside."""
        return self.body(info.spec["body"])["kind"] == "finally"

    def in_finally(self, info: Info) -> bool:
        """Return whether a step is in a `finally`, or in a group inside one."""
        while info.parent >= 0 and not self.cleans_up(info):
            info = self.steps[info.parent]
        return self.cleans_up(info)

    def cleaned_up(self, body: int) -> int:
        """Return the body that the `finally` with this body cleans up."""
        return next(cleaned for cleaned, final in self.finals.items() if final == body)

    def around(self, info: Info) -> Iterator[Info]:
        """Yield the groups around a step, innermost first. In a `finally`, only those inside it."""
        while info.parent >= 0 and not self.cleans_up(info):
            info = self.steps[info.parent]
            yield info

    def within(self, info: Info) -> Iterator[Info]:
        """Yield the steps inside a group, at any depth."""
        pending = list(reversed(info.children))
        while pending:
            inner = self.steps[pending.pop()]
            yield inner
            pending.extend(reversed(inner.children))

    def _add_body(
        self,
        models: list[Step] | list[ParallelStep],
        owner: int,
        kind: BodyKind,
        *,
        called: bool = False,
    ) -> int:
        number = len(self.flow["bodies"])
        if called:
            self.called.add(number)
        body = BodySpec(owner=owner, kind=kind, start=[], steps=[])
        self.flow["bodies"].append(body)
        for model in models:
            body["steps"].append(self._add_step(model, number, owner, kind))
        if not called:
            body = self.flow["bodies"][number]
            begun = [step for step in body["steps"] if self.steps[step].model.trigger is None]
            body["start"] = begun if self.is_parallel(number) else begun[:1]
        return number

    def _add_step(self, model: Step, body: int, parent: int, kind: BodyKind) -> int:
        number = len(self.steps)
        spec = StepSpec(id=model.id, body=body)
        action, given = model.action or ("none", None)
        info = Info(model, spec, action, given, number, parent)
        self.steps.append(info)
        self.flow["steps"].append(spec)
        self.by_id.setdefault(model.id, number)
        if kind == "group":
            self.steps[parent].children.append(number)
        info.makes_calls = kind == "flow" and model.id in self.model.callees
        if info.makes_calls and (callees := self.model.callees[model.id]):
            spec["child"] = self._add_body(callees, number, "group", called=True)
        if model.group is not None or model.parallel is not None:
            child = self._add_body(model.group or model.parallel or [], number, "group")
            spec["child"] = child
            if model.finally_:
                self.finals[child] = self._add_body(model.finally_, number, "finally")
        return number

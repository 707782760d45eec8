"""The numbered steps of a flow and their bodies, before any expression is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from flowengine.flow.compile.gaps import Gaps
from flowengine.flow.compile.step_info import Info
from flowengine.flow.loading.files import Definition
from flowengine.flow.models import ParallelStep, Step
from flowengine.kernel.graph.specs import BodySpec, CompiledFlow, StepSpec

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
        self.finals: dict[int, int] = {}
        """Body → the body of its `finally`."""
        self._add_body(model.steps, -1, "flow")
        if model.finally_:
            self.finals[0] = self._add_body(model.finally_, -1, "finally")
        self.misnamed = frozenset(_ids(model.data)) - self.by_id.keys()
        """Ids in the file that were refused. Naming them is not a further error."""
        self.gaps.add(model.unread, model.loc, self.steps)

    def body(self, number: int) -> BodySpec:
        """Return a body."""
        return self.flow["bodies"][number]

    def siblings(self, info: Info) -> list[Info]:
        """Return the steps of a step's body, in file order."""
        return [self.steps[n] for n in self.body(info.spec["body"])["steps"]]

    def is_parallel(self, body: int) -> bool:
        """Return whether a body is that of a `parallel`."""
        owner = self.body(body)["owner"]
        return self.body(body)["kind"] == "group" and self.steps[owner].action == "parallel"

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

    def _add_body(self, models: list[Step] | list[ParallelStep], owner: int, kind: BodyKind) -> int:
        number = len(self.flow["bodies"])
        body = BodySpec(owner=owner, kind=kind, start=[], steps=[])
        self.flow["bodies"].append(body)
        for model in models:
            body["steps"].append(self._add_step(model, number, owner, kind))
        begun = [step for step in body["steps"] if self.steps[step].model.trigger is None]
        body["start"] = begun if self.is_parallel(number) else begun[:1]
        return number

    def _add_step(self, model: Step, body: int, parent: int, kind: BodyKind) -> int:
        number = len(self.steps)
        spec = StepSpec(id=model.id, body=body)
        action, given = model.action or ("none", None)
        info = Info(number, model, spec, parent, action, given)
        self.steps.append(info)
        self.flow["steps"].append(spec)
        self.by_id.setdefault(model.id, number)
        if kind == "group":
            self.steps[parent].children.append(number)
        if model.group is not None or model.parallel is not None:
            child = self._add_body(model.group or model.parallel or [], number, "group")
            spec["child"] = child
            if model.finally_:
                self.finals[child] = self._add_body(model.finally_, number, "finally")
        return number


def _ids(data: Any) -> Iterator[str]:
    """Yield all ids of steps in a file, valid or not."""
    pending = [data]
    while pending:
        node = pending.pop()
        if not isinstance(node, dict):
            continue
        for key in ("steps", "group", "parallel", "finally"):
            inner = node.get(key)
            for step in inner if isinstance(inner, list) else ():
                pending.append(step)
                if isinstance(step, dict) and isinstance(step.get("id"), str):
                    yield step["id"]

"""The visible names at each place, with their types: earlier steps, items, rounds, arrivals."""

from __future__ import annotations

from flowengine.flow.check import net as nets
from flowengine.flow.check.reaching_outputs import EarlierSteps, gives_output
from flowengine.flow.compile.nullability import NONE, Doubts, missing, under
from flowengine.flow.compile.outcomes import outcomes
from flowengine.flow.compile.plan import Plan
from flowengine.flow.compile.signal_types import SignalTypes
from flowengine.flow.compile.step_info import Info
from flowengine.flow.compile.types import (
    ERROR,
    EXECUTION,
    INTEGER,
    TEXT,
    UNKNOWN,
    Schema,
    closed,
    items_of,
    list_of,
    step_schema,
)
from flowengine.flow.compile.views import StepFacts, VisibleNames
from flowengine.flow.expressions import Note
from flowengine.flow.loading.files import Definition
from flowengine.flow.models import Map
from flowengine.kernel.graph.compiled import START, TRIGGER

AT_END = -1
"""Used in place of a step for the names visible when the scope has ended."""
CUT_SHORT = -2
"""Used in place of a step for the names visible when the scope has ended with any outcome."""


def base_of(model: Definition) -> dict[str, Schema]:
    """Return the names visible everywhere in a flow and its file's declarations: root → schema."""
    return {
        "inputs": _declared(model, "inputs", model.inputs),
        "execution": EXECUTION,
        "now": TEXT,
    }


def state_of(model: Definition) -> Schema:
    """Return the schema of a flow's state."""
    state = {
        name: {k: v for k, v in schema.items() if k != "reducer"}
        for name, schema in model.state.items()
    }
    return _declared(model, "state", state)


def _declared(model: Definition, section: str, schemas: dict[str, Schema]) -> Schema:
    """Return the schema of a section. Parts left out because of errors may have any type."""
    loc = (*model.loc, section)
    unread = [place for place in model.unread if place[: len(loc)] == loc]
    if loc in unread:
        return UNKNOWN
    return closed({**{str(place[len(loc)]): UNKNOWN for place in unread}, **schemas})


class Scopes:
    """The names of a flow."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.messages = SignalTypes(plan)
        self.outputs: dict[int, Schema] = {}
        """Known types of the outputs of steps."""
        self.doubts: dict[int, Doubts] = {}
        """Step → why its output, or a part of it, may be null although it succeeded."""
        self.locals: dict[int, dict[str, Schema]] = {}
        """Body of a group or `finally` → the names of items and rounds that its steps see, and
        `error`."""
        self.cancels = nets.cancellations(plan.flow)
        self._pasts: dict[int, EarlierSteps] = {}
        model = plan.model
        self.base = base_of(model)
        self.state = state_of(model)

    # Views

    def outside(self) -> VisibleNames:
        """Return the names visible before the first step: inputs and the execution."""
        return VisibleNames(self.base)

    def on_message(self, signal: Schema) -> VisibleNames:
        """Return the names that the `match` of a trigger sees, before a token exists."""
        return VisibleNames({**self.base, "state": self.state, "signal": signal})

    def at_end(self) -> VisibleNames:
        """Return the names that `outputs` see: all of the flow's own steps."""
        roots = {**self.base, "state": self.state}
        return VisibleNames(roots, -1, lambda name: self._look(name, 0, AT_END), self._ids)

    def flow_handler(self) -> VisibleNames:
        """Return the names that an `on_error` of the flow sees."""
        return self.at_end().having({"error": ERROR})

    def entry(self, info: Info) -> VisibleNames:
        """Return the names that a step sees when a token has reached it."""
        body = info.spec["body"]
        roots = {**self.base, "state": self.state, **self.locals.get(body, {})}
        view = VisibleNames(
            roots, info.number, lambda name: self._look(name, body, info.number), self._ids
        )
        view = self.messages.seen(info, view)
        meets = len(info.spec["sources"]) > 1 or info.model.join is not None
        return self._with_join(info, view) if meets else view

    def inside(self, view: VisibleNames, info: Info) -> VisibleNames:
        """Return a step's view with the results of its group's steps, after the group has ended."""
        child = info.spec.get("child")
        if child is None:
            return view
        outer = view.look

        def look(name: str) -> StepFacts | None:
            number = self.plan.by_id.get(name)
            if number is not None and self.plan.steps[number].spec["body"] == child:
                return self._seen(self.plan.steps[number], child, AT_END)
            return None if outer is None else outer(name)

        return view.looking(look)

    def item(self, view: VisibleNames, given: Map, over: Schema) -> VisibleNames:
        """Return a view with the names of an item of a map."""
        named = given.as_ != "item"
        names = (f"{given.as_}_index", f"{given.as_}_key") if named else ("index", "key")
        return view.having({given.as_: items_of(over), names[0]: INTEGER, names[1]: TEXT})

    def round(self, view: VisibleNames) -> VisibleNames:
        """Return a view with the name of a round."""
        return view.having({"round": closed({"number": INTEGER, "last": UNKNOWN})})

    # Types

    def raw(self, info: Info) -> Schema:
        """Return the known type of a step's output."""
        return self.outputs.get(info.number, UNKNOWN)

    def parallel_output(self, info: Info) -> Schema:
        """Return the type of the output of a `parallel`."""
        return closed({self.plan.steps[n].id: self.raw(self.plan.steps[n]) for n in info.children})

    def _ids(self) -> list[str]:
        return list(self.plan.by_id)

    def _schema(self, info: Info) -> Schema:
        handlers = info.model.on_error
        known = None if isinstance(handlers, list) else [*outcomes(info).names, "skipped"]
        mapped = info.model.map is not None and not info.each
        return step_schema(self.raw(info), known, mapped)

    def _with_join(self, info: Info, view: VisibleNames) -> VisibleNames:
        """Return a view with `join`: the arrivals and their origins."""
        sources = [self.plan.steps[s] for s in info.spec["sources"] if s >= 0]
        begun = any(s in {START, TRIGGER} for s in info.spec["sources"])
        types = {source.id: self.raw(source) for source in sources}
        one: Schema = UNKNOWN if begun or not sources else {"x-sources": types}
        arrival = closed({"from": TEXT, "output": one})
        join = {"outputs": closed(types), "from": list_of(TEXT), "all": list_of(arrival)}
        doubts: dict[str, Note] = {}
        for source in sources:
            about = self.doubts.get(source.number, NONE)
            doubts |= under(f"join.outputs.{source.id}", about)
        kind = info.spec.get("join", {}).get("kind")
        need = info.spec.get("join", {}).get("need")
        if kind in {"all", "active"} or (kind == "count" and need != ["const", 1]):
            hint = "write join.outputs.x for step x, or values(join.outputs) for all"
            message = f"'join.output' of {info.id!r}: several arrivals are merged here"
            note = Note("E308", message, hint)
            return view.having({"join": closed(join)}, {"join.output": note}, doubts)
        return view.having({"join": closed({**join, "output": one})}, None, doubts)

    # Steps in the past

    def _past(self, body: int) -> EarlierSteps:
        if body not in self._pasts:
            self._pasts[body] = EarlierSteps(self.plan.flow, body, self.cancels)
        return self._pasts[body]

    def _look(self, name: str, body: int, here: int) -> StepFacts | None:
        """Return the known facts about a step at another step, or at the end, of a body."""
        number = self.plan.by_id.get(name)
        if number is None:
            return StepFacts(UNKNOWN) if name in self.plan.misnamed else None
        info = self.plan.steps[number]
        while info.spec["body"] != body:
            owner = self.plan.body(body)["owner"]
            if self.plan.body(body)["kind"] == "finally":
                body, here = self.plan.cleaned_up(body), CUT_SHORT
            elif owner < 0:
                return self._hidden_inside(info)
            else:
                body, here = self.plan.steps[owner].spec["body"], owner
        return self._seen(info, body, here)

    def _hidden_inside(self, info: Info) -> StepFacts:
        if self.plan.cleans_up(info):
            message = f"'steps.{info.id}' is not visible here: it is inside a 'finally'"
            hint = "it runs when the scope is over, and only the steps of that 'finally' see it"
            return StepFacts(UNKNOWN, Note("E301", message, hint))
        group = self.plan.steps[info.parent].id
        message = f"'steps.{info.id}' is not visible here: it is inside the group {group!r}"
        hint = f"outside, only 'steps.{group}' is visible. Give the group an 'output'"
        return StepFacts(UNKNOWN, Note("E301", message, hint))

    def _seen(self, info: Info, body: int, here: int) -> StepFacts:
        past = self._past(body)
        schema = self._schema(info)
        if here == CUT_SHORT:
            return StepFacts(schema, None, self._doubts(info, sure=False))
        if here == AT_END:
            sure = past.surely_at_end(info.number)
            return StepFacts(schema, None, self._doubts(info, sure))
        at = self.plan.steps[here]
        if not past.may_be_behind(info.number, here):
            around = info is at or info.number in {group.number for group in self.plan.around(at)}
            if not self.plan.gaps or around:
                return StepFacts(UNKNOWN, self._not_yet(info, at))
            return StepFacts(schema)  # the way that leads here may have been left out
        sure = past.surely_behind(info.number, here)
        return StepFacts(schema, None, self._doubts(info, sure))

    def _not_yet(self, info: Info, at: Info) -> Note:
        if info is at:
            message = f"'steps.{info.id}' is this step itself, which has not ended yet"
            hint = "its result is 'output' in set, emit, next and loop, 'result' in its 'output'"
            return Note("E304", message, hint)
        if info.number in {group.number for group in self.plan.around(at)} or info is at:
            message = f"'steps.{info.id}' is a group around this step, which has not ended yet"
            return Note("E304", message, "name a step inside it")
        message = (
            f"'steps.{info.id}' cannot have run yet: no path leads from {info.id!r} to {at.id!r}"
        )
        if self.plan.is_parallel(info.spec["body"]):
            hint = "the steps of a 'parallel' see each other's results only after it"
        else:
            hint = (
                "a token sees the steps that it has passed. Parallel branches share "
                "values through state"
            )
        return Note("E304", message, hint)

    def _doubts(self, info: Info, sure: bool) -> Doubts:
        """Return why the output of a step, which has succeeded for `sure` or not, may be null."""
        own = self.doubts.get(info.number, NONE)
        if sure:
            return own
        if gives_output(info.spec):
            why = f"{info.id!r} may not have run here, or may have failed"
        elif info.model.when is not None:
            why = f"{info.id!r} may have been skipped"
        else:
            why = f"{info.id!r} may have failed and continued"
        return {"": missing(why, f"steps.{info.id}.output"), **own}

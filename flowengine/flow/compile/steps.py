"""Steps: an action with its modifiers, in the order in which they wrap it.

See docs/language.md: Steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

from flowengine import registry
from flowengine.flow.check.net import targets
from flowengine.flow.compile.actions import Actions
from flowengine.flow.compile.call_modifiers import check_pauses
from flowengine.flow.compile.calls import CallCompiler
from flowengine.flow.compile.edges import Edges
from flowengine.flow.compile.environments import Eager, give
from flowengine.flow.compile.expressions import NULL, Expressions, TypedValue
from flowengine.flow.compile.plan import Call, Info, Plan
from flowengine.flow.compile.scopes import Scopes, item_names
from flowengine.flow.compile.tools import repeating
from flowengine.flow.compile.types import (
    ERROR,
    INTEGER,
    NONE,
    NOTHING,
    TEXT,
    UNKNOWN,
    Doubts,
    Schema,
    VisibleNames,
    as_declared,
    closed,
    common,
    differs,
    items_of,
    list_of,
    missing,
    of_items,
    passed_on,
    several_ways_out,
    under,
    words,
)
from flowengine.flow.models import Handler, Loc, Map, Trigger
from flowengine.flow.models.types import has_expression
from flowengine.flow.source.diagnostics import DiagnosticReporter
from flowengine.kernel.graph.compiled import OPENING, Plain, Value
from flowengine.kernel.graph.specs import (
    AlternativeSpec,
    HandlerSpec,
    LockSpec,
    LoopSpec,
    MapSpec,
    StepSpec,
    WaitSpec,
)
from flowengine.sdk.texts.flow_texts import plain_text
from flowengine.sdk.texts.near_words import did_you_mean

KEY: Schema = {"type": ["string", "integer"]}
"""The type of a lock's key."""
COUNTED: Schema = {"type": ["array", "integer"]}
"""The type of a map's items."""


@dataclass(eq=False)
class StepCompiler:
    """Compiles the steps of a plan."""

    plan: Plan
    edges: Edges
    """Compiles their conditions."""
    scopes: Scopes
    """The names that they see."""
    expressions: Expressions
    """Compiles their values."""
    actions: Actions
    """Compiles their actions."""
    calls: CallCompiler
    """Compiles their compensations."""
    report: DiagnosticReporter
    handled: list[tuple[Loc, TypedValue]] = field(default_factory=list)
    """Outputs of the flow that its handlers return, with their places."""

    def write(self) -> None:
        """Write all steps, those of a group before the steps after the group."""
        for number in self.plan.body(0)["steps"]:
            self._step(self.plan.steps[number])
        model = self.plan.model
        self._finally(0, {}, model.loc)
        if isinstance(model.on_error, list):
            view = self.scopes.at_end().having({"error": ERROR})
            for spec, handler in zip(self.plan.flow["on_error"], model.on_error, strict=True):
                given = self._handler(spec, handler, view)
                if given is not None:
                    self.handled.append(((*handler.loc, "output"), given))
        elif model.on_error == "compensate":
            self.plan.flow["on_error"] = [HandlerSpec(compensate=True, do="raise")]
        elif model.on_error == "continue":
            message = "'continue' of the flow's 'on_error' has nowhere to continue"
            loc = (*model.loc, "on_error")
            self.report.at("E103", message, loc, "name handlers, or 'compensate'")

    def _step(self, info: Info) -> None:
        model, spec = info.model, info.spec
        outer = self.scopes.entry(info)
        self._entry(info, outer)
        item, over = self._map(info, outer)
        round_ = self._loop_start(info, item)
        self._lock(info, round_)
        raw = self._marked(info, self.actions.write(info, round_))
        for place, label in enumerate(info.model.needs):
            if any(label == step.id for step in self.plan.steps):
                message = f"{label!r} is a step, and 'needs' lists offers of a worker"
                hint = f"for the order of steps, write 'next: {info.id}' in {label!r}; "
                hint += "'join: all' waits for several"
                self.report.at("E103", message, (*info.loc, "needs", place), hint)
        doubts = self._doubts_of_flow(info)
        if info.children:
            called = {"call": UNKNOWN} if info.spec["child"] in self.plan.called else {}
            self.scopes.locals[info.spec["child"]] = {**_locals(round_), **called}
            for number in info.children:
                self._step(self.plan.steps[number])
        if info.children and info.spec["child"] not in self.plan.called:
            self._finally(info.spec["child"], _locals(round_), info.loc)
            raw, doubts = self._group_output(info)
            inner = {self.plan.steps[number].effect for number in info.children}
            info.effect = model.effect or ("once" if "once" in inner else "idempotent")
            self._check_retry(info)
        inside = self.scopes.inside(round_, info)
        result, doubts = self._output(info, inside, raw, doubts)
        after = inside.having({"output": result, "outcome": TEXT}, None, under("output", doubts))
        spec_set = self.sets(model.set, (*info.loc, "set"), after)
        if spec_set:
            spec["set"] = spec_set
        if model.emit:
            spec["emit"] = [self.actions.emit(one, after) for one in model.emit]
        self._loop_end(info, after)
        self._compensate(info, after)
        kept = model.loop is not None and model.loop.keep is not None
        once = list_of(result) if kept else result
        whole = list_of(once) if over and not info.each else once
        if self._may_differ(info):
            whole = UNKNOWN
        self.scopes.outputs[info.number] = whole
        doubts = of_items(doubts) if whole is not result else doubts
        self.scopes.doubts[info.number] = doubts
        leaving = outer.having({"output": whole, "outcome": TEXT}, None, under("output", doubts))
        for entry, condition in self.edges.conditions.get(info.number, ()):
            loc = (*condition.loc, "when")
            entry["when"] = self.expressions.condition(str(condition.when), loc, leaving)
        if isinstance(model.on_error, list):
            view = outer.having({"error": ERROR})
            handled = [
                self._handler(one, handler, view)
                for one, handler in zip(spec["on_error"], model.on_error, strict=True)
            ]
            given = [typed.schema for typed in handled if typed is not None]
            self.scopes.outputs[info.number] = common([whole, *given])

    def _finally(self, body: int, around: dict[str, Schema], loc: Loc) -> None:
        """Write the `finally` of a body: its steps, and the hidden step that runs them."""
        final = self.plan.finals.get(body)
        if final is None:
            return
        self.scopes.locals[final] = {**around, "error": UNKNOWN}
        for number in self.plan.body(final)["steps"]:
            self._step(self.plan.steps[number])
        owner = self.plan.body(body)["owner"]
        hidden = StepSpec(
            id=self.plan.steps[owner].id if owner >= 0 else "finally",
            body=-1,
            action="group",
            child=final,
            timeout=["const", self.plan.model.limits.finally_],
        )
        self.plan.body(body)["final"] = self._hide(hidden, (*loc, "finally"))

    def _hide(self, hidden: StepSpec, loc: Loc) -> int:
        """Write a step that is in no body, and return its number."""
        place = self.report.position(loc)
        hidden["at"] = [place.line, place.column]
        self.plan.flow["steps"].append(hidden)
        return len(self.plan.flow["steps"]) - 1

    def open_first(self, environments: Mapping[str, Eager]) -> None:
        """Write the hidden step that opens environments before the first steps.

        Args:
            environments: Environments to open at the start, by name.
        """
        if not environments:
            return
        hidden = StepSpec(
            id=OPENING, body=-1, action="task", kind=OPENING, task={}, effect="idempotent"
        )
        uses = {name: environment.use for name, environment in environments.items()}
        give(hidden, ["const", None], uses)
        if later := [name for name, environment in environments.items() if not environment.waits]:
            hidden["task"] = {"background": later}
        self.plan.body(0)["opens"] = self._hide(hidden, ("environments",))

    def _marked(self, info: Info, raw: Schema) -> Schema:
        """Write the properties of a generated flow's step that the language cannot express.

        Returns:
            The type of its raw result.
        """
        generated = self.plan.model.generated
        mark = None if generated is None else generated.marks.get(info.id)
        if mark is None:
            return raw
        info.spec |= mark.keys  # type: ignore[typeddict-item]
        if mark.exchange is not None:
            self._exchange(info, mark.exchange)
        _renew(info.spec, mark.anew)
        if mark.adapter is None:
            return raw
        task = dict(mark.adapter)
        source = task.pop("source", None)
        kind = registry.kind_class(info.spec["kind"])
        if source is not None and kind.foreign_of(info.spec.get("task", {}), info.effect):
            task["source"] = source or info.spec["tool"].removesuffix(".*")
        info.spec["adapter"] = {"kind": self.plan.model.by, "task": task}
        return UNKNOWN

    def _exchange(self, info: Info, exchange: Mapping[str, Plain]) -> None:
        """Write how a step makes calls of its callees."""
        self.expressions.used["state"].update([exchange["answers"], *exchange["heeds"]])
        loc, view = (*info.loc, info.action), self.scopes.entry(info)
        with self.expressions.noting_state() as keys:
            until = self.expressions.condition(exchange["until"], loc, view)
        alternative = AlternativeSpec(id="ok", when=until, watches=sorted(keys))
        info.spec["wait"] = WaitSpec(mode="first", alternatives=[alternative])
        parts: Any = {key: part for key, part in exchange.items() if key != "until"}
        parts["callees"] = {self.plan.steps[number].id: number for number in info.children}
        info.spec["exchange"] = parts

    # Arrival

    def _entry(self, info: Info, view: VisibleNames) -> None:
        model, spec = info.model, info.spec
        if model.title is not None:
            if has_expression(model.title):
                message = "the title of a step cannot contain an expression"
                hint = "a title is the same for every execution"
                self.report.at("E306", message, (*info.loc, "title"), hint)
            spec["title"] = plain_text(model.title)
        if model.when is not None:
            spec["when"] = self.expressions.condition(model.when, (*info.loc, "when"), view)
        if model.trigger is not None:
            self._trigger(info, model.trigger)
        join = spec.get("join")
        if join is not None and join["kind"] == "count" and model.join is not None:
            loc = (*model.join.loc, "need")
            join["need"] = self.expressions.of_type(model.join.need, loc, view, INTEGER)
        if model.deadline is not None:
            spec["deadline"] = self.expressions.of_type(
                model.deadline, (*info.loc, "deadline"), view, TEXT
            )
        place = self.report.position((*info.loc, "id"))
        spec["at"] = [place.line, place.column]

    def _trigger(self, info: Info, given: Trigger) -> None:
        for key, names in (("signal", given.signal), ("all", given.all)):
            for index, name in enumerate(names or ()):
                self.actions.signal_data(name, (*given.loc, key, index))
        if given.state is not None:
            self.expressions.used["state"].add(given.state)
            self._check_key(given.state, (*given.loc, "state"))
        if given.match is not None:
            signal = self.scopes.messages.schema(given)  # there is no token yet
            seen = self.scopes.outside().having({"state": self.scopes.state, "signal": signal})
            loc = (*given.loc, "match")
            info.spec["trigger"]["match"] = self.expressions.condition(given.match, loc, seen)

    # map and loop

    def _map(self, info: Info, view: VisibleNames) -> tuple[VisibleNames, bool]:
        """Write `map`. Return the names that an item sees, and whether there are items."""
        given = info.model.map
        if given is None and self.plan.model.left_out((*info.loc, "map")):
            unknown = dict.fromkeys(("item", "index", "key"), UNKNOWN)
            return view.having(unknown), False
        if given is None:
            return view, False
        over = self.expressions.value(given.over, (*given.loc, "over"), view)
        if differs(over.schema, COUNTED):
            message = f"'map' takes a list or a whole number, this is {words(over.schema)}"
            self.report.at("E103", message, (*given.loc, "over"))
        names = item_names(given)
        spec = MapSpec(over=over.value, names=names, on_item_error=given.on_item_error)
        items = over.schema
        if given.signal is not None:
            spec["more"] = given.signal
            data = self.actions.signal_data(given.signal, (*given.loc, "signal"))
            items = list_of(common([items_of(items), data]))
        item = self.scopes.item(view, given, items)
        if given.key is not None:
            spec["key"] = self.expressions.value(given.key, (*given.loc, "key"), item).value
        self._map_bounds(given, spec, view)
        info.spec["map"] = spec
        return item, True

    def _map_bounds(self, given: Map, spec: MapSpec, view: VisibleNames) -> None:
        defaults = self.plan.model.defaults
        most, loc = given.concurrency, (*given.loc, "concurrency")
        if most is None:
            most, loc = defaults.concurrency, (*defaults.loc, "concurrency")
        if most is not None:
            spec["concurrency"] = self.expressions.of_type(most, loc, view, INTEGER)
        if given.max_failures is not None:
            loc = (*given.loc, "max_failures")
            spec["max_failures"] = self.expressions.value(given.max_failures, loc, view).value
        if given.join is not None and given.join.need == "none":
            spec["each"] = True
        elif given.join is not None and given.join.need != "all":
            loc = (*given.join.loc, "need")
            with self.expressions.noting_state() as keys:
                spec["need"] = self.expressions.of_type(given.join.need, loc, view, INTEGER)
            if keys:
                spec["watches"] = sorted(self.plan.model.state if "*" in keys else keys)
            spec["late"] = given.join.late
            if given.signal is None:
                self._check_need(given.join.need, spec["over"], loc)

    def _check_need(self, need: object, over: Value, loc: Loc) -> None:
        """Refuse a map that needs more items than it has."""
        if over[0] == "list" or (over[0] == "const" and isinstance(over[1], list)):
            items = len(over[1])
        elif over[0] == "const" and isinstance(over[1], int):
            items = over[1]
        else:
            return
        if isinstance(need, int) and need > items:
            message = f"'need' is {need}, but the map has {items} items"
            self.report.at("E103", message, loc, "lower 'need'")

    def _loop_start(self, info: Info, view: VisibleNames) -> VisibleNames:
        """Write the part of `loop` before a round, and return the names that a round sees."""
        given = info.model.loop
        if given is None:
            wrong = self.plan.model.left_out((*info.loc, "loop"))
            return view.having({"round": UNKNOWN}) if wrong else view
        spec = LoopSpec(max=self.expressions.of_type(given.max, (*given.loc, "max"), view, INTEGER))
        if given.keep is not None:
            spec["keep"] = True
        round_ = self.scopes.round(view)
        if given.every is not None:
            spec["every"] = self.expressions.of_type(
                given.every.delay, (*given.every.loc, "delay"), round_, TEXT
            )
            spec["backoff"] = given.every.backoff
            delay = spec["every"]
            check_pauses(given.every, delay[1] if delay[0] == "const" else None, self.report)
            if given.every.max_delay is not None:
                spec["max_delay"] = given.every.max_delay
        info.spec["loop"] = spec
        return round_

    def _loop_end(self, info: Info, view: VisibleNames) -> None:
        given = info.model.loop
        if given is None:
            return
        spec = info.spec["loop"]
        if given.until is not None:
            loc = (*given.loc, "until")
            spec["until"] = self.expressions.condition(given.until, loc, view)
        elif given.while_ is not None:
            # The output is null before the first round, regardless of the step's type.
            loc = (*given.loc, "while")
            early = view.having({"output": UNKNOWN, "outcome": UNKNOWN})
            spec["before"] = self.expressions.condition(str(given.while_), loc, early)

    def _lock(self, info: Info, view: VisibleNames) -> None:
        given = info.model.lock
        if given is not None:
            key = self.expressions.of_type(given.key, (*given.loc, "key"), view, KEY)
            spec = LockSpec(key=key, permits=given.max, hold=given.hold)
            if given.scope != "execution":
                spec["scope"] = given.scope
            if isinstance(given.shared, str):
                number = self.expressions.condition(given.shared, (*given.loc, "shared"), view)
                spec["shared"] = ["expr", number]
            elif given.shared:
                spec["shared"] = ["const", True]
            if info.spec["body"] in self.plan.called:
                spec["ordered"] = True
            info.spec["lock"] = spec

    # Results

    def _output(
        self, info: Info, view: VisibleNames, raw: Schema, doubts: Doubts
    ) -> tuple[Schema, Doubts]:
        """Write the `output` of a step. Return its type, and which parts of it may be null."""
        model = info.model
        if not model.has("output"):
            # An unknown key of the step that was omitted may stand for `output`.
            keys, unread = model.fields_by_key(), filter(None, self.plan.model.unread)
            misspelt = any(loc[:-1] == info.loc and loc[-1] not in keys for loc in unread)
            return (UNKNOWN, NONE) if misspelt else (raw, doubts)
        roots = {"result": raw}
        if "adapter" in info.spec:
            roots["approval"] = UNKNOWN
        seen = view.having(roots, None, under("result", doubts))
        typed = self.expressions.value(model.output, (*info.loc, "output"), seen)
        info.spec["output"] = typed.value
        own = {} if typed.doubt is None or typed.doubt.always else {"": typed.doubt}
        return typed.schema, passed_on(own, f"steps.{info.id}.output")

    def _may_differ(self, info: Info) -> bool:
        """Return whether an omitted `map`, `loop` or handler would alter the type of the output."""
        model, left_out = info.model, self.plan.model.left_out
        return (
            (model.map is None and left_out((*info.loc, "map")))
            or (model.loop is None and left_out((*info.loc, "loop")))
            or left_out((*info.loc, "on_error"))
        )

    def _doubts_of_flow(self, info: Info) -> Doubts:
        """Return which outputs of the flow that a step runs may be null."""
        if info.flow is None:
            return NONE
        names = self.calls.tools.others.uncertain_outputs(info.flow)
        path = f"steps.{info.id}.output"
        return {
            f".{name}": missing(f"{info.flow.id!r} may end without it", f"{path}.{name}")
            for name in names
        }

    def _group_output(self, info: Info) -> tuple[Schema, Doubts]:
        """Write the default output of a group: that of its last step, or a map of all."""
        path = f"steps.{info.id}.output"
        body = self.plan.body(info.spec["child"])
        end = self.scopes.inside(self.scopes.entry(info), info)
        if info.action == "parallel":
            branches = [self.plan.steps[number] for number in info.children]
            entries = {branch.id: self._output_of(branch.number, end) for branch in branches}
            body["output"] = ["map", {name: typed.value for name, typed in entries.items()}]
            doubts = [under(f".{name}", self._doubts_at(end, name)) for name in entries]
            types = closed({branch.id: self.scopes.raw(branch) for branch in branches})
            return types, passed_on(reduce(or_, doubts, {}), path)
        # If one step alone leads out of the group, every successful run ends with it.
        lasts = [
            self.plan.steps[number]
            for number in body["steps"]
            if any(target < 0 for target in targets(self.plan.flow["steps"][number]))
        ]
        if self.plan.gaps:
            return UNKNOWN, NONE  # a way out of it may be missing
        if len(lasts) == 1:
            body["output"] = self._output_of(lasts[0].number, end).value
            return self.scopes.raw(lasts[0]), passed_on(self._doubts_at(end, lasts[0].id), path)
        if not lasts:
            return NOTHING, NONE
        giving = [one.id for one in lasts if self.scopes.raw(one) != NOTHING]
        return NOTHING, {"": several_ways_out(info.id, [one.id for one in lasts], giving)}

    def _doubts_at(self, view: VisibleNames, step: str) -> Doubts:
        """Return the doubts of a view about the output of a step."""
        seen = None if view.look is None else view.look(step)
        return NONE if seen is None else seen.uncertain

    def _output_of(self, number: int, view: VisibleNames) -> TypedValue:
        info = self.plan.steps[number]
        if self.plan.by_id[info.id] != number:
            return NULL  # another step has its id, which was reported
        path = f"[{json.dumps(info.id)}]" if "." in info.id else f".{info.id}"
        source = f"steps{path}.output"
        return TypedValue(["expr", self.expressions.add(source, view, info.loc)], UNKNOWN)

    def _check_retry(self, info: Info) -> None:
        """Refuse to retry a group that contains a step which must not be repeated."""
        retry = info.model.retry
        if retry is None or retry.attempts < 2 or info.effect != "once":
            return
        once = next(i for i in self.plan.within(info) if not i.children and i.effect == "once")
        message = f"{info.id!r} is retried, but the effect of {once.id!r} in it is once"
        hint = repeating(once.spec.get("kind"), f" on {once.id!r}")
        self.report.at("E404", message, retry.loc, hint, key=True)

    def sets(self, given: dict[str, object], loc: Loc, view: VisibleNames) -> list[list[object]]:
        """Return the compiled form of `set`, of a step or a handler."""
        pairs: list[list[object]] = []
        for key, data in given.items():
            declared = as_declared(data, self.plan.model.state.get(key))
            typed = self.expressions.value(declared, (*loc, key), view)
            pairs.append([key, typed.value])
            self._check_write(key, typed, (*loc, key))
        return pairs

    def _check_write(self, key: str, typed: TypedValue, loc: Loc) -> None:
        model = self.plan.model
        schema = model.state.get(key)
        if schema is None:
            self._check_key(key, loc, name=True)
            return
        reducer = schema.get("reducer", "replace")
        typed_alike = isinstance(reducer, str) and reducer not in {"append", "union"}
        fraction = typed.constant and type(typed.value[1]) is float
        if typed_alike and (
            differs(typed.schema, schema) or (fraction and schema.get("type") == "integer")
        ):
            message = f"state.{key} must be {words(schema)}, not {words(typed.schema)}"
            self.report.at("E311", message, loc)

    def _check_key(self, key: str, loc: Loc, *, name: bool = False) -> None:
        """Report an undeclared state key."""
        model = self.plan.model
        if key not in model.state and (*model.loc, "state", key) not in model.unread:
            hint = did_you_mean(key, model.state) or f"declare it: 'state: {{{key}: ...}}'"
            self.report.at("E301", f"there is no state {key!r}", loc, hint, key=name)

    def _compensate(self, info: Info, view: VisibleNames) -> None:
        given = info.model.compensate
        if given is None:
            return
        action, call = given.action or ("none", None)
        if call is None:
            return  # it was left out as invalid
        spec = StepSpec(id=info.id, body=-1)
        info.spec["compensate"] = self._hide(spec, given.loc)
        self.calls.write(Call(given, spec, action, call), view.having({"error": ERROR}))

    def _handler(self, spec: HandlerSpec, model: Handler, view: VisibleNames) -> TypedValue | None:
        """Write a handler, and return its output, if it has one."""
        if model.when is not None:
            spec["when"] = self.expressions.condition(model.when, (*model.loc, "when"), view)
        pairs = self.sets(model.set, (*model.loc, "set"), view)
        if pairs:
            spec["set"] = pairs
        if model.emit:
            spec["emit"] = [self.actions.emit(one, view) for one in model.emit]
        if model.fail is not None:
            spec["fail"] = self.actions.fail(model.fail, view)
        if not model.has("output"):
            return None
        typed = self.expressions.value(model.output, (*model.loc, "output"), view)
        spec["output"] = typed.value
        return typed


def _renew(spec: StepSpec, anew: Mapping[str, Sequence[str]]) -> None:
    """Insert values of a generated flow into the input of a step, evaluated at each arrival."""
    if not anew:
        return
    tag, content = spec["input"]
    parts = {name: [tag, value] for name, value in content.items()} if tag == "const" else content
    spec["input"] = ["map", {**parts, **{name: ["given", [*path]] for name, path in anew.items()}}]


def _locals(view: VisibleNames) -> dict[str, Schema]:
    """Return the names of items and rounds in a view, for the steps of a group."""
    outside = {"inputs", "state", "execution", "now", "join"}
    return {root: schema for root, schema in view.roots.items() if root not in outside}

"""The visible names at each place, with their types: earlier steps, items, rounds, arrivals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from flowengine.flow.check import net as nets
from flowengine.flow.check.reaching_outputs import EarlierSteps, gives_output
from flowengine.flow.compile.expressions import Expressions
from flowengine.flow.compile.outcomes import outcomes
from flowengine.flow.compile.plan import Info, Plan
from flowengine.flow.compile.types import (
    EXECUTION,
    INTEGER,
    NONE,
    TEXT,
    UNKNOWN,
    Doubts,
    Schema,
    StepFacts,
    VisibleNames,
    closed,
    common,
    items_of,
    list_of,
    missing,
    signal_schema,
    step_schema,
    under,
)
from flowengine.flow.expressions.types import Note
from flowengine.flow.loading.files import Definition, FlowFile, FlowFiles
from flowengine.flow.models import Loc, Map, Part, Trigger
from flowengine.flow.models.actions import Asking
from flowengine.flow.models.declarations import EndNotice
from flowengine.flow.models.types import Effect
from flowengine.kernel.graph.compiled import START, TRIGGER
from flowengine.kernel.graph.specs import EndNoticeSpec

NO_MESSAGE = -1
"""Used in place of a triggered step if no message started the token."""
ABSENT = Note(
    "W305",
    "a branch that no message started may arrive here: 'signal' is then null",
    "test signal != null, or write default(signal.data.…, …)",
    reason="a branch that no message started may have come",
)


class SignalTypes:
    """The type of `signal` at each step."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._begun: list[frozenset[int]] | None = None

    def seen(self, info: Info, view: VisibleNames) -> VisibleNames:
        """Return the view of a step with `signal`, if a message may have started its token."""
        if not self.plan.flow.get("triggered"):
            return view
        while info.parent >= 0:
            info = self.plan.steps[info.parent]
        begun = self._all()[info.number]
        triggered = sorted(begun - {NO_MESSAGE})
        if not triggered:
            return view
        schema = common(
            [self.schema(self.plan.steps[number].model.trigger) for number in triggered]
        )
        doubt = {"signal": ABSENT} if NO_MESSAGE in begun else {}
        return view.having({"signal": schema or signal_schema(UNKNOWN)}, uncertain=doubt)

    def schema(self, trigger: Trigger | None) -> Schema:
        """Return the type of the message that a trigger brings."""
        if trigger is None or trigger.state is not None:
            return UNKNOWN
        if trigger.all is not None:
            return signal_schema(closed({name: self._data(name) for name in trigger.all}))
        return common([signal_schema(self._data(one)) for one in trigger.signal or ()]) or UNKNOWN

    def _data(self, signal: str) -> Schema:
        model = self.plan.model.signals.get(signal)
        return UNKNOWN if model is None or model.data is None else model.data

    def _all(self) -> list[frozenset[int]]:
        """Return, for each step, the triggers whose messages may reach it."""
        if self._begun is None:
            steps = self.plan.steps
            self._begun = [frozenset() for _ in steps]
            changed = True
            while changed:
                changed = False
                for number in self.plan.body(0)["steps"]:
                    new = self._at(steps[number])
                    if new != self._begun[number]:
                        self._begun[number] = new
                        changed = True
        return self._begun

    def _at(self, info: Info) -> frozenset[int]:
        arriving = [self._from(info, source) for source in info.spec["sources"]]
        messages: frozenset[int] = frozenset().union(*arriving)
        waits_for_all = info.spec.get("join", {}).get("kind") == "all"
        if waits_for_all and any(each and NO_MESSAGE not in each for each in arriving):
            return messages - {NO_MESSAGE}
        return messages

    def _from(self, info: Info, source: int) -> frozenset[int]:
        assert self._begun is not None
        if source >= 0:
            return self._begun[source]
        trigger = info.model.trigger
        brings = source == TRIGGER and trigger is not None and trigger.state is None
        return frozenset({info.number if brings else NO_MESSAGE})


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
        name: {k: v for k, v in schema.items() if k not in {"reducer", "signal", "default"}}
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


def item_names(given: Map) -> list[str]:
    """Return the names of an item of a map, its index and its key."""
    before = "" if given.as_ == "item" else f"{given.as_}_"
    return [given.as_, f"{before}index", f"{before}key"]


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

    def at_end(self) -> VisibleNames:
        """Return the names that `outputs` see: all of the flow's own steps."""
        roots = {**self.base, "state": self.state}
        return VisibleNames(roots, -1, lambda name: self._find(name, 0, AT_END), self._ids)

    def entry(self, info: Info) -> VisibleNames:
        """Return the names that a step sees when a token has reached it."""
        body = info.spec["body"]
        roots = {**self.base, "state": self.state, **self.locals.get(body, {})}
        view = VisibleNames(
            roots, info.number, lambda name: self._find(name, body, info.number), self._ids
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

        def find(name: str) -> StepFacts | None:
            number = self.plan.by_id.get(name)
            if number is not None and self.plan.steps[number].spec["body"] == child:
                return self._seen(self.plan.steps[number], child, AT_END)
            return None if outer is None else outer(name)

        return replace(view, look=find)

    def item(self, view: VisibleNames, given: Map, over: Schema) -> VisibleNames:
        types = (items_of(over), INTEGER, TEXT)
        return view.having(dict(zip(item_names(given), types, strict=True)))

    def round(self, view: VisibleNames) -> VisibleNames:
        return view.having({"round": closed({"number": INTEGER, "last": UNKNOWN})})

    # Types

    def raw(self, info: Info) -> Schema:
        """Return the known type of a step's output."""
        return self.outputs.get(info.number, UNKNOWN)

    def _ids(self) -> list[str]:
        return list(self.plan.by_id)

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

    def _find(self, name: str, body: int, here: int) -> StepFacts | None:
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
        if body not in self._pasts:
            self._pasts[body] = EarlierSteps(self.plan.flow, body, self.cancels)
        past = self._pasts[body]
        handlers = info.model.on_error
        known = None if isinstance(handlers, list) else [*outcomes(info).names, "skipped"]
        mapped = info.model.map is not None and not info.each
        schema = step_schema(self.raw(info), known, mapped)
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
        if info.number in {group.number for group in self.plan.around(at)}:
            message = f"'steps.{info.id}' is a group around this step, which has not ended yet"
            return Note("E304", message, "name a step inside it")
        message = (
            f"'steps.{info.id}' cannot have run yet: no path leads from {info.id!r} to {at.id!r}"
        )
        if self.plan.is_parallel(info.spec["body"]):
            hint = "the steps of a 'parallel' see each other's results only after it"
        else:
            hint = (
                "a branch sees the steps that it has passed. Parallel branches share "
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


# The scope of a file's declarations when a flow uses them: its values, and other files.


class OtherFlows(Protocol):
    """The interface through which the compiler of one flow queries other flows and files."""

    files: FlowFiles
    first: FlowFile
    """The file that is compiled."""
    read: dict[str, None]
    """Other files that were read, such as Python modules."""

    def find(self, file: FlowFile, name: str, loc: Loc) -> Definition | None:
        """Return the flow with a name, or None if it was reported."""

    def outputs(self, definition: Definition) -> Schema:
        """Return the output type of a flow."""

    def uncertain_outputs(self, definition: Definition) -> list[str]:
        """Return which outputs of a flow may be null."""

    def effect(self, definition: Definition) -> Effect:
        """Return the effect of a flow after a crash."""

    def generate(self, kind: str, config: Any, file: FlowFile, loc: Loc) -> Definition | None:
        """Return the flow that a step kind generates, or None if errors were reported."""

    def is_generating(self, kind: str, config: Any, file: FlowFile) -> bool:
        """Return whether the flow for a use of a step kind is being generated at the moment."""

    def notification(
        self, user: Definition, file: FlowFile, tool: str, about: str, loc: Loc
    ) -> Definition | None:
        """Return the flow that sends notifications with a tool, or None if errors were reported.

        Args:
            user: The flow that notifies, which is compiled together with it.
            file: Its file.
            tool: The name of the tool there.
            about: The argument of the tool: `approval` or `execution`.
            loc: Its place.
        """

    def secret(self, file: FlowFile, name: str) -> str:
        """Return the name of a file's secret in the compiled flow."""


class DeclarationScope:
    """The declarations of a file, as one flow uses them.

    Args:
        file: The file.
        user: The flow that uses them, of this file or another.
        expressions: Compiles the values in declarations.
        others: The other flows and files.
    """

    def __init__(
        self, file: FlowFile, user: Definition, expressions: Expressions, others: OtherFlows
    ) -> None:
        self.file = file
        self.user = user
        self.model = file.model
        self.expressions = expressions
        self.report = file.report
        self.others = others
        self.view = VisibleNames(base_of(file.flow))
        """The names that declarations see, except for `args`."""
        self._beside: dict[FlowFile, DeclarationScope] = {}

    def of_file(self, file: FlowFile) -> DeclarationScope:
        """Return the declarations of a file, for the same flow."""
        if file is self.file:
            return self
        if file not in self._beside:
            secrets = {name: self.others.secret(file, name) for name in file.model.secrets}
            expressions = Expressions(file.report, secrets, self.expressions, True)
            self._beside[file] = DeclarationScope(file, self.user, expressions, self.others)
        return self._beside[file]

    @property
    def own_view(self) -> VisibleNames:
        """Return the names for a value declared for a step of the flow.

        In its own flow, state is included.
        """
        if self.user is not self.file.flow:
            return self.view
        return self.view.having({"state": state_of(self.user)})

    def sees_inputs_of(self, file: FlowFile) -> bool:
        """Return whether the flow that uses the declarations has the inputs of a file's flow.

        A flow that was generated from a file's declarations receives the inputs that it needs.
        """
        user = self.user
        return user is file.flow or (user.generated is not None and user.file is file)

    def notifications(self, given: Asking) -> list[str]:
        """Return the ids of the flows that send the notifications of an approval."""
        sections = [
            self.others.notification(
                self.user, self.file, tool, "approval", (*given.loc, "notify", index)
            )
            for index, tool in enumerate(given.notify)
        ]
        return [flow.id for flow in sections if flow is not None]

    def end_notices(self, given: Sequence[EndNotice]) -> list[EndNoticeSpec]:
        """Return the form of each flow that sends notifications at the end of an execution."""
        compiled: list[EndNoticeSpec] = []
        for one in given:
            loc = (*one.loc, "tool")
            flow = self.others.notification(self.user, self.file, one.tool, "execution", loc)
            if flow is not None:
                compiled.append({"flow": flow.id, "on": [*one.outcome]})
        return compiled

    @contextmanager
    def noting_inputs(self) -> Iterator[set[str]]:
        """Collect the inputs that expressions compiled in the block name."""
        used = self.expressions.used
        before, noted = used["inputs"], set[str]()
        used["inputs"] = noted
        yield noted
        before |= noted
        used["inputs"] = before

    def refuse_inputs(self, file: FlowFile, model: Part, name: str, loc: Loc) -> None:
        """Report that a declaration names inputs of a flow other than the one that uses it.

        Args:
            file: The file of the declaration.
            model: The declaration.
            name: The name under which it is used.
            loc: Place of the use.
        """
        message = f"{name!r} uses inputs of the flow in its own file, which is not this one"
        hint = "give it arguments instead: declare 'args', and pass them here"
        place = file.report.source.position(model.loc)
        here = self.report.source.position(loc)
        self.report.diagnostics.error(
            "E301", message, here, hint=hint, related=[(place, "it is declared here")]
        )

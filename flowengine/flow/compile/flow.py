"""One flow of a file: its declarations, its steps, and the checks of the result."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from flowengine import registry
from flowengine.flow.check.concurrent_writes import check_items
from flowengine.flow.check.graph import check_graph
from flowengine.flow.check.released_environments import Finding, check_released
from flowengine.flow.check.triggers import check_triggers
from flowengine.flow.compile.actions import Actions
from flowengine.flow.compile.calls import CallCompiler
from flowengine.flow.compile.edges import Edges
from flowengine.flow.compile.environments import EnvironmentDeclarations
from flowengine.flow.compile.expressions import Expressions
from flowengine.flow.compile.handlers import Plans, check_handled, check_handlers
from flowengine.flow.compile.link import last_readers
from flowengine.flow.compile.plan import Info, Plan
from flowengine.flow.compile.scopes import DeclarationScope, OtherFlows, Scopes
from flowengine.flow.compile.starts import Starts
from flowengine.flow.compile.steps import StepCompiler
from flowengine.flow.compile.tools import Tools
from flowengine.flow.compile.types import (
    TEXT,
    UNKNOWN,
    Schema,
    VisibleNames,
    as_declared,
    common,
    differs,
    named_steps,
    words,
)
from flowengine.flow.expressions.template import split_text
from flowengine.flow.loading.files import Definition
from flowengine.flow.models import Approval, Budget, Concurrency, Loc, SharedBudget, Wait
from flowengine.flow.models.types import has_expression, holds_expression, in_generated
from flowengine.kernel.graph.compiled import FORMAT
from flowengine.kernel.notation.times import parse_duration
from flowengine.sdk.texts.flow_texts import plain_text


def too_long(plan: Plan) -> Iterator[tuple[Loc, str]]:
    """Yield the written durations that exceed `limits.duration`.

    Args:
        plan: The steps.

    Yields:
        Place and duration.
    """
    limit = plan.model.limits.duration
    if limit == "none":
        return
    most = parse_duration(limit)
    for loc, text in _written(plan):
        try:
            if parse_duration(text) > most:
                yield loc, text
        except ValueError:
            continue  # an expression


def _written(plan: Plan) -> Iterator[tuple[Loc, str]]:
    for info in plan.steps:
        if info.model.deadline is not None:
            yield (*info.loc, "deadline"), info.model.deadline
        given = info.given
        if isinstance(given, Approval) and given.expires is not None:
            yield (*given.expires.loc, "after"), given.expires.after
        if isinstance(given, Wait):
            if info.model.timeout is not None:
                yield (*info.loc, "timeout"), info.model.timeout
            for trigger in (given, *(given.first or ()), *(given.all or ())):
                if trigger.for_ is not None:
                    yield (*trigger.loc, "for"), trigger.for_


# Loops whose body does not change their condition (W409).

_CHANGING = re.compile(r"\b(output|outcome|round|now|item|join|error)\b")
_STATE = re.compile(r"\bstate\s*\.\s*([a-z][a-z0-9_]*)")


def check_loops(plan: Plan) -> Iterator[Finding]:
    """Yield the loops that end after the first round or never.

    Args:
        plan: The steps.

    Yields:
        A warning for each.
    """
    written = {key for info in plan.steps for key in _writes(info)}
    for info in plan.steps:
        loop = info.model.loop
        if loop is None or not (loop.until or loop.while_):
            continue
        word = "until" if loop.until is not None else "while"
        condition = (loop.until if loop.until is not None else loop.while_) or ""
        inside = {step.id for step in plan.within(info)}
        changes = (
            _CHANGING.search(condition)
            or inside & named_steps(condition).keys()
            or written & set(_STATE.findall(condition))
        )
        if not changes:
            message = f"nothing in the loop of {info.id!r} changes its condition"
            hint = "name 'output', a step inside, or a state key that a step sets"
            yield Finding("W409", info.number, message, hint, ("loop", word))


def _writes(info: Info) -> Iterator[str]:
    yield from info.model.set
    if isinstance(info.model.on_error, list):
        for handler in info.model.on_error:
            yield from handler.set


class Compiler:
    """Compiles one flow of a file.

    Args:
        others: The other flows and files.
    """

    def __init__(self, model: Definition, others: OtherFlows) -> None:
        self.model = model
        file = model.file
        report = self.report = file.report
        self.plan = Plan(model)
        self.edges = Edges(self.plan, report)
        # Those left out because of errors are known, too.
        unread = [str(loc[1]) for loc in file.model.unread if len(loc) > 1 and loc[0] == "secrets"]
        secrets = {name: others.secret(file, name) for name in [*file.model.secrets, *unread]}
        in_other_file = file is not others.first
        self.expressions = Expressions(
            report, secrets, in_other_file=in_other_file, generated=model.generated is not None
        )
        self.outputs: dict[str, Schema] = {}
        """Types of its outputs."""
        self.uncertain_outputs: list[str] = []
        """Outputs that may be null although the flow succeeded."""
        self.edges.write()
        self.scopes = Scopes(self.plan)
        declared = self.expressions
        if model.generated is not None:
            declared = Expressions(
                file.report, secrets, self.expressions, in_other_file, generated=True
            )
            declared.used = self.expressions.used
        scope = DeclarationScope(file, model, declared, others)
        self.tools = Tools(scope, EnvironmentDeclarations(scope))
        self.calls = CallCompiler(model, self.expressions, self.tools, report)
        self.actions = Actions(model, self.expressions, self.calls, report)
        self.steps = StepCompiler(
            self.plan, self.edges, self.scopes, self.expressions, self.actions, self.calls, report
        )

    def compile(self) -> None:
        """Write the compiled form. It must not be used if errors were reported."""
        self._declarations()
        self.plan.flow["expressions"] = self.expressions.records
        if not self.model.steps:
            return  # a library, or its steps were left out because of errors
        self.steps.write()
        self.steps.open_first(self.tools.environments.eager())
        self._outputs()
        title = self.model.title
        if self.model.is_own and title is not None and has_expression(title):
            self.plan.flow["titled"] = self.expressions.of_type(
                title, ("title",), self.scopes.outside(), TEXT
            )
        self._keep_what_is_named()
        self._check()

    # Declarations

    def _declarations(self) -> None:
        model, flow = self.model, self.plan.flow
        flow["format"] = FORMAT
        flow["id"], flow["version"] = model.id, model.version
        if model.title is not None:
            parts = split_text(model.title) if has_expression(model.title) else (model.title,)
            literal = [part if isinstance(part, str) else "…" for part in parts]
            flow["title"] = plain_text("".join(literal))
        flow["inputs"] = dict(model.inputs)
        self._input_defaults()
        flow["state"] = {name: self._state(name, schema) for name, schema in model.state.items()}
        flow["secrets"] = {name: secret.plain() for name, secret in model.secrets.items()}
        flow["signals"] = {name: self._signal(name) for name in model.signals}
        limits = model.limits
        flow["limits"] = {
            key: getattr(limits, name)
            for key, (name, _) in type(limits).fields_by_key().items()
            if limits.has(name) and getattr(limits, name) != "none"
        }
        if model.counts_alone:
            flow["counts_alone"] = True
        if model.budget is not None:
            flow["budget"] = _budget(model.budget, model.title)
            if model.budget.shared:
                flow["shared_budgets"] = [self._shared(one) for one in model.budget.shared]
        if model.generated is not None:
            flow["result"] = "output"
        if model.is_own:
            start = model.file.model.start
            if start:
                flow["start"] = Starts(self.model, self.expressions, self.actions).compiled(start)
            if model.file.model.concurrency is not None:
                flow["concurrency"] = self._concurrency(model.file.model.concurrency)
            if model.file.model.notify:
                flow["end_notices"] = self.tools.scope.end_notices(model.file.model.notify)
            for name in model.tools:
                self.tools.declared(name)
            self.calls.rules.check()
            for name in model.file.model.environments:
                self.tools.environments.declared(name)

    def _input_defaults(self) -> None:
        """Compile the computed defaults of inputs, each after those that it needs."""
        computed: dict[str, Any] = {}
        needs: dict[str, set[str]] = {}
        for name, schema in self.model.inputs.items():
            loc = (*self.model.loc, "inputs", name, "default")
            if not holds_expression(schema.get("default")):
                continue
            with self.tools.scope.noting_inputs() as needs[name]:
                typed = self.expressions.value(schema["default"], loc, self.scopes.outside())
            computed[name] = typed.value
        ordered: list[list[Any]] = []
        while computed:
            ready = sorted(name for name in computed if not needs[name] & computed.keys())
            if not ready:
                names = " and ".join(repr(name) for name in computed)
                message = f"the defaults of {names} depend on each other"
                loc = (*self.model.loc, "inputs", next(iter(computed)), "default")
                self.report.at("E103", message, loc, "give one of them a constant")
                return
            ordered += [[name, computed.pop(name)] for name in ready]
        if ordered:
            self.plan.flow["defaults"] = ordered

    def _state(self, name: str, schema: dict[str, Any]) -> dict[str, Any]:
        loc: Loc = (*self.model.loc, "state", name)
        reducer = schema.get("reducer", "replace")
        shape = {
            key: value
            for key, value in schema.items()
            if key not in {"reducer", "default", "signal"}
        }
        if holds_expression(schema.get("default")):
            message = "the default of a state key cannot contain an expression"
            hint = "set it in the first step: 'set: {...}'"
            self.report.at("E306", message, (*loc, "default"), hint)
        elif "default" not in schema and reducer != "replace":
            message = f"state {name!r} needs a 'default' that its reducer can start from"
            self.report.at("E104", message, loc, "such as [] or 0", key=True)
        if isinstance(reducer, dict):
            reducer = self.tools.reducer(reducer["python"], (*loc, "reducer", "python"))
        default = as_declared(schema.get("default"), shape)
        compiled = {"schema": shape, "default": default, "reducer": reducer}
        if "signal" in schema:
            data = self.actions.signal_data(schema["signal"], (*loc, "signal"))
            takes = shape.get("items", {}) if reducer in ("append", "union") else shape
            if isinstance(takes, dict) and differs(data, takes):
                message = f"state.{name} takes {words(takes)}, not {words(data)}"
                self.report.at("E311", message, (*loc, "signal"))
            compiled["signal"] = schema["signal"]
        return compiled

    def _signal(self, name: str) -> dict[str, Any]:
        model = self.model.signals[name]
        compiled: dict[str, Any] = {}
        if model.key is not None:
            loc = ("signals", name, "key")
            with self.tools.scope.noting_inputs() as named:
                typed = self.expressions.value(model.key, loc, self.tools.view)
            if self.model.is_own or not named:
                compiled["key"] = typed.value
            else:
                self.actions.keyless.add(name)
            if differs(typed.schema, TEXT):
                hint = "the key of a signal is text"
                self.report.at("E307", "this does not give text", loc, hint)
        if model.data is not None:
            compiled["data"] = model.data
        return compiled

    def _concurrency(self, given: Concurrency) -> dict[str, Any]:
        compiled: dict[str, Any] = {"max": given.max, "then": given.then}
        if given.key is not None:
            loc = (*given.loc, "key")
            typed = self.expressions.value(given.key, loc, self.scopes.outside())
            compiled["key"] = typed.value
        return compiled

    def _shared(self, given: SharedBudget) -> Any:
        """Return the compiled form of a budget that executions share."""
        typed = self.expressions.value(given.key, (*given.loc, "key"), self.scopes.outside())
        return {**given.plain(), "key": typed.value}

    def _outputs(self) -> None:
        view = self.scopes.at_end()
        handled = [
            check_handled(self.report, self.model.outputs, given, loc)
            for loc, given in self.steps.handled
        ]
        outputs: dict[str, Any] = {}
        for name, model in self.model.outputs.items():
            typed = self.expressions.value(model.value, (*model.loc, "value"), view)
            outputs[name] = {"value": typed.value}
            schema = common([typed.schema, *(types[name] for types in handled)])
            self.outputs[name] = {**schema, **model.json_schema}
            if model.json_schema:
                outputs[name]["schema"] = model.json_schema
            elif typed.doubt is not None and not typed.doubt.always:
                self.uncertain_outputs.append(name)
        self.plan.flow["outputs"] = outputs
        if self.model.outcome is not None:
            loc = (*self.model.loc, "outcome")
            self.plan.flow["outcome"] = self.expressions.of_type(
                self.model.outcome, loc, view, TEXT
            )

    def _keep_what_is_named(self) -> None:
        """Write which fields of each step are kept, and which outputs tokens carry."""
        steps = self.plan.flow["steps"]
        for name, fields in self.expressions.named.items():
            number = self.plan.by_id.get(name)
            if number is not None:
                steps[number]["named"] = sorted(fields)
        for step in self.expressions.joins:
            for source in steps[step].get("sources", []):
                if source >= 0:
                    steps[source]["carries"] = True
        readers = {
            self.plan.by_id[name]: numbers
            for name, numbers in self.expressions.readers.items()
            if name in self.plan.by_id
        }
        for last, others in last_readers(self.plan.flow, readers).items():
            steps[last]["forgets"] = others

    # Checks of the whole

    def _check(self) -> None:
        flow, gaps = self.plan.flow, self.plan.gaps
        for loc, text in too_long(self.plan):
            limit = self.model.limits.duration
            message = f"{text} is longer than the whole flow may take: limits.duration is {limit}"
            self.report.at("E211", message, loc, "shorten it, or raise limits.duration")
        if not gaps.cancels:
            self._findings(check_graph(flow, gaps.bodies, gaps.joins))
        if gaps:
            return
        self._findings(check_items(flow))
        self._findings(check_loops(self.plan))
        self._findings(check_triggers(flow))
        self._findings(check_released(flow, lambda kind: registry.provider(kind).live))
        if self.model.limits.has("idle") and "triggered" not in flow:
            message = "'idle' has no meaning in a flow without a 'trigger'"
            self.report.at("E103", message, ("limits", "idle"), "leave it out", key=True)

    def inputs_named(self) -> set[str]:
        """Return the inputs of its file's own flow that declarations in a generated flow name."""
        declared = self.model.file.flow.inputs
        named = self.expressions.used["inputs"] - self.model.inputs.keys()
        return set(declared) if "*" in named else named & declared.keys()

    def hand_on_inputs(self, named: Mapping[Definition, set[str]]) -> None:
        """Take inputs of the file's own flow, and pass them on to generated flows.

        Args:
            named: The inputs that generated flows need.
        """
        own = self.model.file.flow
        if self.model in named:
            more = {name: own.inputs[name] for name in sorted(named[self.model])}
            self.plan.flow["inputs"] |= more
        for call, flow in self.calls.handed_on:
            spec = call.spec
            needed = sorted(named[flow])
            if not needed:
                continue
            if self.model is not own and (flow.file is not own.file or self.model not in named):
                message = f"{flow.id!r} uses inputs of the flow in its own file, which is not this"
                hint = "run it from there, or give it 'context' instead of inputs"
                self.report.at("E301", message, (*call.loc, call.action), hint)
                continue
            view = VisibleNames({"inputs": UNKNOWN})
            of_flow: Literal["args", "input"] = "input" if "input" in spec else "args"
            tag, values = spec[of_flow]
            parts = (
                {key: ["const", value] for key, value in values.items()}
                if tag == "const"
                else values
            )
            for name in needed:
                number = self.expressions.add(f"inputs.{name}", view, call.loc)
                parts[name] = ["expr", number]
            spec[of_flow] = ["map", parts]

    def check_handlers(self, plans: Plans) -> None:
        """Check the handlers of its steps, after the flows that it runs have been compiled."""
        if self.model.steps:
            self._findings(check_handlers(self.plan, plans))

    def _findings(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            info = self.plan.steps[finding.step]
            related = [((*self.plan.steps[step].loc, "id"), text) for step, text in finding.related]
            loc = (*info.loc, *finding.where)
            is_key = finding.where[-1] != "id" and not isinstance(finding.where[-1], int)
            self.report.at(
                finding.code, finding.message, loc, finding.hint, key=is_key, related=related
            )

    def used(self, section: str) -> set[str]:
        """Return the names of a section that are used in the flow, or `*` for any."""
        used = self.expressions.used
        if section == "state":
            return used["state"] | {key for info in self.plan.steps for key in info.model.set}
        if section == "secrets":
            return used["secrets"]
        if section == "environments":
            return self.tools.environments.used
        return self.actions.signals if section == "signals" else self._called()

    def _called(self) -> set[str]:
        """Return the tools and flows that a step runs."""
        called = set(self.tools.used)
        for info in self.plan.steps:
            for model in (info.model, info.model.compensate):
                if model is not None and model.flow is not None:
                    called.add(model.flow)
        return called


def _budget(given: Budget, title: str | None) -> Any:
    """Return the compiled form of a budget: its limits, and the effect of exceeding them.

    That of agents in Python is called by the title of their flow, which has a generated id.
    """
    called = {"called": plain_text(title)} if title and in_generated.get() else {}
    limits = {key: value for key, value in given.plain().items() if key not in {"then", "shared"}}
    return {"then": given.then, **limits, **called}

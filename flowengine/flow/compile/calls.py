"""Steps that make calls: of tools, step kinds and flows. See docs/language.md: call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flowengine.flow.compile.arguments import Arguments
from flowengine.flow.compile.call_modifiers import CallModifiers
from flowengine.flow.compile.call_rules import CallRules
from flowengine.flow.compile.callee import Callee, Home
from flowengine.flow.compile.environments import give
from flowengine.flow.compile.expressions import Expressions, TypedValue, constant, together
from flowengine.flow.compile.offered_environments import inject, take_named
from flowengine.flow.compile.plan import Call
from flowengine.flow.compile.questions import asked_before_call
from flowengine.flow.compile.tools import Tools, refuse_crash_keys
from flowengine.flow.compile.types import TEXT, UNKNOWN, Schema, VisibleNames, closed
from flowengine.flow.loading.files import Definition
from flowengine.flow.models import AskBeforeCall
from flowengine.flow.models.kinds import ASK
from flowengine.flow.source.diagnostics import DiagnosticReporter
from flowengine.kernel.graph import environment_uses
from flowengine.kernel.graph.compiled import digest, holds_secret
from flowengine.kernel.graph.rules import Called
from flowengine.kernel.graph.specs import RuleSpec, StepSpec
from flowengine.sdk.steps.generated_flows import Mark
from flowengine.sdk.values.argument_schemas import without_arguments


class CallCompiler:
    """Compiles calls into tasks.

    Args:
        expressions: Compiles their values.
        tools: The tools that can be called.
    """

    def __init__(
        self, model: Definition, expressions: Expressions, tools: Tools, report: DiagnosticReporter
    ) -> None:
        self.model = model
        self.expressions = expressions
        self.tools = tools
        self.report = report
        self.modifiers = CallModifiers(model.defaults, expressions)
        self.rules = CallRules(tools.scope)
        self._of_files = {tools: self.rules}
        """Rules of the files whose tools are called."""
        self.flows: list[tuple[StepSpec, Definition]] = []
        """The steps that run a flow, each with the flow."""
        self.handed_on: list[tuple[Call, Definition]] = []
        """Those that run a generated flow, which may receive inputs of this flow."""
        self._tried_again: list[tuple[Call, Callee]] = []
        """Calls with a retry."""

    def write(self, call: Call, view: VisibleNames) -> Schema:
        """Write a task, or a subflow.

        Args:
            call: The target and its arguments, with the step to write into.
            view: The names that its expressions see.

        Returns:
            The type of the result.
        """
        spec = call.spec
        given = self.arguments(call, view)
        loc = (*call.loc, call.action)
        name = call.given if call.action == "call" else call.action
        mark, tools = self._mark(call), self._tools_of(call)
        if mark.offered is not None and "tool" in mark.offered:
            callee = tools.server(call.given, loc)
            spec["tool"] = f"{call.given}.*"
        elif call.action == "call":
            callee = tools.find(call.given, loc)
            spec["tool"] = str(mark.keys.get("tool", call.given))
            if spec["tool"] != call.given:
                spec["declared"] = str(call.given)
        elif call.action == "flow":
            callee = tools.of_flow(call.given, loc)
            name = call.given if callee is None or callee.flow is None else callee.flow.id
        else:
            callee = tools.kinds.compile(call.action, call.given, loc, view, in_=call.model.in_)
        spec["action"] = "task"
        spec["effect"] = "once"
        if callee is None:
            return UNKNOWN
        if mark.offered is not None:
            offered = mark.offered.items()
            texts = {key: self.expressions.value(text, loc, view) for key, text in offered}
            callee = replace(callee, offered=texts)
        if callee.home is None and tools is not self.tools:
            home = Home(tools.expressions, tools.view, tools.model.defaults)
            callee = replace(callee, home=home)
        self._check_question(call, callee)
        callee = self._with_environments(call, callee, view)
        self.tools.check_arguments(callee, given, call.loc, str(name))
        if call.action == "call":
            self._look_at_rules(call, callee)
        if callee.approval is not None:
            self._ask(call, callee, view)
        if callee.flow is not None:
            return self._flow(call, callee, given, view)
        self._task(call, callee, given, view)
        if call.action != "call":
            self._look_at_inline(call, callee)
        return callee.returns

    def _task(
        self,
        call: Call,
        callee: Callee,
        given: Arguments,
        view: VisibleNames,
    ) -> None:
        spec = call.spec
        spec["kind"], spec["task"] = callee.kind, callee.task
        mark = self._mark(call)
        limited = callee.limits is not None and "calls" in callee.limits
        asks = callee.approval is not None or "rules" in spec
        if "tool" in spec and ("caller" in mark.keys or asks or limited):
            spec["counts"] = callee.identity or digest([callee.kind, callee.task.get("tool")])
        if callee.meters is not None:
            spec["meters"] = callee.meters
        if callee.reads:
            spec["reads"] = callee.reads
            model = self.model
            self.expressions.used["state"].update(callee.reads)
            for key in callee.reads:
                if key not in model.state and (*model.loc, "state", key) not in model.unread:
                    hint = f"declare it: 'state: {{{key}: ...}}'"
                    message = f"{callee.kind!r} reads state.{key}, which this flow does not have"
                    self.report.at("E301", message, (*call.loc, call.action), hint, key=True)
        if callee.step_kind.may_start_agents and (rules := self._rules_of(call).within()):
            spec["within"] = rules
        self._input(call, callee, given, view)
        self.modifiers.write(call, callee, view)

    def _flow(
        self,
        call: Call,
        callee: Callee,
        given: Arguments,
        view: VisibleNames,
    ) -> Schema:
        """Write a step that runs a flow, or starts an execution of it."""
        spec = call.spec
        assert callee.flow is not None
        if call.model.needs:
            message = f"{call.name} takes no 'needs': it runs a flow of several steps"
            hint = "write it in the tools of the agent, or in the steps of the flow"
            self.report.at("E103", message, (*call.loc, "needs"), hint, key=True)
        refuse_crash_keys(self.report, call.model, call.loc, call.name)
        self.flows.append((spec, callee.flow))
        spec["kind"] = "flow"
        detached = bool(call.model.background or callee.background)
        if callee.background is not None:
            spec["background"] = callee.background
        bind = callee.bind or {}
        arguments = given.having(bind, bind)
        if callee.flow.generated is not None:
            loc, own = (*call.loc, call.action), self._mark(call).inputs.items()
            inputs = {name: self.expressions.value(one, loc, view) for name, one in own}
            inputs = {**callee.given, **inputs}
            if callee.approval is not None:
                approved = self._approved(call, view)
                spec["input"] = together({"_args": approved, **inputs}).value
            else:
                arguments = together({"_args": arguments, **inputs})
            if not detached:
                spec["kind"] = callee.kind
                spec["raises"] = dict(callee.step_kind.raises)
            self.handed_on.append((call, callee.flow))
        values = arguments.value
        if detached and callee.approval is not None:
            spec["args"] = values
            values = spec["input"] if "input" in spec else self._approved(call, view).value
        if detached:
            # The new execution's id is derived from this one's and the address, so it starts only
            # once.
            spec["input"], spec["task"], spec["effect"] = values, {}, "idempotent"
            self.modifiers.declared_retry(call, callee, view)
            return closed({"execution_id": TEXT})
        spec["action"], spec["args"] = "flow", values
        del spec["effect"]  # the effect is that of its steps
        self._check_triggers(callee.flow, call)
        effect = call.model.effect or callee.effect
        if self.modifiers.declared_retry(call, callee, view) and effect is None:
            self._tried_again.append((call, callee))
        timeout = call.model.timeout or callee.timeout
        if timeout is not None:
            spec["timeout"] = self.expressions.of_type(timeout, (*call.loc, "timeout"), view, TEXT)
        return callee.returns

    def _check_triggers(self, flow: Definition, call: Call) -> None:
        """Refuse to run a flow with triggers, which wait at the top level of an execution."""
        triggered = next((step for step in flow.steps if step.trigger is not None), None)
        if triggered is not None:
            message = f"{flow.id!r} cannot run as a step: {triggered.id!r} in it has a 'trigger'"
            hint = "triggers work at the top of an execution: start one with 'background: true'"
            self.report.at("E208", message, (*call.loc, call.action), hint)

    def check_retries(self, effect: Callable[[Definition], str]) -> None:
        """Refuse retries of flows that must not be repeated, once all flows are compiled."""
        for call, callee in self._tried_again:
            retry = call.model.retry or callee.retry
            assert retry is not None
            assert callee.flow is not None
            if retry.attempts > 1 and effect(callee.flow) == "once":
                message = f"{call.name} is retried, but {callee.flow.id!r} must not be: "
                message += "the effect of a step in it is once"
                hint = "set 'effect: idempotent' there, or here, if it may be repeated"
                loc = retry.loc if call.model.retry is not None else call.loc
                self.report.at("E404", message, loc, hint, key=True)

    def arguments(self, call: Call, view: VisibleNames) -> Arguments:
        """Return the compiled arguments of a call."""
        loc, given = (*call.loc, "with"), call.model.with_
        if isinstance(given, str):
            return Arguments({}, self.expressions.value(given, loc, view))
        named = {n: self.expressions.value(data, (*loc, n), view) for n, data in given.items()}
        return Arguments(named)

    def _check_question(self, call: Call, callee: Callee) -> None:
        if callee.kind == "std" and call.given == ASK:
            message = "a question cannot be asked here"
            self.report.at("E103", message, (*call.loc, call.action), "call another tool")

    def _mark(self, call: Call) -> Mark:
        """Return the properties of a generated flow's step that the language cannot express."""
        generated = self.model.generated
        return (generated and generated.marks.get(call.id)) or Mark()

    def _tools_of(self, call: Call) -> Tools:
        """Return the tools that names in a step refer to, which differ for generated flows."""
        generated = self.model.generated
        home: Any = None if generated is None else generated.homes.get(call.id)
        return self.tools if home is None else self.tools.of_file(home.file)

    def _look_at_rules(self, call: Call, callee: Callee) -> None:
        """Write the rules that may apply to the call. With any rule, an approval is possible."""
        spec = call.spec
        rules = self._rules(spec["tool"], call, callee, spec.get("declared", ""))
        if rules:
            spec["rules"] = rules
        if callee.approval is None and (rules or self._mark(call).asks):
            fields = asked_before_call(self.expressions, AskBeforeCall(), self.tools.view)
            assert fields is not None
            version = constant(digest([callee.kind, callee.task]))
            callee.approval = {**fields, "when": constant(False), "version": version}

    def _rules(
        self, tool: str, call: Call, callee: Callee, declared: str = ""
    ) -> list[list[RuleSpec]]:
        """Return the rules that may apply to a call."""
        uses = [typed.value for typed in callee.environments.values()]
        names = [*environment_uses.names(uses), *filter(None, [callee.task.get("in")])]
        caller = str(self._mark(call).keys.get("caller", ""))
        effect = self.modifiers.effect(call, callee)
        also = callee.step_kind.names(callee.task)
        agent = caller.rpartition(".")[2]
        called = Called(tool, callee.kind, effect, names, agent, also, declared)
        return self._rules_of(call).of_call(called)

    def _rules_of(self, call: Call) -> CallRules:
        """Return the rules of the files around a step."""
        tools = self._tools_of(call)
        return self._of_files.setdefault(tools, CallRules(tools.scope))

    def _look_at_inline(self, call: Call, callee: Callee) -> None:
        """Write the rules that may apply to a step without a named tool, for the engine."""
        places = callee.step_kind.places
        if "step" not in places:
            return
        tool = callee.step_kind.label(callee.task) or callee.kind
        rules = self._rules(tool, call, callee)
        if rules:
            call.spec["rules"] = rules

    def _ask(self, call: Call, callee: Callee, view: VisibleNames) -> None:
        """Write the approval required before the call."""
        assert callee.approval is not None
        bind = callee.bind or {}
        parts = {
            "tool": constant(call.spec["tool"]),
            "schema": constant(callee.args and without_arguments(callee.args, bind)),
            "returns": constant(callee.returns or None),
            "bind": together(bind),
            **callee.approval,
        }
        # Approving a command in a sandbox does not approve it on the host.
        uses = [typed.value for typed in callee.environments.values()]
        if places := [*filter(None, [callee.task.get("in")]), *environment_uses.places(uses)]:
            parts["version"] = constant(digest([parts["version"].value[1], *places]))
        if callee.offered is not None:
            offered, loc = self._mark(call).offered, (*call.loc, call.action)
            assert offered is not None
            version = f"{parts['version'].value[1]} {offered['digest']}"
            parts["schema"] = callee.offered["schema"]
            parts["version"] = self.expressions.value(version, loc, view)
            if "tool" in offered:
                tool = f"{call.given}.{offered['tool']}"
                parts["tool"] = self.expressions.value(tool, loc, view)
        call.spec["approval"] = together(parts).value

    def _approved(self, call: Call, view: VisibleNames) -> TypedValue:
        """Return the expression for the approved arguments, which may include edits."""
        seen = view.having({"args": UNKNOWN})
        number = self.expressions.add("args", seen, (*call.loc, call.action))
        return TypedValue(["expr", number], UNKNOWN)

    def _input(
        self,
        call: Call,
        callee: Callee,
        given: Arguments,
        view: VisibleNames,
    ) -> None:
        """Write the input of a task: its arguments and its configuration."""
        spec = call.spec
        bind = callee.bind or {}
        plain = {name: typed for name, typed in bind.items() if not holds_secret(typed.value)}
        if callee.input is not None:
            spec["input"] = callee.input.value
        else:
            taken = given.having({}, bind)
            if callee.approval is not None:
                taken = self._approved(call, view)
            parts = {"args": taken}
            if bind:
                parts["bind"] = together(bind)
            if callee.offered is not None:
                settings = {k: value for k, value in callee.offered.items() if k != "schema"}
                parts["offered"] = together(settings)
            if callee.configuration is not None:
                parts["configuration"] = callee.configuration
            spec["input"] = together(parts).value
        if callee.key is not None:
            spec["key"] = callee.key
        configured = callee.input is not None or callee.configuration is not None
        limited = callee.limits is not None and "calls" in callee.limits
        if callee.key is not None or configured or callee.approval is not None or limited:
            spec["args"] = given.having(plain, bind).value
        if callee.environments:
            give(spec, spec["input"], callee.environments)

    def _with_environments(self, call: Call, callee: Callee, view: VisibleNames) -> Callee:
        """Return a callee with the environments that the step passes to it."""
        tools = self._tools_of(call)
        find = tools.environments.use
        changed = replace(callee, environments=dict(callee.environments))
        for name in self._mark(call).servers:
            server = self.tools.server(name, (*call.loc, call.action))
            for session in server.environments.values() if server is not None else ():
                changed.environments[name] = session
        for name, use in (call.model.environments or {}).items():
            used = find(use, (*call.loc, "environments"), view)
            if used is not None:
                changed.environments[name] = used
        take_named(tools.environments, changed, call.model.environments or {}, call.loc)
        if callee.step_kind.takes_arguments:
            named = call.model.environments or {}
            taken: list[str] = []
            if call.action != "call" or not callee.declared:
                environments = self.tools.environments
                arguments = call.model.with_ if isinstance(call.model.with_, dict) else {}
                taken = inject(environments, changed, named, arguments, call.loc)
            changed.hide([*named, *taken])
        if call.action == "call" and call.model.in_ is not None:
            self._called_in(call, changed, view)
        return changed

    def _called_in(self, call: Call, callee: Callee, view: VisibleNames) -> None:
        """Set the environment in which a tool runs its command, as the step requires."""
        assert call.model.in_ is not None
        loc = (*call.loc, "in")
        if not callee.step_kind.in_environment:
            message = f"the tool {call.given!r} runs no command, so it takes no 'in'"
            self.report.at("E103", message, loc, "give it 'environments'", key=True)
            return
        callee.environments.pop(callee.task["in"], None)
        self._tools_of(call).environments.work_in(callee, call.model.in_, loc, view)

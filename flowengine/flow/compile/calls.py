"""Steps that make calls: of tools, step kinds and flows. See docs/language.md: call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flowengine.flow.compile.arguments import Arguments
from flowengine.flow.compile.call_modifiers import CallModifiers, CallRequest
from flowengine.flow.compile.callee import Callee, Home
from flowengine.flow.compile.environments import give
from flowengine.flow.compile.expressions import Expressions, TypedValue, constant, together
from flowengine.flow.compile.offered_environments import inject, take_named
from flowengine.flow.compile.policies import Policies
from flowengine.flow.compile.questions import asked_before_call
from flowengine.flow.compile.step_kinds import configuration_and_arguments
from flowengine.flow.compile.tools import Tools
from flowengine.flow.compile.types import TEXT, UNKNOWN, Schema, VisibleNames, closed
from flowengine.flow.loading.files import Definition
from flowengine.flow.models import AskBeforeCall, Loc
from flowengine.flow.models.kinds import ASK
from flowengine.flow.source.diagnostics import DiagnosticReporter
from flowengine.kernel.graph import environment_uses
from flowengine.kernel.graph.compiled import Plain, digest, holds_secret
from flowengine.kernel.graph.rules import Called
from flowengine.kernel.graph.specs import RuleSpec, StepSpec
from flowengine.sdk.argument_schemas import without_arguments
from flowengine.sdk.generated_flows import Mark, Offered


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
        self.policies = Policies(tools.scope)
        self._policies = {tools: self.policies}
        """Policies of the files whose tools are called."""
        self.flows: list[tuple[StepSpec, Definition]] = []
        """The steps that run a flow, each with the flow."""
        self.handed_on: list[tuple[StepSpec, Definition, CallRequest]] = []
        """Those that run a generated flow, which may receive inputs of this flow."""
        self._tried_again: list[tuple[CallRequest, Callee]] = []
        """Calls with a retry."""

    def write(self, spec: StepSpec, request: CallRequest, view: VisibleNames) -> Schema:
        """Write a task, or a subflow.

        Args:
            spec: The step to write into.
            request: The target and its arguments.
            view: The names that its expressions see.

        Returns:
            The type of the result.
        """
        given = self.arguments(request, view)
        loc = (*request.loc, request.action)
        name = request.given if request.action == "call" else request.action
        mark, tools = self._mark(request), self._tools_of(request)
        if mark.offered is not None and mark.offered.tool:
            callee = tools.server(request.given, loc)
            spec["tool"] = f"{request.given}.*"
        elif request.action == "call":
            callee = tools.find(request.given, loc)
            spec["tool"] = mark.tool or str(request.given)
            if mark.tool and mark.tool != request.given:
                spec["declared"] = str(request.given)
        elif request.action == "flow":
            callee = tools.of_flow(request.given, loc)
            name = request.given if callee is None or callee.flow is None else callee.flow.id
        else:
            callee = tools.kinds.compile(request.action, request.given, loc, view, in_=request.in_)
        spec["action"] = "task"
        spec["effect"] = "once"
        if callee is None:
            return UNKNOWN
        if mark.offered is not None:
            callee = replace(callee, offered=self._offered(mark.offered, request, view))
        if callee.home is None and tools is not self.tools:
            home = Home(tools.expressions, tools.view, tools.model.defaults)
            callee = replace(callee, home=home)
        self._check_question(request, callee)
        callee = self._with_environments(request, callee, view)
        self.tools.check_arguments(callee, given, request.loc, str(name))
        if request.action == "call":
            self._look_at_policies(spec, request, callee)
        if callee.approval is not None:
            self._ask(spec, request, callee, view)
        self._write_about(spec, request, view)
        if callee.flow is not None:
            return self._flow(spec, request, callee, given, view)
        self._task(spec, request, callee, given, view)
        if request.action != "call":
            self._look_at_inline(spec, request, callee)
        return callee.returns

    def _task(
        self,
        spec: StepSpec,
        request: CallRequest,
        callee: Callee,
        given: Arguments,
        view: VisibleNames,
    ) -> None:
        spec["kind"], spec["task"] = callee.kind, callee.task
        mark = self._mark(request)
        limited = callee.limits is not None and "calls" in callee.limits
        asks = callee.approval is not None or "policies" in spec
        if "tool" in spec and (mark.caller or asks or limited):
            spec["counts"] = callee.identity or digest([callee.kind, callee.task.get("tool")])
            if mark.caller_limit is not None:
                spec["caller_limit"] = [*mark.caller_limit]
        if callee.meters is not None:
            spec["meters"] = callee.meters
        if callee.reads:
            spec["reads"] = callee.reads
            self._check_reads(callee, (*request.loc, request.action))
        if callee.step_kind.may_start_agents and (rules := self._policies_of(request).within()):
            spec["within"] = rules
        self._input(spec, request, callee, given, view)
        self.modifiers.write(spec, request, callee, view)

    def _flow(
        self,
        spec: StepSpec,
        request: CallRequest,
        callee: Callee,
        given: Arguments,
        view: VisibleNames,
    ) -> Schema:
        """Write a step that runs a flow, or starts an execution of it."""
        assert callee.flow is not None
        if request.needs:
            message = f"{request.name} takes no 'needs': it runs a flow of several steps"
            hint = "write it in the tools of the agent, or in the steps of the flow"
            self.report.at("E103", message, (*request.loc, "needs"), hint, key=True)
        self.flows.append((spec, callee.flow))
        spec["kind"] = "flow"
        bind = callee.bind or {}
        arguments = given.having(bind, bind)
        if callee.flow.generated is not None:
            inputs = {**callee.given, **self._inputs(request, view)}
            if callee.approval is not None:
                approved = self._approved(request, view)
                spec["input"] = together({"_args": approved, **inputs}).value
            else:
                arguments = together({"_args": arguments, **inputs})
            spec["kind"] = callee.kind
            spec["raises"] = dict(callee.step_kind.raises)
            self.handed_on.append((spec, callee.flow, request))
        values = arguments.value
        if request.detach and callee.approval is not None:
            spec["args"], values = values, self._approved(request, view).value
        if request.detach:
            # The new execution's id is derived from this one's and the address, so it starts only
            # once.
            spec["input"], spec["task"], spec["effect"] = values, {}, "idempotent"
            self.modifiers.declared_retry(spec, request, callee, view)
            return closed({"execution_id": TEXT})
        spec["action"], spec["args"] = "flow", values
        del spec["effect"]  # the effect is that of its steps
        self._check_triggers(callee.flow, request)
        effect = request.effect or callee.effect
        if self.modifiers.declared_retry(spec, request, callee, view) and effect is None:
            self._tried_again.append((request, callee))
        timeout = request.timeout or callee.timeout
        if timeout is not None:
            self.modifiers.timeout(spec, timeout, (*request.loc, "timeout"), view, self.expressions)
        return callee.returns

    def _inputs(self, request: CallRequest, view: VisibleNames) -> dict[str, TypedValue]:
        """Return the inputs of a generated flow that another one runs, besides the arguments."""
        loc = (*request.loc, request.action)
        inputs = self._mark(request).inputs.items()
        return {name: self.expressions.value(one, loc, view) for name, one in inputs}

    def _check_triggers(self, flow: Definition, request: CallRequest) -> None:
        """Refuse to run a flow with triggers, which wait at the top level of an execution."""
        triggered = next((step for step in flow.steps if step.trigger is not None), None)
        if triggered is not None:
            message = f"{flow.id!r} cannot run as a step: {triggered.id!r} in it has a 'trigger'"
            hint = "triggers work at the top of an execution: start one with 'detach: true'"
            self.report.at("E208", message, (*request.loc, request.action), hint)

    def check_retries(self, effect: Callable[[Definition], str]) -> None:
        """Refuse retries of flows that must not be repeated, once all flows are compiled."""
        for request, callee in self._tried_again:
            retry = request.retry or callee.retry
            assert retry is not None
            assert callee.flow is not None
            if retry.attempts > 1 and effect(callee.flow) == "once":
                message = f"{request.name} is retried, but {callee.flow.id!r} must not be: "
                message += "the effect of a step in it is once"
                hint = "set 'effect: idempotent' there, or here, if it may be repeated"
                loc = retry.loc if request.retry is not None else request.loc
                self.report.at("E404", message, loc, hint, key=True)

    def arguments(self, request: CallRequest, view: VisibleNames) -> Arguments:
        """Return the compiled arguments of a call."""
        loc, given = (*request.loc, "with"), request.with_
        if isinstance(given, str):
            return Arguments({}, self.expressions.value(given, loc, view))
        named = {n: self.expressions.value(data, (*loc, n), view) for n, data in given.items()}
        return Arguments(named)

    def _check_question(self, request: CallRequest, callee: Callee) -> None:
        if callee.kind == "std" and request.given == ASK:
            message = "a question cannot be asked here"
            self.report.at("E103", message, (*request.loc, request.action), "call another tool")

    def _mark(self, request: CallRequest) -> Mark:
        """Return the properties of a generated flow's step that the language cannot express."""
        generated = self.model.generated
        return (generated and generated.marks.get(request.step)) or Mark()

    def _tools_of(self, request: CallRequest) -> Tools:
        """Return the tools that names in a step refer to, which differ for generated flows."""
        generated = self.model.generated
        home: Any = None if generated is None else generated.homes.get(request.step)
        return self.tools if home is None else self.tools.of_file(home.file)

    def _offered(
        self, offered: Offered, request: CallRequest, view: VisibleNames
    ) -> dict[str, TypedValue]:
        """Compile the properties of an offered tool of a server."""
        loc = (*request.loc, request.action)
        texts = {name: text for name, text in offered._asdict().items() if text}
        return {name: self.expressions.value(text, loc, view) for name, text in texts.items()}

    def _check_reads(self, callee: Callee, loc: Loc) -> None:
        """Record the use of state, and report undeclared keys."""
        model = self.model
        self.expressions.used["state"].update(callee.reads)
        for key in callee.reads:
            if key not in model.state and (*model.loc, "state", key) not in model.unread:
                hint = f"declare it: 'state: {{{key}: ...}}'"
                message = f"{callee.kind!r} reads state.{key}, which this flow does not have"
                self.report.at("E301", message, loc, hint, key=True)

    def _look_at_policies(self, spec: StepSpec, request: CallRequest, callee: Callee) -> None:
        """Write the rules that may apply to the call. With any rule, an approval is possible."""
        rules = self._rules(spec["tool"], request, callee, spec.get("declared", ""))
        if not rules:
            return
        spec["policies"] = rules
        if callee.approval is None:
            fields = asked_before_call(self.expressions, AskBeforeCall(), self.tools.view)
            assert fields is not None
            version = constant(digest([callee.kind, callee.task]))
            callee.approval = {**fields, "when": constant(False), "version": version}

    def _rules(
        self, tool: str, request: CallRequest, callee: Callee, declared: str = ""
    ) -> list[list[RuleSpec]]:
        """Return the rules that may apply to a call."""
        uses = [typed.value for typed in callee.environments.values()]
        names = [*environment_uses.names(uses), *filter(None, [callee.task.get("in")])]
        caller, effect = self._mark(request).caller, self.modifiers.effect(request, callee)
        also = callee.step_kind.names(callee.task)
        agent = caller.rpartition(".")[2]
        call = Called(tool, callee.kind, effect, names, agent, also, declared)
        return self._policies_of(request).of_call(call)

    def _policies_of(self, request: CallRequest) -> Policies:
        """Return the rules of the files around a step."""
        tools = self._tools_of(request)
        return self._policies.setdefault(tools, Policies(tools.scope))

    def _look_at_inline(self, spec: StepSpec, request: CallRequest, callee: Callee) -> None:
        """Write the rules that may apply to a step without a named tool, for the engine."""
        places = callee.step_kind.places
        if "step" not in places:
            return
        tool = callee.step_kind.label(callee.task) or callee.kind
        rules = self._rules(tool, request, callee)
        if rules:
            spec["policies"] = rules

    def _ask(
        self, spec: StepSpec, request: CallRequest, callee: Callee, view: VisibleNames
    ) -> None:
        """Write the approval required before the call."""
        assert callee.approval is not None
        bind = callee.bind or {}
        parts = {
            "tool": constant(spec["tool"]),
            "schema": constant(callee.args and without_arguments(callee.args, bind)),
            "returns": constant(callee.returns or None),
            "bind": together(bind),
            **callee.approval,
        }
        if places := _places(callee):
            parts["version"] = constant(digest([parts["version"].value[1], *places]))
        if callee.offered is not None:
            offered, loc = self._mark(request).offered, (*request.loc, request.action)
            assert offered is not None
            version = f"{parts['version'].value[1]} {offered.digest}"
            parts["schema"] = callee.offered["schema"]
            parts["version"] = self.expressions.value(version, loc, view)
            if offered.tool:
                tool = f"{request.given}.{offered.tool}"
                parts["tool"] = self.expressions.value(tool, loc, view)
        spec["approval"] = together(parts).value

    def _write_about(self, spec: StepSpec, request: CallRequest, view: VisibleNames) -> None:
        """Write the context that approvers of the call see."""
        about, loc = self._mark(request).about, (*request.loc, request.action)
        if about:
            parts = {
                name: self.expressions.value(value, loc, view) for name, value in about.items()
            }
            spec["about"] = together(parts).value

    def _approved(self, request: CallRequest, view: VisibleNames) -> TypedValue:
        """Return the expression for the approved arguments, which may include edits."""
        seen = view.having({"args": UNKNOWN})
        number = self.expressions.add("args", seen, (*request.loc, request.action))
        return TypedValue(["expr", number], UNKNOWN)

    def _input(
        self,
        spec: StepSpec,
        request: CallRequest,
        callee: Callee,
        given: Arguments,
        view: VisibleNames,
    ) -> None:
        """Write the input of a task: its arguments and its configuration."""
        bind = callee.bind or {}
        plain = {name: typed for name, typed in bind.items() if not holds_secret(typed.value)}
        if callee.input is not None:
            spec["input"] = callee.input.value
        else:
            taken = given.having({}, bind)
            if callee.approval is not None:
                taken = self._approved(request, view)
            parts = {"args": taken}
            if bind:
                parts["bind"] = together(bind)
            if callee.offered is not None:
                settings = {k: value for k, value in callee.offered.items() if k != "schema"}
                parts["offered"] = together(settings)
            spec["input"] = configuration_and_arguments(callee, parts).value
        if callee.key is not None:
            spec["key"] = callee.key
        configured = callee.input is not None or callee.configuration is not None
        limited = callee.limits is not None and "calls" in callee.limits
        if callee.key is not None or configured or callee.approval is not None or limited:
            spec["args"] = given.having(plain, bind).value
        if callee.environments:
            give(spec, spec["input"], callee.environments)

    def _with_environments(
        self, request: CallRequest, callee: Callee, view: VisibleNames
    ) -> Callee:
        """Return a callee with the environments that the step passes to it."""
        tools = self._tools_of(request)
        find = tools.environments.use
        changed = replace(callee, environments=dict(callee.environments))
        for name in self._mark(request).servers:
            server = self.tools.server(name, (*request.loc, request.action))
            for session in server.environments.values() if server is not None else ():
                changed.environments[name] = session
        for name, use in (request.environments or {}).items():
            used = find(use, (*request.loc, "environments"), view)
            if used is not None:
                changed.environments[name] = used
        take_named(tools.environments, changed, request.environments or {}, request.loc)
        if callee.step_kind.takes_arguments:
            named = request.environments or {}
            taken: list[str] = []
            if request.action != "call" or not callee.declared:
                environments = self.tools.environments
                arguments = request.with_ if isinstance(request.with_, dict) else {}
                taken = inject(environments, changed, named, arguments, request.loc)
            changed.hide([*named, *taken])
        if request.action == "call" and request.in_ is not None:
            self._called_in(request, changed, view)
        return changed

    def _called_in(self, request: CallRequest, callee: Callee, view: VisibleNames) -> None:
        """Set the environment in which a tool runs its command, as the step requires."""
        assert request.in_ is not None
        loc = (*request.loc, "in")
        if not callee.step_kind.in_environment:
            message = f"the tool {request.given!r} runs no command, so it takes no 'in'"
            self.report.at("E103", message, loc, "give it 'environments'", key=True)
            return
        callee.environments.pop(callee.task["in"], None)
        self._tools_of(request).environments.work_in(callee, request.in_, loc, view)


def _places(callee: Callee) -> list[Plain]:
    """Return the environments in which a call acts, empty if it acts in this process only.

    They are part of the approval: approving a command in a sandbox does not approve it on the host.
    """
    uses = [typed.value for typed in callee.environments.values()]
    return [*filter(None, [callee.task.get("in")]), *environment_uses.places(uses)]

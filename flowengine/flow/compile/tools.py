"""Tools: the compiled form of a declaration, and the resolution of a name in a call.

See docs/language.md: call, run, tools.

A call of a declared tool becomes a task of the tool's kind. Fixed values are constants, and values
that depend on the call are expressions over `args`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from flowengine import registry
from flowengine.flow.compile.arguments import Arguments, check_arguments
from flowengine.flow.compile.callee import Callee, Hinted, Home
from flowengine.flow.compile.environments import EnvironmentDeclarations
from flowengine.flow.compile.expressions import NO_HOST, TypedValue, constant
from flowengine.flow.compile.offered_environments import inject, take_named
from flowengine.flow.compile.questions import asked_before_call
from flowengine.flow.compile.scopes import DeclarationScope, base_of
from flowengine.flow.compile.step_kinds import StepKinds
from flowengine.flow.compile.types import CALLS, UNKNOWN, Schema, VisibleNames
from flowengine.flow.expressions.types import Note
from flowengine.flow.loading.files import Definition, FlowFile, known_names
from flowengine.flow.models import AskBeforeCall, Compensation, Loc, Step, Tool
from flowengine.flow.models.kinds import brought_tools, idempotent_if, takes_arguments, tools_of
from flowengine.flow.models.tool import Server
from flowengine.flow.source.diagnostics import DiagnosticReporter
from flowengine.kernel.graph.compiled import Plain, digest, holds_secret
from flowengine.sdk.python.imported_modules import may_use_folder
from flowengine.sdk.python.live_signature import Signature
from flowengine.sdk.python.signature import signature_of, type_schema
from flowengine.sdk.steps.step_kind import SignatureError
from flowengine.sdk.steps.step_kind import Tool as BroughtTool
from flowengine.sdk.texts.near_words import did_you_mean
from flowengine.sdk.values.argument_schemas import described_arguments


def check_offered(
    report: DiagnosticReporter, server: Server, tool: str, name: str, loc: Loc
) -> bool:
    """Return whether a flow may call a tool of a server, and report the reason otherwise.

    Args:
        report: Of the file that calls it.
        server: The server.
        tool: The tool's name on the server, empty if none is named.
        name: The name in the call.
        loc: Its place.
    """
    if not tool:
        hint = f"name one of its tools: {name}.TOOL"
        report.at("E401", f"{name!r} is a server of tools, not a tool", loc, hint)
        return False
    chosen = server.include
    if chosen is not None and not _fits(tool, chosen):
        message = f"the tool {tool!r} is not among those in 'include'"
        report.at("E401", message, loc, f"'include' has {', '.join(chosen)}")
        return False
    if _fits(tool, server.exclude):
        message = f"the tool {tool!r} is ruled out by 'exclude'"
        report.at("E401", message, loc, f"'exclude' has {', '.join(server.exclude)}")
        return False
    return True


def _fits(tool: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(tool, pattern) for pattern in patterns)


BOUND_SECRET = (
    "no expression sees it: name the secret itself, '${{ secrets.NAME }}', in shell.env, or in "
    "url, headers, query or auth of http"
)
NO_INPUT = "declare it under 'secrets' of the flow's own file, and name it where it is used"
_OF_A_CALL = ("args", "returns", "idempotency_key", "limits", "preview", "needs")
"""Keys that are only valid for a tool with a single call."""


class Tools:
    """The tools of a file, as one flow uses them.

    Args:
        scope: The names that declarations of the file see.
        environments: The environments of the file.
    """

    def __init__(self, scope: DeclarationScope, environments: EnvironmentDeclarations) -> None:
        self.scope = scope
        self.environments = environments
        self.file = scope.file
        self.model = scope.model
        self.expressions = scope.expressions
        self.report = scope.report
        self.others = scope.others
        self.view = scope.view
        self.kinds = StepKinds(scope, environments)
        self.used: set[str] = set()
        """The tools that are called, including servers themselves."""
        self._beside: dict[FlowFile, Tools] = {}
        self._declared: dict[tuple[str, str], Callee | None] = {}

    # Lookup

    def find(self, name: str, loc: Loc, words: Sequence[str] = ()) -> Callee | None:
        """Return the target of a call, or None if it was reported.

        Args:
            name: A declared tool, `alias.tool` of an import, or `kind.tool`.
            loc: Its place.
            words: Words that are accepted in place of a tool.

        Returns:
            The tool, compiled.
        """
        owner = self.others.files.owner(self.file, "tools", name, loc)
        self.used.add(name)
        if owner is None:
            return None
        file, inner = owner
        server_name, _, tool = inner.partition(".")
        declared = file.model.tools.get(server_name)
        server = None if declared is None else declared.server
        if server is not None:
            self.used.add(name.removesuffix(f".{tool}"))
            if not check_offered(self.report, server, tool, name, loc):
                return None
            inner = server_name
        if inner in file.model.tools:
            return self._declared_in(file, inner, tool, name, loc)
        if ("tools", inner) in file.model.unread:
            return None
        kind, dot, tool = name.partition(".")
        brought = tools_of(kind) if dot and file is self.file else {}
        if tool in brought:
            return self._brought(kind, tool, brought[tool], loc)
        known = [*words, *known_names(self.file, "tools"), *brought_tools()]
        instead = f"use {' or '.join(map(repr, words))}, or " if words else ""
        hint = did_you_mean(name, known) or f"{instead}declare it under 'tools'"
        self.report.at("E401", f"there is no tool {name!r}", loc, hint)
        return None

    def server(self, name: str, loc: Loc) -> Callee | None:
        """Return the callee shared by all tools of a server, or None if it was reported.

        Args:
            name: A declared tool that is a server, or `alias.tool` of an import, which may belong
                to an import of that file.
            loc: Its place.
        """
        file, inner = self.file, name
        self.used.add(name)
        while "." in inner:
            owner = self.others.files.owner(file, "tools", inner, loc)
            if owner is None or owner[0] is file:
                return None
            file, inner = owner
        return self._declared_in(file, inner, "", name, loc)

    def _declared_in(
        self, file: FlowFile, inner: str, tool: str, name: str, loc: Loc
    ) -> Callee | None:
        """Return a declared tool of any file, whose inputs this flow must have."""
        callee = self.of_file(file).declared(inner, tool)
        if callee is not None and callee.names_inputs and not self.scope.sees_inputs_of(file):
            self.scope.refuse_inputs(file, file.model.tools[inner], name, loc)
        return callee

    def _brought(self, kind: str, name: str, tool: BroughtTool, loc: Loc) -> Callee | None:
        """Return a tool of a step kind."""
        task: dict[str, Plain] = {"tool": name, "schema": tool["args"]}
        if not may_use_folder():
            task["folder"] = False
        step_kind = registry.kind_class(kind)
        effect = tool["effect"]
        callee = Callee(kind, task, tool["returns"], tool["args"], step_kind, effect=effect)
        kind_of_place = tool.get("environment")
        if kind_of_place is not None:
            callee.opens[kind_of_place] = kind_of_place
            self._open(callee, kind_of_place, kind_of_place, loc)
        optional = tool.get("optional", False)
        callee.hinted = {
            place: Hinted([*classes], required=not optional, only_named=optional)
            for place, classes in tool.get("environments", {}).items()
        }
        callee.declared = False
        return callee

    def _open(self, callee: Callee, name: str, kind: str, loc: Loc) -> None:
        """Add an environment that is opened without being declared."""
        used = self.environments.of_kind(kind, loc)
        if used is not None:
            callee.environments[name] = used

    def of_flow(self, name: str, loc: Loc) -> Callee | None:
        """Return a flow as a callee, or None after reporting that it does not exist.

        Args:
            name: As written in the file.
            loc: Its place.
        """
        flow = self.others.find(self.file, name, loc)
        if flow is None:
            return None
        return Callee("flow", {}, self.others.outputs(flow), arguments_of(flow), flow=flow)

    def of_file(self, file: FlowFile) -> Tools:
        """Return the tools of a file, for the flow that uses these."""
        if file is self.file:
            return self
        if file not in self._beside:
            environments = self.environments.of_file(file)
            self._beside[file] = Tools(environments.scope, environments)
        return self._beside[file]

    def declared(self, name: str, tool: str = "") -> Callee | None:
        """Return a declared tool of this file, or None if errors were reported.

        Args:
            name: The name of the tool.
            tool: For a server, the name of its tool.
        """
        if (name, tool) not in self._declared:
            with self.scope.noting_inputs() as named:
                callee = self._declared[name, tool] = self._declaration(name, tool)
            if callee is not None:
                callee.names_inputs = bool(named)
                if self.file is not self.scope.user.file:
                    callee.home = Home(self.expressions, self.view, self.model.defaults)
        return self._declared[name, tool]

    def _declaration(self, name: str, tool: str) -> Callee | None:
        model = self.model.tools[name]
        if model.flow is not None:
            return self._flow(model, model.flow)
        server = model.server
        if server is not None:
            return self._server(name, model, server, tool)
        if not model.kinds:
            return None
        kind, config = next(iter(model.kinds.items()))
        args = self._with_bound(model, kind)
        bind = self._bound(model)
        view = self._seeing_arguments(args, bind)
        callee = self.kinds.compile(kind, config, (*model.loc, kind), view, args=args)
        if callee is None:
            return None
        callee.bind = bind
        if callee.flow is not None:
            hint = "its arguments and result are those of its target"
            keys = ("environments", *_OF_A_CALL)
            self._has_none(model, f"a tool that is an {kind}", keys, hint)
            refuse_crash_keys(self.report, model, model.loc, f"a tool that is an {kind}")
            self._describe(callee, model)
            return callee
        if model.returns is not None:
            callee.returns = callee.task["returns"] = model.returns
        self._environments(callee, model)
        self._describe(callee, model)
        callee.address = callee.step_kind.address(config) if isinstance(config, dict) else None
        chosen = callee.chosen_host()
        works_in_environment = bool(callee.hinted or callee.environments)
        if chosen is not None and callee.has_secret and not works_in_environment:
            message = f"'{chosen}' decides which server is sent a secret"
            self.report.at("E410", message, (*(*model.loc, kind), "url"), NO_HOST)
        return callee

    def _environments(self, callee: Callee, model: Tool) -> None:
        """Add the environments of a tool."""
        for name, use in (model.environments or {}).items():
            view = self.view.having({"args": callee.args or UNKNOWN})
            used = self.environments.use(use, (*model.loc, "environments"), view, by_tool=True)
            if used is not None:
                callee.environments[name] = used
        if callee.step_kind.takes_arguments:
            named = model.environments or {}
            taken = inject(self.environments, callee, named, model.with_, model.loc, by_tool=True)
            callee.hide([*named, *taken])
        take_named(self.environments, callee, model.environments or {}, model.loc)
        for name, kind in callee.opens.items():
            if name not in callee.environments:
                self._open(callee, name, kind, model.loc)

    def _flow(self, model: Tool, name: str) -> Callee | None:
        """Return a flow in the form of a tool."""
        callee = self.of_flow(name, (*model.loc, "flow"))
        if callee is None:
            return None
        hint = "its arguments and result are the inputs and outputs of the flow"
        self._has_none(model, "a tool that is a flow", _OF_A_CALL, hint)
        refuse_crash_keys(self.report, model, model.loc, "a tool that is a flow")
        self._describe(callee, model)
        for argument, typed in (callee.bind or {}).items():
            loc = (*model.loc, "with", argument)
            if typed.value[0] == "secret":
                self.report.at("E403", "a secret cannot be an input of a flow", loc, NO_INPUT)
            elif argument not in (callee.args or {}).get("properties", {}):
                self.report.at("E402", f"the flow has no input {argument!r}", loc, key=True)
        return callee

    def _server(self, name: str, model: Tool, server: Server, tool: str) -> Callee | None:
        """Return a tool of a server: a call in the session with the server."""
        hint = "the server defines the arguments and results of its tools"
        keys = ("args", "returns", "idempotency_key", "environments")
        self._has_none(model, "a tool that is a server", keys, hint)
        session = self.environments.session(name, model, server)
        if session is None:
            return None
        place = f"tools.{name}"
        callee = Callee(server.kind, {"server": place, "tool": tool}, UNKNOWN)
        callee.step_kind = registry.kind_class(server.kind)
        callee.environments[place] = session
        self._describe(callee, model)
        return callee

    def _has_none(self, model: Tool, what: str, keys: Iterable[str], hint: str) -> None:
        for key in keys:
            if model.has(key):
                message = f"{what} has no {key!r}"
                self.report.at("E103", message, (*model.loc, key), hint, key=True)

    def _describe(self, callee: Callee, model: Tool) -> None:
        """Add the settings of a declaration besides its kind."""
        if callee.bind is None:
            callee.bind = self._bound(model)
        if model.idempotency_key is not None:
            view = self._seeing_arguments(callee.args, callee.bind)
            loc = (*model.loc, "idempotency_key")
            callee.key = self.expressions.value(model.idempotency_key, loc, view).value
        if model.approval is not None:
            callee.approval = self._approval(callee, model, model.approval)
        callee.effect, callee.retry, callee.timeout = model.effect, model.retry, model.timeout
        callee.on_crash, callee.needs = model.on_crash, model.needs
        if model.background is not None:
            bounds = model.background
            callee.background = {"at_once": bounds.max, "total": bounds.count}
        if model.preview is not None:
            callee.preview = self._preview(model.preview, (*model.loc, "preview"))
        callee.identity = _version(callee, model)
        if model.limits is not None:
            limits = {"output": model.limits.output, "calls": model.limits.calls}
            callee.limits = {key: most for key, most in limits.items() if most is not None}

    def _bound(self, model: Tool) -> dict[str, TypedValue]:
        """Return the arguments that the flow fixes."""
        return {
            name: self.expressions.value(data, (*model.loc, "with", name), self.view, secrets=True)
            for name, data in model.with_.items()
        }

    def _seeing_arguments(
        self, args: Schema | None, bind: Mapping[str, TypedValue]
    ) -> VisibleNames:
        """Return the names that the expressions of a tool see: its arguments, without secrets."""
        hidden = {
            f"args.{name}": Note("E403", f"'args.{name}' is bound to a secret", BOUND_SECRET)
            for name, typed in bind.items()
            if holds_secret(typed.value)
        }
        return self.view.having({"args": args or UNKNOWN}, hidden)

    def _approval(
        self, callee: Callee, model: Tool, given: AskBeforeCall
    ) -> dict[str, TypedValue] | None:
        """Return the approval required before a tool is called."""
        known = None if callee.args is None else described_arguments(callee.args)
        for index, name in enumerate(given.edit if isinstance(given.edit, list) else ()):
            loc = (*given.loc, "edit", index)
            if name in model.with_:
                message = f"the tool fixes the argument {name!r} by its own 'with'"
                self.report.at("E103", message, loc, "it cannot be changed, so leave it out")
            elif known is not None and name not in known:
                hint = did_you_mean(name, known)
                self.report.at("E402", f"the tool has no argument {name!r}", loc, hint)
        view = self._seeing_arguments(callee.args, callee.bind or {}).having({"calls": CALLS})
        parts = asked_before_call(self.expressions, given, view, self.scope.notifications(given))
        if parts is None:
            return None
        return {**parts, "version": constant(_version(callee, model))}

    def _preview(self, function: str, loc: Loc) -> dict[str, Plain] | None:
        """Return the function that describes the effect of a call, or None after an error."""
        callee = self.function(function, loc)
        if callee is None:
            return None
        if callee.args is not None and len(callee.args.get("properties", ())) != 1:
            message = f"{function!r} cannot be a preview: it has to take exactly one argument"
            hint = "let it take the arguments of the call as one dict: def preview(args)"
            self.report.at("E402", message, loc, hint)
        return {"function": function, "folder": self.file.folder}

    def function(self, function: str, loc: Loc) -> Signature | None:
        """Return the signature of a function from its source, or None if errors were reported."""
        try:
            signature = signature_of(function, self.file.folder)
        except SignatureError as error:
            self.report.at("E401", error.message, loc, error.hint)
            return None
        self.others.read.update(dict.fromkeys(signature.paths))
        return signature

    def type_schema(self, name: str, loc: Loc) -> Schema:
        """Return the JSON Schema of a Python type from its source, empty after an error."""
        try:
            schema, paths = type_schema(name, self.file.folder)
        except SignatureError as error:
            self.report.at("E401", error.message, loc, error.hint)
            return {}
        self.others.read.update(dict.fromkeys(paths))
        return schema

    def _with_bound(self, model: Tool, kind: str) -> Schema | None:
        """Return the schema of the arguments, including those fixed by the flow.

        A kind that takes arguments knows them itself.
        """
        self.expressions.arguments(model.args, model.loc)
        if model.args is None or takes_arguments(kind, "tool"):
            return model.args
        properties = model.args.get("properties", {})
        bound = {name: UNKNOWN for name in model.with_ if name not in properties}
        return {**model.args, "properties": {**properties, **bound}} if bound else model.args

    def reducer(self, function: str, loc: Loc) -> dict[str, Plain]:
        """Return the compiled form of a reducer written in Python, which must exist."""
        self.function(function, loc)
        return {"python": function, "folder": self.file.folder}

    def check_arguments(self, callee: Callee, given: Arguments, loc: Loc, name: str) -> None:
        """Check the arguments of a call against the schema of a tool (E402).

        Args:
            callee: The tool.
            given: The arguments.
            loc: Place of the call.
            name: The tool's name, for messages.
        """
        if not self.model.left_out((*loc, "with")):
            check_arguments(self.report, callee, given, (*loc, "with"), name)


def arguments_of(flow: Definition) -> Schema:
    """Return the JSON Schema of the inputs of a flow, as one object."""
    required = [name for name, schema in flow.inputs.items() if "default" not in schema]
    known = base_of(flow)["inputs"]
    properties = {**known.get("properties", {}), **flow.inputs}
    return {**known, "type": "object", "properties": properties, "required": required}


def repeating(kind: str | None, where: str = "") -> str:
    """Return the hint for a retry of a call that must not be repeated.

    Args:
        kind: Step kind of the target.
        where: The place for the setting.
    """
    hint = f"set 'effect: idempotent'{where} if it may be repeated"
    condition = idempotent_if(kind or "")
    return f"{hint}; {condition}" if condition else hint


def refuse_crash_keys(
    report: DiagnosticReporter, model: Step | Compensation | Tool, loc: Loc, what: str
) -> None:
    """Refuse keys about a crash where a flow or an agent runs, which continues after it.

    Args:
        report: Reports them.
        model: The step or tool.
        loc: Its place.
        what: Its name in messages.
    """
    for key in ("effect", "on_crash"):
        if model.has(key) and (key == "on_crash" or model.effect == "once"):
            words = key if key == "on_crash" else "effect: once"
            message = (
                f"{what} takes no {words!r}: it continues after a crash, without starting over"
            )
            hint = (
                "declare it in its steps and tools, and 'on_crash' in an agent, for its model calls"
            )
            report.at("E103", message, (*loc, key), hint, key=True)


def _version(callee: Callee, model: Tool) -> str:
    """Return the digest of all settings that determine the effect of a tool's call."""
    flow = None if callee.flow is None else callee.flow.data
    return digest([model.kinds, flow, model.with_, callee.args, callee.returns])

"""Tools: what a declaration, an inline tool or a step kind compiles to (§8.1, §8.2, §10.6).

A call of a declared tool becomes a task of the tool's kind: what the flow fixes is constant, what
depends on the call is a value over `args`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine import registry
from flowengine.errors import FlowEngineError
from flowengine.flow.compile.environments import HOST, Environments
from flowengine.flow.compile.expressions import Expressions, Typed, together
from flowengine.flow.compile.hinted_environments import Hinted, inject
from flowengine.flow.compile.mcp_servers import check_offered, is_server
from flowengine.flow.compile.scopes import base_of
from flowengine.flow.compile.types import TEXT, UNKNOWN, Schema, differs, words
from flowengine.flow.compile.views import View
from flowengine.flow.loading.files import Definition, File, known_names
from flowengine.flow.models import Defaults, Loc, Part, Retry, Tool
from flowengine.flow.models.types import has_expression, is_expression
from flowengine.flow.python.modules import SignatureError
from flowengine.flow.python.signature import Signature, derive
from flowengine.flow.source.diagnostics import did_you_mean
from flowengine.kernel.graph.compiled import Plain, Value
from flowengine.sdk.declared_numbers import floats
from flowengine.validation import SchemaError, Validator

if TYPE_CHECKING:
    from flowengine.flow.compile.program import Program

NO_INPUT = "declare it under 'secrets' of the flow's own file, and name it where it is used"
REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})
"""Methods of HTTP that may be repeated."""
CONSTANT_KEYS = {
    "http": {"accept", "idempotency_header"},
    "shell": {"accept"},
    "run": {"script", "accept", "files"},
}
"""Keys of a configuration that go into the constant part of a task."""
INTERPRETERS = {
    **dict.fromkeys(("sh", "bash", "dash", "zsh", "ksh", "ash", "fish"), r"-[a-z]*c"),
    **dict.fromkeys(("python", "python3", "pypy3"), r"-[A-Za-z]*c"),
    **dict.fromkeys(("node", "deno", "bun", "perl", "ruby", "php"), r"-[a-z]*[eErp]|--eval"),
}
"""Programs that run a text, by what comes before it."""
COMMANDS = frozenset({"run", "shell"})
"""Kinds that run a command in an environment."""
SECRET_KEYS = {"http": {"url", "headers", "query", "auth"}, "shell": {"env"}, "run": {"env"}}
"""Keys of a configuration that may name secrets."""


@dataclass(slots=True)
class Callee:
    """Something that a step can call, compiled."""

    kind: str
    task: dict[str, Plain]
    returns: Schema
    args: Schema | None = None
    """Of what a caller gives, with what the flow fixes; None: not known."""
    input: Typed | None = None
    """Of a kind whose input is its configuration."""
    bind: dict[str, Typed] | None = None
    key: Value | None = None
    effect: str | None = None
    default_effect: str = "once"
    retry: Retry | None = None
    timeout: str | None = None
    environments: dict[str, Typed] = field(default_factory=dict)
    """What it gets, by the names it knows them by."""
    hinted: dict[str, Hinted] = field(default_factory=dict)
    """Parameters of a function that may get an environment by their hint."""
    flow: Definition | None = None
    """The flow that it runs."""
    home: Home | None = None
    """Of a declaration of another file."""
    names_inputs: bool = False
    """It names inputs of the flow of its file."""


class Home(NamedTuple):
    """What a declaration sees that is used in another file than its own."""

    expressions: Expressions
    view: View
    defaults: Defaults


class Tools:
    """The tools of a file, as one flow uses them.

    Args:
        file: The file.
        user: The flow that uses them, of this file or another.
        expressions: Compiles what stands in declarations.
        program: Knows the other flows and files.
    """

    def __init__(
        self, file: File, user: Definition, expressions: Expressions, program: Program
    ) -> None:
        self.file = file
        self.user = user
        self.model = file.model
        self.folder = file.folder
        self.expressions = expressions
        self.report = file.report
        self.program = program
        self.view = View(base_of(file.flow))
        """What declarations see, but for `args`."""
        self.used: set[str] = set()
        """The tools that are called; of a server itself too."""
        self.environments = Environments(self)
        self._beside: dict[File, Tools] = {}
        self._declared: dict[tuple[str, str], Callee | None] = {}
        self._signatures: dict[str, Signature | None] = {}

    # Finding

    def find(self, name: str, loc: Loc) -> Callee | None:
        """Return what a call names; None if that was reported.

        Args:
            name: A declared tool, `alias.tool` of an import, or `kind.tool`.
            loc: Where it is named.

        Returns:
            The tool, compiled.
        """
        owner = self.program.files.owner(self.file, "tools", name, loc)
        self.used.add(name)
        if owner is None:
            return None
        file, inner = owner
        server, _, tool = inner.partition(".")
        if is_server(file.model.tools.get(server)):
            self.used.add(name.removesuffix(f".{tool}"))
            if not check_offered(self.report, file.model.tools[server], tool, name, loc):
                return None
            inner = server
        if inner in file.model.tools:
            callee = self.of_file(file).declared(inner, tool)
            if callee is not None and callee.names_inputs and self.user is not file.flow:
                self.refuse_inputs(file, file.model.tools[inner], name, loc)
            return callee
        if ("tools", inner) in file.model.unread:
            return None
        kind, dot, tool = name.partition(".")
        brought = _brought_by(kind) if dot and file is self.file else {}
        if tool in brought:
            return _built_in(kind, tool, brought[tool])
        known = [*known_names(self.file, "tools"), *(f"std.{one}" for one in _brought_by("std"))]
        hint = did_you_mean(name, known) or "declare it under 'tools'"
        self.report.at("E401", f"there is no tool {name!r}", loc, hint)
        return None

    def of_flow(self, name: str, loc: Loc) -> Callee | None:
        """Return a flow as something to call; None if it was reported that there is none.

        Args:
            name: As it stands in the file.
        """
        flow = self.program.find(self.file, name, loc)
        if flow is None:
            return None
        found = Callee("flow", {}, self.program.outputs(flow), arguments_of(flow), flow=flow)
        return found

    def refuse_inputs(self, file: File, model: Part, name: str, loc: Loc) -> None:
        """Report that a declaration names inputs of a flow that is not the one that uses it.

        Args:
            file: The file of the declaration.
            model: The declaration.
            name: As it is used.
        """
        message = f"{name!r} uses inputs of the flow of its own file, which is not this one"
        hint = "give it arguments instead: declare 'args', and pass them here"
        place = file.report.source.position(model.loc)
        here = self.report.source.position(loc)
        self.report.diagnostics.error(
            "E301", message, here, hint=hint, related=[(place, "it is declared here")]
        )

    def of_file(self, file: File) -> Tools:
        """Return the tools of a file, for the flow that uses these."""
        if file is self.file:
            return self
        if file not in self._beside:
            secrets = {name: self.program.secret(file, name) for name in file.model.secrets}
            expressions = Expressions(file.report, secrets, self.expressions, True)
            self._beside[file] = Tools(file, self.user, expressions, self.program)
        return self._beside[file]

    def eager(self) -> dict[str, Typed]:
        """Return the environments that the flow wants open from its start, by name."""
        found = dict(self.environments.eager)
        for beside in self._beside.values():
            found |= beside.eager()
        return found

    def declared(self, name: str, tool: str = "") -> Callee | None:
        """Return a tool that this file declares; None if it was reported what is wrong with it.

        Args:
            tool: Of a server which of its tools.
        """
        if (name, tool) not in self._declared:
            used = self.expressions.used
            before, used["inputs"] = used["inputs"], set()
            callee = self._declared[name, tool] = self._declaration(name, tool)
            if callee is not None:
                callee.names_inputs = bool(used["inputs"])
                if self.file is not self.user.file:
                    callee.home = Home(self.expressions, self.view, self.model.defaults)
            used["inputs"] |= before
        return self._declared[name, tool]

    def _declaration(self, name: str, tool: str) -> Callee | None:
        model = self.model.tools[name]
        if model.flow is not None:
            return self._flow(model, model.flow)
        if model.mcp is not None:
            return self._server(name, model, tool)
        if not model.kinds:
            return None
        kind, config = next(iter(model.kinds.items()))
        loc = (*model.loc, kind)
        found = Callee(kind, {}, UNKNOWN)
        if kind == "python":
            self._python(found, config, loc, model.args)
        else:
            found.args = self._with_bound(model)
            view = self.view.having({"args": found.args or UNKNOWN, "idempotency_key": TEXT})
            self._configured(found, config, loc, view)
        if model.returns is not None:
            found.returns = found.task["returns"] = model.returns
        self._environments(found, model, kind)
        self._describe(found, model)
        return found

    def _environments(self, found: Callee, model: Tool, kind: str) -> None:
        """Take over what environments a tool gets, and in which one its command runs."""
        for name, use in (model.environments or {}).items():
            view = self.view.having({"args": found.args or UNKNOWN})
            used = self.environments.use(use, (*model.loc, "environments"), view, by_tool=True)
            if used is not None:
                found.environments[name] = used
        if kind == "python":
            named = model.environments or {}
            taken = inject(self.environments, found, named, model.bind, model.loc, by_tool=True)
            hide(found, [*found.environments, *taken])

    def _flow(self, model: Tool, name: str) -> Callee | None:
        """Return what a flow is as a tool."""
        found = self.of_flow(name, (*model.loc, "flow"))
        if found is None:
            return None
        hint = "its arguments and result are the inputs and outputs of the flow"
        self._has_none(model, "a tool that is a flow", ("args", "returns", "idempotency_key"), hint)
        self._describe(found, model)
        for argument, typed in (found.bind or {}).items():
            loc = (*model.loc, "bind", argument)
            if typed.value[0] == "secret":
                self.report.at("E403", "a secret cannot be an input of a flow", loc, NO_INPUT)
            elif argument not in (found.args or {}).get("properties", {}):
                self.report.at("E402", f"the flow has no input {argument!r}", loc, key=True)
        return found

    def _server(self, name: str, model: Tool, tool: str) -> Callee | None:
        """Return what a tool of an MCP server is: a call in the session with the server."""
        hint = "the server says what its tools take and return"
        keys = ("args", "returns", "idempotency_key", "environments")
        self._has_none(model, "a tool that is an MCP server", keys, hint)
        session = self.environments.session(name, model)
        if session is None:
            return None
        place = f"tools.{name}"
        found = Callee("mcp", {"server": place, "tool": tool}, UNKNOWN)
        found.environments[place] = session
        self._describe(found, model)
        return found

    def _has_none(self, model: Tool, what: str, keys: Iterable[str], hint: str) -> None:
        for key in keys:
            if model.has(key):
                message = f"{what} has no {key!r}"
                self.report.at("E103", message, (*model.loc, key), hint, key=True)

    def _describe(self, found: Callee, model: Tool) -> None:
        """Take over what a declaration says besides its kind."""
        found.bind = {
            name: self.expressions.value(data, (*model.loc, "bind", name), self.view, secrets=True)
            for name, data in model.bind.items()
        }
        if model.idempotency_key is not None:
            view = self.view.having({"args": found.args or UNKNOWN})
            loc = (*model.loc, "idempotency_key")
            found.key = self.expressions.value(model.idempotency_key, loc, view).value
        found.effect, found.retry, found.timeout = model.effect, model.retry, model.timeout

    def _with_bound(self, model: Tool) -> Schema | None:
        """Return the schema of the arguments, those fixed by the flow included."""
        if model.args is None:
            return None
        properties = model.args.get("properties", {})
        bound = {name: UNKNOWN for name in model.bind if name not in properties}
        return {**model.args, "properties": {**properties, **bound}} if bound else model.args

    # Kinds

    def inline(
        self, kind: str, config: Any, loc: Loc, view: View, in_: Mapping[str, Any] | None = None
    ) -> Callee:
        """Return what an inline tool or another step kind compiles to.

        Args:
            kind: The step kind.
            config: What stands behind its key, in long form.
            view: What its expressions see.
            in_: The environment in which a command runs, if the step says it.

        Returns:
            The tool, compiled for this one use.
        """
        found = Callee(kind, {}, UNKNOWN)
        if kind == "python":
            self._python(found, config, loc, None)
        else:
            view = view.having({"idempotency_key": TEXT})
            self._configured(found, config, loc, view, in_)
        return found

    def _python(self, found: Callee, config: Any, loc: Loc, args: Schema | None) -> None:
        function = config["function"] if isinstance(config, dict) else str(config)
        found.task = {"function": function, "folder": self.folder}
        found.args = args
        signature = self._signature(function, loc)
        if signature is None:
            return
        found.task["quick"] = signature.quick
        if args is None:
            found.args = signature.args
        required = (signature.args or {}).get("required", ())
        found.hinted = {
            name: Hinted(classes, name in required) for name, classes in signature.classes.items()
        }
        if found.args is not None:
            found.task["schema"] = found.args
        taken = _hinted_floats(signature.args)
        if taken:
            found.task["floats"] = taken
        if signature.returns is not None:
            found.returns = found.task["returns"] = signature.returns

    def reducer(self, function: str, loc: Loc) -> dict[str, Plain]:
        """Return the compiled form of a reducer written in Python, which has to be there."""
        self._signature(function, loc)
        return {"python": function, "folder": self.folder}

    def _signature(self, function: str, loc: Loc) -> Signature | None:
        if function not in self._signatures:
            self._signatures[function] = None
            try:
                signature = derive(function, self.folder)
            except SignatureError as error:
                self.report.at("E401", error.message, loc, error.hint)
            else:
                self._signatures[function] = signature
                self.program.read.update(dict.fromkeys(signature.paths))
        return self._signatures[function]

    def _configured(
        self, found: Callee, config: Any, loc: Loc, view: View, in_: Mapping[str, Any] | None = None
    ) -> None:
        """Compile the configuration of a kind: constants into the task, the rest into its input."""
        kind = found.kind
        try:
            cls = registry.kind_class(kind)
        except FlowEngineError as error:
            self.report.at("E401", error.message, loc, error.hint, key=True)
            return
        found.returns, found.default_effect = dict(cls.output()), cls.effect
        fixed, secret = CONSTANT_KEYS.get(kind, set()), SECRET_KEYS.get(kind, set())
        if not isinstance(config, dict):
            found.input = self.expressions.value(config, loc, view)
            return
        found.task = {key: value for key, value in config.items() if key in fixed}
        self._constants_only(found.task, loc)
        parts = {
            key: self.expressions.value(value, (*loc, key), view, secrets=key in secret)
            for key, value in config.items()
            if key not in fixed and not (key == "in" and kind in COMMANDS)
        }
        found.input = together(parts)
        if found.args is not None:
            found.task["schema"] = found.args
        if kind == "http" and config.get("method", "GET") in REPEATABLE:
            found.default_effect = "idempotent"
        if kind in COMMANDS:
            self._check_code(config.get("argv"), (*loc, "argv"))
            defaults = self.model.defaults
            choices = [
                (in_, (*loc[:-1], "in")),
                (_as_use(config.get("in")), (*loc, "in")),
                (defaults.in_, (*defaults.loc, "in")),
                ({HOST: {}}, loc),
            ]
            self._place(found, *next((use, at) for use, at in choices if use), view)
            if found.task["in"] == HOST:
                self._check_command(config.get("argv"), (*loc, "argv"))

    def _place(self, found: Callee, use: Mapping[str, Any], loc: Loc, view: View) -> None:
        """Take over where a command runs."""
        [name] = use
        found.task["in"] = name
        if name != HOST:
            used = self.environments.use(use, loc, view)
            if used is not None:
                found.environments[name] = used

    def _constants_only(self, task: dict[str, Plain], loc: Loc) -> None:
        """Refuse expressions in what is not evaluated."""
        for key, value in task.items():
            for place, text in _texts(value, (*loc, key)):
                if has_expression(text):
                    message = f"an expression cannot stand in {key!r}"
                    hint = "pass values to a script in 'env', or use 'argv'"
                    self.report.at("E306", message, place, hint)

    def _check_command(self, argv: Any, loc: Loc) -> None:
        """Refuse a command on the host that a value decides (E407)."""
        hint = "write the program as a constant; only its arguments can be expressions on the host"
        if is_expression(argv):
            self.report.at("E407", "a value decides which command runs on the host", loc, hint)
        elif isinstance(argv, list) and argv and has_expression(argv[0]):
            message = "a value decides which program runs on the host"
            self.report.at("E407", message, (*loc, 0), hint)

    def _check_code(self, argv: Any, loc: Loc) -> None:
        """Warn of a value that becomes part of a program's text (W415)."""
        if not isinstance(argv, list):
            return
        words = [word if isinstance(word, str) else "" for word in argv]
        for at, word in enumerate(words[:-1]):
            named = [one.rpartition("/")[2] for one in words[:at]]
            interpreter = next((INTERPRETERS[one] for one in named if one in INTERPRETERS), None)
            if interpreter is None or not re.fullmatch(interpreter, word):
                continue
            if has_expression(words[at + 1]):
                message = "a value becomes part of a program: whoever controls it can run anything"
                hint = "write the program as a constant, and pass the value in 'env' or as a "
                hint += "further argument"
                self.report.at("W415", message, (*loc, at + 1), hint)
            return

    # Arguments

    def check_arguments(self, found: Callee, given: dict[str, Typed], loc: Loc, name: str) -> None:
        """Check what a caller gives against the schema of a tool (E402).

        Args:
            found: The tool.
            given: The arguments.
            loc: Where they stand.
            name: The tool's name, for messages.
        """
        schema = found.args
        if schema is None or self.model.left_out((*loc, "with")):
            return
        bound = found.bind or {}
        properties = schema.get("properties", {})
        free = [one for one in properties if one not in bound]
        for argument, typed in given.items():
            place = (*loc, "with", argument)
            if argument in bound:
                message = f"the flow fixes the argument {argument!r} of {name!r} by 'bind'"
                self.report.at("E402", message, place, "leave it out", key=True)
            elif argument in properties:
                self._check_argument(properties[argument], typed, place, f"{name}.{argument}")
            elif schema.get("additionalProperties") is False:
                hint = did_you_mean(argument, free) or _takes(free)
                message = f"{name!r} takes no argument {argument!r}"
                self.report.at("E402", message, place, hint, key=True)
        missing = [
            one for one in schema.get("required", []) if one not in given and one not in bound
        ]
        if missing:
            names = " and ".join(repr(one) for one in missing)
            place = (*loc, "with") if given else loc
            self.report.at(
                "E402", f"{name!r} needs {names}", place, f"add {names} to 'with'", key=True
            )

    def _check_argument(self, schema: Any, typed: Typed, loc: Loc, name: str) -> None:
        if not isinstance(schema, dict) or "$ref" in schema:
            return
        if typed.constant:
            try:
                Validator(schema).check(typed.value[1], name)
            except SchemaError:
                return  # it leads outside of this part of the schema, or was reported
            except FlowEngineError as error:
                self.report.at("E402", error.message, loc, error.hint)
        elif differs(typed.schema, schema):
            message = f"{name} is {words(schema)}; this gives {words(typed.schema)}"
            self.report.at("E402", message, loc)


def arguments_of(flow: Definition) -> Schema:
    """Return the JSON Schema of what a flow is given: its inputs, as one object."""
    required = [name for name, schema in flow.inputs.items() if "default" not in schema]
    known = base_of(flow)["inputs"]
    properties = {**known.get("properties", {}), **flow.inputs}
    return {**known, "type": "object", "properties": properties, "required": required}


def repeating(kind: str | None, where: str = "") -> str:
    """Return what to do about a retry of what must not be repeated, and when that is true.

    Args:
        kind: Step kind of what is called.
        where: Where to say it.
    """
    hint = f"say 'effect: idempotent'{where} if it may be repeated"
    if kind == "http":
        hint += (
            "; the server must then answer a second request with the same Idempotency-Key as it "
            "answered the first, and do nothing more"
        )
    return hint


def _hinted_floats(args: Schema | None) -> Schema | None:
    """Return the schema of the parameters whose hints say `float`, alone or inside."""
    hints = (args or {}).get("properties", {})
    taken = {name: schema for name, schema in hints.items() if floats(schema)}
    return {"properties": taken} if taken else None


def hide(found: Callee, names: Iterable[str]) -> None:
    """Take parameters that get environments out of what a caller of a function gives."""
    schema = found.args
    names = set(names)
    if schema is None or not names:
        return
    shown = {name: one for name, one in schema.get("properties", {}).items() if name not in names}
    required = [name for name in schema.get("required", ()) if name not in names]
    found.args = {**schema, "properties": shown, "required": required}
    if "schema" in found.task:
        found.task = {**found.task, "schema": found.args}


def _as_use(given: Any) -> Mapping[str, Any] | None:
    return {given: {}} if isinstance(given, str) else given


def _brought_by(kind: str) -> dict[str, Any]:
    """Return the tools that a step kind brings; none if there is no such kind."""
    if kind not in registry.kind_names():
        return {}
    return dict(registry.kind_class(kind).tools())


def _built_in(kind: str, name: str, tool: Any) -> Callee:
    task = {"tool": name, "schema": tool["args"]}
    return Callee(kind, task, tool["returns"], tool["args"], effect=tool["effect"])


def _takes(names: list[str]) -> str:
    return f"it takes {', '.join(names)}" if names else "it takes none"


def _texts(value: Any, loc: Loc) -> list[tuple[Loc, str]]:
    if isinstance(value, str):
        return [(loc, value)]
    if isinstance(value, dict):
        return [found for key, one in value.items() for found in _texts(one, (*loc, key))]
    if isinstance(value, list):
        return [found for index, one in enumerate(value) for found in _texts(one, (*loc, index))]
    return []

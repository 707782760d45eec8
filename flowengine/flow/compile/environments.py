"""Environments: the compiled form of a declaration, and of its use.

See docs/language.md: environments. A use becomes a value: the spec for the manager of environments.
It is evaluated for each attempt with the user's arguments, which determine the instance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from flowengine import registry
from flowengine.errors import FlowEngineError
from flowengine.flow.compile.arguments import Arguments, check_arguments
from flowengine.flow.compile.callee import Callee
from flowengine.flow.compile.expressions import TypedValue, constant, map_of, together
from flowengine.flow.compile.questions import asked_first
from flowengine.flow.compile.scopes import DeclarationScope
from flowengine.flow.compile.types import TEXT, UNKNOWN, Schema, VisibleNames
from flowengine.flow.loading.files import FlowFile, known_names
from flowengine.flow.models import Environment, Loc, Tool
from flowengine.flow.models.tool import Server
from flowengine.flow.models.types import has_expression
from flowengine.kernel.graph import environment_uses
from flowengine.kernel.graph.compiled import Value
from flowengine.kernel.graph.specs import StepSpec
from flowengine.sdk.environments import Provider
from flowengine.sdk.texts.near_words import did_you_mean
from flowengine.util.plain_data import with_leaves

HOST = "host"
NOT_HOST = "name a declared environment. Only commands run on the host, with 'in: host'"
"""The environment of the author's own scripts."""
_MOUNTABLE = "files"


Declared = dict[str, Value]
"""A declaration, compiled: the `spec` for the manager, and the `approval` that is required before
it is opened, if any. Both see `args`."""


class Eager(NamedTuple):
    """An environment that is opened at the start."""

    use: TypedValue
    waits: bool
    """Whether the steps of the flow wait until it is open."""


class EnvironmentDeclarations:
    """The environments of a file, as one flow uses them.

    Args:
        scope: The names that declarations of the file see.
    """

    def __init__(self, scope: DeclarationScope) -> None:
        self.scope = scope
        self.model = scope.model
        self.expressions = scope.expressions
        self.report = scope.report
        self._beside: dict[FlowFile, EnvironmentDeclarations] = {}
        self.used: set[str] = set()
        self._eager: dict[str, Eager] = {}
        """Environments of this file that its users need from the start, by name."""
        self._compiled: dict[tuple[str, str], Declared | None] = {}
        """Declarations by name and kind, those of tools as `tools.NAME`."""
        self._inputs: dict[tuple[str, str], set[str]] = {}
        """The inputs that they name."""
        self._mounting: list[str] = []

    def of_file(self, file: FlowFile) -> EnvironmentDeclarations:
        """Return the environments of a file, for the flow that uses these."""
        if file is self.scope.file:
            return self
        if file not in self._beside:
            self._beside[file] = EnvironmentDeclarations(self.scope.of_file(file))
        return self._beside[file]

    def eager(self) -> dict[str, Eager]:
        """Return the environments that the flow needs from its start, by name."""
        found = dict(self._eager)
        for beside in self._beside.values():
            found |= beside.eager()
        return found

    def work_in(
        self, callee: Callee, use: Mapping[str, Mapping[str, Any]], loc: Loc, view: VisibleNames
    ) -> None:
        """Set the environment in which a callee works.

        Args:
            callee: The callee.
            use: `{name: arguments}`, as in the model, or the host.
            loc: Its place.
            view: The names that the arguments see.
        """
        [name] = use
        callee.task = {**callee.task, "in": name}
        if name != HOST:
            used = self.use(use, loc, view)
            if used is not None:
                callee.environments[name] = used

    def use(
        self,
        given: Mapping[str, Mapping[str, Any]],
        loc: Loc,
        view: VisibleNames,
        *,
        by_tool: bool = False,
    ) -> TypedValue | None:
        """Return the spec for a use, or None if errors were reported.

        Args:
            given: `{name: arguments}`, as in the model.
            loc: Its place.
            view: The names that the arguments see.
            by_tool: Whether a tool names it. Unless it has a scope, its scope is then the call.

        Returns:
            A value: the spec for the manager, with the scope.
        """
        [(name, args)] = given.items()
        arguments = {
            key: self.expressions.value(data, (*loc, name, key), view) for key, data in args.items()
        }
        owner = self._owner(name, loc)
        if owner is None:
            return None
        there, inner = owner
        environment = there.declared(inner)
        if environment is None:
            return None
        file = there.scope.file
        model = there.model.environments[inner]
        if there._inputs[inner, model.kind] and not self.scope.sees_inputs_of(file):
            self.scope.refuse_inputs(file, model, name, loc)
        self._check_arguments(name, model.args, Arguments(arguments), (*loc, name))
        own = "step" if by_tool and not model.eager else "execution"
        used = _of_scope(model.scope or own, environment)
        if model.eager:
            waits = model.eager is True
            there._eager[there._key_of(inner)] = Eager(used, waits)
        if model.args is None:
            return used
        given_args = {key: typed.value for key, typed in arguments.items()}
        return TypedValue(["with", [["map", given_args], used.value]], UNKNOWN)

    def lists_servers(self, name: str) -> bool:
        """Return whether the policy of an environment lists the reachable servers."""
        model = self._model(name)
        policy: Any = None if model is None else model.policy
        network = policy.get("network") if isinstance(policy, dict) else None
        return model is None or isinstance(network, list)  # otherwise it was reported

    def kind_of(self, name: str) -> str | None:
        """Return the kind of an environment of this file, or of one that it imports."""
        model = self._model(name)
        return None if model is None else str(model.kind)

    def _model(self, name: str) -> Environment | None:
        owner = self.scope.others.files.owner(self.scope.file, "environments", name, ())
        return None if owner is None else owner[0].model.environments.get(owner[1])

    def declared(self, name: str) -> Declared | None:
        """Return the compiled declaration of this file, or None if errors were reported."""
        return self._declaration(name, self.model.environments[name])

    def _owner(self, name: str, loc: Loc) -> tuple[EnvironmentDeclarations, str] | None:
        """Return the environments of the file that declares one, and its name there."""
        self.used.add(name)
        owner = self.scope.others.files.owner(self.scope.file, "environments", name, loc)
        if owner is None:
            return None
        file, inner = owner
        if inner in file.model.environments:
            return self.of_file(file), inner
        if ("environments", inner) not in file.model.unread:
            if name == HOST:
                self.report.at("E401", f"{HOST!r} cannot be used here", loc, NOT_HOST)
                return None
            hint = did_you_mean(name, [*known_names(self.scope.file, "environments"), HOST]) or (
                f"declare it: 'environments: {{{name}: {{kind: ...}}}}'"
            )
            self.report.at("E401", f"there is no environment {name!r}", loc, hint)
        return None

    def session(self, name: str, model: Tool, server: Server) -> TypedValue | None:
        """Return the session with the server that a tool is, or None if errors were reported.

        Args:
            name: The name of the tool.
            model: The tool.
            server: Its server.

        Returns:
            A value: the spec for the manager, with the scope.
        """
        loc: Loc = (*model.loc, server.kind)
        if server.in_ is not None:
            for key in [*server.config, *server.around]:
                message = f"{key!r} belongs to the environment that 'in' names"
                self.report.at("E103", message, (*loc, key), "write it there", key=True)
            loc = (*loc, "in")
            used = self.use(server.in_, loc, self.scope.view)
            [inner] = server.in_
            kind = self.kind_of(inner)
            if used is not None and kind != server.session:
                message = f"{inner!r} is of kind {kind!r}, but a server of tools is of kind "
                self.report.at("E103", f"{message}{server.session!r}", loc)
                return None
            return used
        own = self._own_of(server, loc)
        if own is None:
            return None
        declared = self._declaration(f"tools.{name}", own, loc)
        self.expressions.used["inputs"] |= self._inputs[f"tools.{name}", server.session]
        return None if declared is None else _of_scope("execution", declared)

    def _own_of(self, server: Server, loc: Loc) -> Environment | None:
        """Return the environment that a tool declares for itself, or None after an error."""
        for key, given in server.around.items():
            if has_expression(given):
                message = (
                    f"{key!r} takes no expression, because it determines the permissions of "
                    "the server"
                )
                self.report.at("E103", message, (*loc, key), "write it out")
                return None
        own = Environment(kind=server.session, config=server.config, **server.around)
        own._loc = loc
        return own

    def of_kind(self, kind: str, loc: Loc) -> TypedValue | None:
        """Return the environment for a tool of a step kind, which requires one of some kind.

        A flow configures it by declaring an environment of that kind, with the kind as its name.

        Args:
            kind: The kind of environment.
            loc: Place where the tool is named.

        Returns:
            A value: the spec for the manager, with the scope. None if errors were reported.
        """
        own = self.model.environments.get(kind)
        if own is not None and own.kind == kind:
            return self.use({kind: {}}, loc, self.scope.view)
        brought = self._declaration(f"tools.{kind}", Environment(kind=kind), loc)
        return None if brought is None else _of_scope("execution", brought)

    def _declaration(
        self, name: str, model: Environment, config_loc: Loc | None = None
    ) -> Declared | None:
        """Return a declaration, compiled once, whose configuration may be at another place.

        None if errors were reported.
        """
        key = name, model.kind
        if key not in self._compiled:
            self._compiled[key] = None
            with self.scope.noting_inputs() as self._inputs[key]:
                self._compiled[key] = self._compile(name, model, config_loc)
        return self._compiled[key]

    def _compile(self, name: str, model: Environment, config_loc: Loc | None) -> Declared | None:
        provider = self._provider(model)
        if provider is None:
            return None
        at = config_loc or (*model.loc, "config")
        view = self.scope.view
        self.expressions.arguments(model.args, model.loc)
        if model.args is not None:
            view = view.having({"args": model.args})
        before = len(self.report.diagnostics.errors)
        mounts = self._mounts(name, model, (*at, "mounts"))
        config = {
            key: self.expressions.value(value, (*at, key), view, secrets=True)
            for key, value in model.config.items()
            if not (key == "mounts" and mounts is not None)
        }
        known = with_leaves(model.config, lambda leaf: "" if has_expression(leaf) else leaf)
        default = provider.default_sandbox(known)
        if len(self.report.diagnostics.errors) == before:
            self._check(model, provider, config, at, default)
        chooses = type(provider).default_sandbox is not Provider.default_sandbox
        sandbox = default if model.provider is None and chooses else model.provider
        parts: dict[str, TypedValue] = {
            "kind": constant(model.kind),
            "resource_key": constant(self._key_of(name)),
            "config": map_of(config),
            **{
                key: constant(getattr(model, key))
                for key in ("policy", "limits", "needs", "on_wait")
                if getattr(model, key)
            },
            **({"provider": constant(sandbox)} if sandbox else {}),
        }
        if model.key is not None:
            key = self.expressions.of_type(model.key, (*model.loc, "key"), self.scope.view, TEXT)
            parts["owner_id"] = TypedValue(key, TEXT)
        if mounts:
            parts["mounts"] = map_of(mounts)
        if model.args is not None:
            parts["args"] = TypedValue(
                ["expr", self.expressions.add("args", view, model.loc)], model.args
            )
        declared = {"spec": map_of(parts).value}
        if (given := model.approval) is not None:
            notifies = self.scope.notifications(given)
            if (asked := asked_first(self.expressions, given, view, notifies)) is not None:
                declared["approval"] = together(asked).value
        if model.eager and environment_uses.asking([declared]):
            message = f"{name!r} is opened at the start, before the call that would ask"
            hint = "leave 'eager' out: the first call that needs it asks, and opens it"
            self.report.at("E103", message, (*model.loc, "eager"), hint, key=True)
        return declared

    def _key_of(self, name: str) -> str:
        """Return its name for users. For another file, the file's name is included."""
        file = self.scope.file
        return name if file is self.scope.others.first else f"{file.model.id}.{name}"

    def _provider(self, model: Environment) -> Provider[Any] | None:
        kinds = [kind for kind in registry.environment_names() if kind != HOST]
        loc = (*model.loc, "kind")
        if model.kind not in kinds:
            hint = did_you_mean(model.kind, kinds) or f"known are {', '.join(kinds)}"
            if model.kind == "search":
                hint = "search needs no environment: declare a tool, 'web_search: {provider: …}'"
            self.report.at("E401", f"there is no kind of environment {model.kind!r}", loc, hint)
            return None
        try:
            return registry.provider(model.kind)
        except FlowEngineError as error:
            self.report.at("E401", error.message, loc, error.hint)
            return None

    def _mounts(self, name: str, model: Environment, loc: Loc) -> dict[str, TypedValue] | None:
        """Return the directories of other environments: directory inside → their specs."""
        given = model.config.get("mounts")
        if given is None:
            return None
        if not isinstance(given, dict) or not all(isinstance(at, str) for at in given.values()):
            self.report.at("E103", "'mounts' is a map from environments to directories inside", loc)
            return {}
        if name in self._mounting:
            self.report.at("E103", f"the mounts of {name!r} form a cycle", loc)
            return {}
        self._mounting.append(name)
        mounts: dict[str, TypedValue] = {}
        for other, inside in given.items():
            place = (*loc, other)
            used = self.use({other: {}}, place, self.scope.view)
            if used is None:
                continue
            if (kind := self.kind_of(other)) != _MOUNTABLE:
                message = (
                    f"{other!r} is of kind {kind!r}, but a directory is of kind {_MOUNTABLE!r}"
                )
                self.report.at("E103", message, place)
            mounts[inside] = used
        self._mounting.pop()
        return mounts

    # Checks

    def _check(
        self,
        model: Environment,
        provider: Provider[Any],
        config: Mapping[str, TypedValue],
        at: Loc,
        default: str | None,
    ) -> None:
        """Check a declaration in the file against the definition of its kind.

        Args:
            model: The declaration.
            provider: The provider of its kind.
            config: Its configuration, compiled.
            at: The place of the configuration.
            default: The sandbox that is used if none is named. None if it needs none.
        """
        from flowengine.flow.compile.environment_configurations import report_configuration

        computed = {key: typed for key, typed in config.items() if not typed.constant}
        data = {
            key: model.config[key] if key in computed else typed.value[1]
            for key, typed in config.items()
        }
        report_configuration(self.report, provider, model, default, data, at, computed)
        choices = [model.provider] if isinstance(model.provider, str) else model.provider or []
        names = provider.only_in or registry.sandbox_names()
        kinds = names if default else [model.kind]
        for choice in choices:
            if choice not in kinds:
                hint = did_you_mean(choice, kinds) or f"known are {', '.join(kinds)}"
                message = f"there is no provider {choice!r} for {model.kind!r}"
                self.report.at("E401", message, (*model.loc, "provider"), hint)

    def _check_arguments(self, name: str, args: Schema | None, given: Arguments, loc: Loc) -> None:
        """Check the arguments of a use against the declaration (E402).

        Without `args`, it takes none. With properties, it takes only these.
        """
        schema = {"properties": {}, "additionalProperties": False} if args is None else args
        schema = {"additionalProperties": not schema.get("properties"), **schema}
        check_arguments(self.report, Callee("", {}, UNKNOWN, schema), given, loc, name)


def give(spec: StepSpec, given: Value, environments: Mapping[str, TypedValue]) -> None:
    """Write the environments of a task.

    Args:
        spec: The task.
        given: Its other resources.
        environments: Results of `EnvironmentDeclarations.use`, by name.
    """
    spec["environments"] = True
    uses = ["map", {name: used.value for name, used in environments.items()}]
    if environment_uses.asking(used.value for used in environments.values()):
        spec["asks"] = True
    spec["input"] = ["map", {"input": given, "environments": uses}]


def _of_scope(scope: str, declared: Declared) -> TypedValue:
    return TypedValue(["map", {"scope": ["const", scope], **declared}], UNKNOWN)

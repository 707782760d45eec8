"""The compiled form of a use of a step kind, determined by the kind's properties.

See docs/language.md: call, run.

No kind is known by name here. `flowengine.sdk.StepKind` declares all properties.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flowengine import registry
from flowengine.errors import FlowEngineError
from flowengine.flow.compile.callee import Callee, Hinted
from flowengine.flow.compile.environments import HOST, EnvironmentDeclarations
from flowengine.flow.compile.expressions import TypedValue, together
from flowengine.flow.compile.scopes import DeclarationScope
from flowengine.flow.compile.types import TEXT, UNKNOWN, Schema, VisibleNames
from flowengine.flow.models import Loc
from flowengine.flow.models.kinds import generates
from flowengine.flow.models.types import has_expression, is_expression
from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk.steps.generated_flows import Given
from flowengine.sdk.steps.step_kind import CallSignature, SignatureError, StepKind
from flowengine.sdk.texts.flow_texts import plain_text

INTERPRETERS = {
    **dict.fromkeys(("sh", "bash", "dash", "zsh", "ksh", "ash", "fish"), r"-[a-z]*c"),
    **dict.fromkeys(("python", "python3", "pypy3"), r"-[A-Za-z]*c"),
    **dict.fromkeys(("node", "deno", "bun", "perl", "ruby", "php"), r"-[a-z]*[eErp]|--eval"),
}
"""Interpreters that run a text, by the option before it."""


class StepKinds:
    """The step kinds, as one flow uses them in a file.

    Args:
        scope: The names that declarations of the file see.
        environments: The environments of the file.
    """

    def __init__(self, scope: DeclarationScope, environments: EnvironmentDeclarations) -> None:
        self.scope = scope
        self.folder = scope.file.folder
        self.environments = environments
        self.expressions = scope.expressions
        self.report = scope.report
        self._signatures: dict[tuple[str, str], CallSignature | None] = {}

    def compile(
        self,
        kind: str,
        config: Any,
        loc: Loc,
        view: VisibleNames,
        *,
        args: Schema | None = None,
        in_: Mapping[str, Any] | None = None,
    ) -> Callee | None:
        """Return the compiled form of a use of a step kind.

        Args:
            kind: The step kind.
            config: Its configuration, in long form.
            loc: Its place.
            view: The names that its expressions see.
            args: JSON Schema of the arguments, if the declaration of a tool contains it.
            in_: The environment in which it works, if the step sets it.

        Returns:
            The callee, compiled for this one use. None if it would run a flow that cannot be
            generated.
        """
        callee = Callee(kind, {}, UNKNOWN, args)
        try:
            step_kind = callee.step_kind = registry.kind_class(kind)
        except FlowEngineError as error:
            self.report.at("E401", error.message, loc, error.hint, key=True)
            return callee
        if generates(kind):
            return self._generated(callee, config, loc)
        callee.meters = _meters(step_kind)
        view = view.having({"idempotency_key": TEXT})
        if isinstance(config, dict):
            callee.returns = dict(step_kind.output_of(config))
            callee.default_effect = step_kind.effect_of(config)
            callee.reads = sorted(step_kind.reads(config))
            self._configuration(callee, config, loc, view)
        else:
            callee.returns, callee.default_effect = dict(step_kind.output()), step_kind.effect
            callee.input = self.expressions.value(config, loc, view)
        if step_kind.in_environment:
            self._place(callee, config if isinstance(config, dict) else {}, loc, view, in_)
        return callee

    def _configuration(
        self, callee: Callee, config: Mapping[str, Any], loc: Loc, view: VisibleNames
    ) -> None:
        """Compile a configuration: constants into the task, other keys into the input."""
        step_kind = callee.step_kind
        fixed, secret = step_kind.constants, step_kind.secrets
        callee.task = {key: value for key, value in config.items() if key in fixed}
        self._check_constants(callee, loc)
        parts = {
            key: self.expressions.value(value, (*loc, key), view, secrets=key in secret)
            for key, value in config.items()
            if key not in fixed and not (key == "in" and step_kind.in_environment)
        }
        if step_kind.takes_arguments:
            callee.configuration = together(parts) if parts else None
            self._signature(callee, config, loc)
            return
        callee.input = together(parts)
        if callee.args is not None:
            callee.task["schema"] = callee.args

    def _generated(self, callee: Callee, config: Any, loc: Loc) -> Callee | None:
        """Adopt the flow that a kind generates, and its values from the file."""
        others = self.scope.others
        flow = others.generate(callee.kind, config, self.scope.file, loc)
        callee.task = dict(config) if isinstance(config, dict) else {}
        self._signature(callee, config, loc)
        if flow is None and others.is_generating(callee.kind, config, self.scope.file):
            return callee  # it is examined while the flow that calls it is being generated
        if flow is None or flow.generated is None:
            return None
        callee.flow, callee.returns = flow, dict(flow.generated.returns)
        with self.scope.noting_inputs() as named:
            given = flow.generated.given.items()
            callee.given = {name: self._given(one, loc) for name, one in given}
        callee.names_inputs = bool(named)
        return callee

    def _given(self, given: Given | Mapping[str, Given], loc: Loc) -> TypedValue:
        """Compile a value that a file passes to a generated flow. `loc` is the place of its use."""
        if not isinstance(given, Given):
            return together({name: self._given(value, loc) for name, value in given.items()})
        there = self.scope.of_file(given.home.file)  # type: ignore[attr-defined]
        with there.noting_inputs() as named:
            typed = there.expressions.value(given.value, given.loc, there.own_view)
        if named and not self.scope.sees_inputs_of(there.file):
            section, name = given.loc[:2]
            model = getattr(there.model, str(section))[name]
            self.scope.refuse_inputs(there.file, model, str(name), loc)
        return typed

    # Calls with arguments

    def _signature(self, callee: Callee, config: Mapping[str, Any], loc: Loc) -> None:
        """Adopt the kind's signature of the callee."""
        signature = self._signature_of(callee, config, loc)
        if signature is None:
            return
        args, returns = signature.args, signature.returns
        callee.task |= signature.task
        callee.description = signature.description
        callee.takes_resources = signature.takes_resources
        if callee.args is None:
            callee.args = args
        callee.opens = dict(signature.opens)
        required = (args or {}).get("required", ())
        callee.hinted = {
            name: Hinted(list(classes), name in required)
            for name, classes in signature.environments.items()
        } | {
            name: Hinted(list(classes), required=False, only_named=True)
            for name, classes in signature.optional_environments.items()
        }
        if callee.args is not None:
            callee.task["schema"] = callee.args
        if returns is not None:
            callee.returns = callee.task["returns"] = returns

    def _signature_of(
        self, callee: Callee, config: Mapping[str, Any], loc: Loc
    ) -> CallSignature | None:
        """Return the signature of the callee, read once, or None if it was reported."""
        key = (callee.kind, repr(config))
        if key not in self._signatures:
            self._signatures[key] = None
            try:
                signature = callee.step_kind.signature(config, self.folder)
            except SignatureError as error:
                self.report.at("E401", error.message, loc, error.hint)
            else:
                self._signatures[key] = signature
                self.scope.others.read.update(dict.fromkeys(signature.files))
        return self._signatures[key]

    # Kinds that work in an environment

    def _place(
        self,
        callee: Callee,
        config: Mapping[str, Any],
        loc: Loc,
        view: VisibleNames,
        in_: Mapping[str, Any] | None,
    ) -> None:
        """Set the environment in which it works, and check the command that it runs there."""
        command = callee.step_kind.command
        if command is not None:
            self._check_code(config.get(command), (*loc, command))
        defaults = self.scope.model.defaults
        given = config.get("in")
        choices = [
            (in_, (*loc[:-1], "in")),
            ({given: {}} if isinstance(given, str) else given, (*loc, "in")),
            (defaults.in_, (*defaults.loc, "in")),
            ({HOST: {}}, loc),
        ]
        use, at = next((use, at) for use, at in choices if use)
        self.environments.work_in(callee, use, at, view)
        if callee.task["in"] == HOST and command is not None:
            self._check_command(config.get(command), (*loc, command))

    # Checks

    def _check_constants(self, callee: Callee, loc: Loc) -> None:
        """Refuse expressions in constants, and unescape their text.

        Text in generated flows is used unchanged.
        """
        if "generated" in callee.step_kind.places:
            return
        for key, value in callee.task.items():
            for place, text in _texts(value, (*loc, key)):
                if has_expression(text):
                    message = f"an expression is not allowed in {key!r}"
                    self.report.at("E306", message, place, callee.step_kind.constants_hint)
        callee.task = plain_text(callee.task)

    def _check_command(self, argv: Any, loc: Loc) -> None:
        """Refuse a command on the host that is determined by a value (E407)."""
        hint = "write the program as a constant. Only its arguments can be expressions on the host"
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
            named = [word.rpartition("/")[2] for word in words[:at]]
            interpreter = next((INTERPRETERS[name] for name in named if name in INTERPRETERS), None)
            if interpreter is None or not re.fullmatch(interpreter, word):
                continue
            if has_expression(words[at + 1]):
                message = "a value becomes part of a program, so that its author can run any code"
                hint = "write the program as a constant, and pass the value in 'env' or as a "
                hint += "further argument"
                self.report.at("W415", message, (*loc, at + 1), hint)
            return


def _meters(step_kind: type[StepKind]) -> dict[str, Plain] | None:
    """Return the compiled form of a kind's budget usage, or None for one of `tool_calls`."""
    if step_kind.meters is None:
        return None
    return {
        name: {
            "used": [path.split(".") for path in meter.used],
            **({} if meter.reserved is None else {"reserved": meter.reserved.split(".")}),
            **({} if step_kind.needs is StepKind.needs else {"measured": True}),
        }
        for name, meter in step_kind.meters.items()
    }


def _texts(value: Plain, loc: Loc) -> list[tuple[Loc, str]]:
    if isinstance(value, str):
        return [(loc, value)]
    if isinstance(value, dict):
        return [text for key, entry in value.items() for text in _texts(entry, (*loc, key))]
    if isinstance(value, list):
        return [text for index, item in enumerate(value) for text in _texts(item, (*loc, index))]
    return []

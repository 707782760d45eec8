"""A flow with all its subflows: each flow is compiled once, then all are linked."""

from __future__ import annotations

import builtins
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from functools import cache
from typing import Any

from flowengine.flow.check.concurrent_writes import check_locks
from flowengine.flow.check.termination import check_recursion
from flowengine.flow.compile.environments import EnvironmentDeclarations
from flowengine.flow.compile.expressions import Expressions
from flowengine.flow.compile.flow import Compiler
from flowengine.flow.compile.generated import Generated
from flowengine.flow.compile.link import link
from flowengine.flow.compile.plan import Info
from flowengine.flow.compile.scopes import DeclarationScope
from flowengine.flow.compile.shared_scripts import warn_of_shared_scripts
from flowengine.flow.compile.starts import notification_flow
from flowengine.flow.compile.tools import Tools
from flowengine.flow.compile.types import UNKNOWN, Schema, closed
from flowengine.flow.loading.files import Definition, FlowFile, FlowFiles, known_names
from flowengine.flow.models import Fail, Handler, Loc, Retry
from flowengine.flow.models.base import Part
from flowengine.flow.models.types import Effect
from flowengine.flow.source.diagnostics import Position
from flowengine.kernel.errors import FINAL, RETRYABLE
from flowengine.kernel.graph.specs import CompiledFlow
from flowengine.sdk import errors
from flowengine.sdk.texts.near_words import did_you_mean, nearest

CLOSE = 0.85
"""The least similarity of a misspelling, from 0 to 1."""


def check_error_types(files: Iterable[FlowFile]) -> None:
    """Warn of error types that are not known but nearly have the name of a known one.

    Args:
        files: All files of a compilation, because each may raise errors that another handles.
    """
    parts = [(file, part) for file in files for part in _parts(file.model)]
    raised = {part.type for _, part in parts if isinstance(part, Fail) and part.error is None}
    known = known_types() | raised
    handling = [(file, part) for file, part in parts if isinstance(part, Handler | Retry)]
    for file, part in handling:
        for number, name in enumerate(part.type or ()):
            meant = None if name in known or name.endswith("*") else nearest(name, known)
            is_close = meant and SequenceMatcher(None, name.lower(), meant.lower()).ratio() >= CLOSE
            if is_close:
                message, loc = f"the error type {name!r} is not known", (*part.loc, "type", number)
                file.report.at("W419", message, loc, f"did you mean {meant!r}?")


@cache
def known_types() -> frozenset[str]:
    """Return the error types of the language, and those of Python."""
    of_steps = {
        member.type
        for member in vars(errors).values()
        if isinstance(member, type)
        and issubclass(member, errors.StepError)
        and member.type is not None
    }
    of_python = {
        name
        for name, value in vars(builtins).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    return RETRYABLE | FINAL | of_steps | of_python


def _parts(model: Part) -> Iterator[Part]:
    """Yield a part of a file and all parts inside it, in no particular order."""
    left: list[object] = [model]
    while left:
        match left.pop():
            case Part() as part:
                yield part
                left += part.__dict__.values()
            case list() as items:
                left += items
            case dict() as items:
                left += items.values()


class Compilation:
    """Compiles a file and its imports.

    Args:
        files: The files.
        first: The file to compile.
    """

    def __init__(self, files: FlowFiles, first: FlowFile) -> None:
        self.files = files
        self.first = first
        self.read: dict[str, None] = {}
        """Files read besides flow files: Python files, texts, directories."""
        self._parts: dict[Definition, Compiler] = {}
        """In the order in which their compilation began."""
        self._at_work: set[Definition] = set()
        self.named: set[tuple[FlowFile, str, str]] = set()
        self._generated = Generated(self)
        self._waiting: list[Definition] = []
        """Generated flows that are compiled after all flows that lead to them have been
        generated."""
        self._notifications: dict[tuple[FlowFile, str, str], Definition | None] = {}
        """File, tool, subject → the flow that sends notifications with it."""
        self._notified: dict[Definition, dict[Definition, None]] = {}
        """Flow → those that send its notifications."""
        self._tools: dict[FlowFile, Tools] = {}
        self.secrets: dict[str, Any] = {}
        """Every secret that the compiled flow may name, with its reference."""

    def link(self) -> CompiledFlow:
        """Return the compiled form of a file that has been checked and has no errors."""
        order = [self.first.flow]
        for definition in order:  # the list grows during the loop
            called = dict.fromkeys(callee for _, callee in self._parts[definition].calls.flows)
            called |= self._notified.get(definition, {})
            order += [callee for callee in called if callee not in order]
        flow = self._linked(order)
        flow["secrets"] = {**flow["secrets"], **self.secrets}
        return flow

    def _linked(self, order: list[Definition]) -> CompiledFlow:
        calls = []
        for definition in order:
            part = self._parts[definition]
            numbers = {id(spec): number for number, spec in enumerate(part.plan.flow["steps"])}
            called = part.calls.flows
            calls.append([(numbers[id(spec)], order.index(callee)) for spec, callee in called])
        notified = [
            [order.index(recipient) for recipient in self._notified.get(flow, ())] for flow in order
        ]
        return link(
            [(definition.id, self._parts[definition].plan.flow) for definition in order],
            calls,
            notified,
        )

    def check(self) -> None:
        """Check all declarations of the first file, and all flows that it runs."""
        for definition in (self.first.flow, *self.first.flows.values()):
            self.part(definition)
        agents = self.first.model.agents
        led_to = {to for agent in agents.values() for to in agent.led_to}
        contained = set[str]()
        for name in sorted(agents, key=led_to.__contains__):  # a flow contains the agents after it
            if name not in contained:
                self.generate("agent", {"name": name}, self.first, ("agents", name))
                after = [name]
                for one in after:  # the list grows during the loop
                    if one in agents and one not in contained:
                        contained.add(one)
                        after += agents[one].led_to
        self._hand_on_inputs()
        for part in list(self._parts.values()):
            part.check_handlers(lambda flow: self.part(flow).plan)
            part.calls.check_retries(self.effect)
        check_error_types(dict.fromkeys(part.model.file for part in self._parts.values()))
        if not self.files.diagnostics.errors:
            self._check_together()
        self._unused()

    def _hand_on_inputs(self) -> None:
        """Pass to generated flows the inputs of their file's own flow that declarations use.

        Targets called by a generated flow may be generated as well, and receive inputs through it.
        """
        parts = list(self._parts.values())
        named = {
            part.model: part.inputs_named() for part in parts if part.model.generated is not None
        }
        grown = True
        while grown:
            before = sum(map(len, named.values()))
            for part in parts:
                for _, flow in part.calls.handed_on:
                    if part.model in named and flow.file is part.model.file:
                        named[part.model] |= named[flow]
            grown = sum(map(len, named.values())) > before
        for part in parts:
            part.hand_on_inputs(named)

    def _check_together(self) -> None:
        """Check properties of several flows together: locks, and flows that run themselves."""
        flow = self._linked(list(self._parts))
        starts = [0, *(spec["steps"][0] for spec in flow.get("flows", []))]
        parts = list(self._parts.values())

        def info(step: int) -> Info:
            number = bisect_right(starts, step) - 1
            return parts[number].plan.steps[step - starts[number]]

        def place(step: int, where: tuple[str | int, ...]) -> Position:
            number = bisect_right(starts, step) - 1
            is_key = where[-1] != "id"
            source = parts[number].report.source
            return source.position((*info(step).loc, *where), key=is_key)

        first: dict[str, tuple[Any, FlowFile]] = {}
        for part in parts:
            for name, spec in part.plan.flow.get("signals", {}).items():
                data, file = first.setdefault(name, (spec.get("data"), part.model.file))
                if spec.get("data") != data:
                    message = f"the data of {name!r} is declared differently in {file.name}"
                    hint = "a message reaches all flows of an execution: use another name"
                    part.report.at("E103", message, ("signals", name), hint, key=True)
        for finding in (*check_locks(flow), *check_recursion(flow)):
            related = [(place(step, ("id",)), text) for step, text in finding.related]
            self.files.diagnostics.error(
                finding.code,
                finding.message,
                place(finding.step, finding.where),
                hint=finding.hint,
                related=related,
            )

    def _unused(self) -> None:
        """Warn of declarations of the first file that are never used.

        Files with errors are skipped, because a use may be missing. Libraries are skipped, because
        their declarations are for other files.
        """
        if self.files.diagnostics.errors or self.first.is_library:
            return
        file = self.first
        parts = [part for part in self._parts.values() if part.model.file is file]
        own = {
            section: {name for part in parts for name in part.used(section)}
            for section in ("tools", "flows", "environments", "signals", "secrets")
        }
        own["agents"] = {
            name for home, section, name in self.named if home is file and section == "agents"
        }
        own["flows"] |= {tool.flow for tool in file.model.tools.values() if tool.flow is not None}
        for section, names in own.items():
            _warn(file, (section,), section[:-1], getattr(file.model, section), names)
        warn_of_shared_scripts(file)
        for part in parts:
            if part.model.generated is None and part.model.written is None:
                loc = (*part.model.loc, "state")
                _warn(file, loc, "state", part.model.state, part.used("state"))

    def part(self, definition: Definition) -> Compiler:
        """Return the compiled flow.

        If its compilation is in progress, return its known parts.
        """
        part = self._parts.get(definition)
        if part is None:
            part = self._parts[definition] = Compiler(definition, self)
            self._at_work.add(definition)
            part.compile()
            self._at_work.discard(definition)
        return part

    def outputs(self, definition: Definition) -> Schema:
        """Return the output type of a flow. For a recursive flow, return its declared type."""
        part = self.part(definition)
        if definition in self._at_work:
            schemas = {
                name: output.json_schema or UNKNOWN for name, output in definition.outputs.items()
            }
            return closed(schemas)
        return closed(part.outputs)

    def uncertain_outputs(self, definition: Definition) -> list[str]:
        """Return the outputs of a flow that may be null. For a recursive flow, none are known."""
        return [] if definition in self._at_work else self.part(definition).uncertain_outputs

    def effect(self, definition: Definition) -> Effect:
        """Return the effect of a flow: `once` if one of its steps must not be repeated."""
        seen = [definition]
        for flow in seen:  # the list grows during the loop
            if flow in self._at_work:
                continue  # the flow that runs it contains it, and is examined when it is complete
            steps = self.part(flow).plan.steps
            own = [info for info in steps if info.flow is None and not info.children]
            if any(info.effect == "once" for info in own):
                return "once"
            called = dict.fromkeys(info.flow for info in steps if info.flow is not None)
            seen += [flow for flow in called if flow not in seen]
        return "idempotent"

    def find(self, file: FlowFile, name: str, loc: Loc) -> Definition | None:
        """Return the flow with a name, or None if it was reported.

        Args:
            file: The file that contains the name.
            name: `child`, `alias.child`, or the path of a file.
            loc: Its place.
        """
        if name.endswith((".yaml", ".yml")):
            other = self.files.at(file, name, loc)
            if other is not None and other.is_library:
                hint = f"it has {', '.join(other.flows)}: import it" if other.flows else None
                file.report.at("E401", f"{name!r} is a library without steps", loc, hint)
                return None
            return None if other is None else other.flow
        owner = self.files.owner(file, "flows", name, loc)
        if owner is None:
            return None
        other, inner = owner
        if inner in other.flows:
            return other.flows[inner]
        if inner == other.model.id and not other.is_library:
            return other.flow
        if not other.knows_of("flows", inner):
            known = [*known_names(file, "flows"), file.model.id]
            hint = did_you_mean(name, known) or "name an entry of 'flows', or the path of a file"
            file.report.at("E401", f"there is no flow {name!r}", loc, hint)
        return None

    def generate(self, kind: str, config: Any, file: FlowFile, loc: Loc) -> Definition | None:
        """Return the flow that a step kind generates, or None if errors were reported.

        Args:
            kind: The step kind.
            config: Its configuration, in long form.
            file: The file that contains it.
            loc: Its place.
        """
        flow = self._generated.flow(kind, config, file, loc)
        if flow is not None:
            self._waiting.append(flow)
        while self._waiting and self._generated.is_ready:
            self.part(self._waiting.pop(0))
        return flow

    def is_generating(self, kind: str, config: Any, file: FlowFile) -> bool:
        """Return whether the flow for a use of a step kind is being generated at the moment."""
        return self._generated.is_generating(kind, config, file)

    def notification(
        self, user: Definition, file: FlowFile, tool: str, about: str, loc: Loc
    ) -> Definition | None:
        """Return the flow that sends notifications with a tool, or None if errors were reported.

        Args:
            user: The flow that notifies, which is compiled together with it.
            file: Its file.
            tool: The name of the tool there.
            about: See `notification_flow`.
            loc: Its place.
        """
        key = (file, tool, about)
        if key not in self._notifications:
            found = notification_flow(self.files, file, tool, about, loc)
            self._notifications[key] = found
            if found is not None:
                self.part(found)
        known = self._notifications[key]
        if known is not None:
            self._notified.setdefault(user, {})[known] = None
        return known

    def tools_of(self, file: FlowFile) -> Tools:
        """Return the tools of a file as its own flow sees them, compiled for inspection."""
        if file not in self._tools:
            expressions = Expressions(file.report, {name: name for name in file.model.secrets})
            scope = DeclarationScope(file, file.flow, expressions, self)
            self._tools[file] = Tools(scope, EnvironmentDeclarations(scope))
        return self._tools[file]

    def secret(self, file: FlowFile, name: str) -> str:
        """Return the name of a file's secret in the compiled flow."""
        if file is self.first:
            return name
        qualified = file.prefix + name
        model = file.model.secrets.get(name)
        if model is not None:
            self.secrets[qualified] = model.plain()
        return qualified


def _warn(file: FlowFile, loc: Loc, noun: str, declared: Iterable[str], names: set[str]) -> None:
    for name in declared:
        if name not in names and "*" not in names:
            message = f"the {noun} {name!r} is never used"
            hint = "remove it"
            if noun == "environment":
                hint = "name it at a step or tool that works in it, or remove it"
            file.report.at("W105", message, (*loc, name), hint, key=True)

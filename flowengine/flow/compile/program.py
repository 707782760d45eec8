"""A flow with all that it runs: each flow compiled once, then linked to one compiled flow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flowengine.flow.compile.flow import Compiler
from flowengine.flow.compile.link import link
from flowengine.flow.compile.types import UNKNOWN, Schema, closed
from flowengine.flow.diagnostics import did_you_mean
from flowengine.flow.files import Definition, File, Files, known_names
from flowengine.flow.models import Loc
from flowengine.flow.models.types import Effect
from flowengine.kernel.graph import CompiledFlow


class Program:
    """Compiles a file with what it imports.

    Args:
        files: The files.
        first: The file that is compiled.
    """

    def __init__(self, files: Files, first: File) -> None:
        self.files = files
        self.first = first
        self.read: dict[str, None] = {}
        """Python files that were read."""
        self._parts: dict[Definition, Compiler] = {}
        """In the order in which they were begun."""
        self._at_work: set[Definition] = set()
        self.secrets: dict[str, Any] = {}
        """Every secret that the compiled flow may name, with its reference."""

    def link(self) -> CompiledFlow:
        """Return the compiled form of a file that has been checked and has no errors."""
        main = self.part(self.first.flow)
        order = [self.first.flow]
        calls: list[list[tuple[int, int]]] = []
        for definition in order:  # grows while it is walked
            part = self._parts[definition]
            numbers = {id(spec): number for number, spec in enumerate(part.plan.flow["steps"])}
            called = [(numbers[id(spec)], one) for spec, one in part.calls.flows]
            order += [one for one in dict.fromkeys(one for _, one in called) if one not in order]
            calls.append([(step, order.index(one)) for step, one in called])
        flows = [(one.id, self._parts[one].plan.flow) for one in order]
        flow = link(flows, calls)
        flow["secrets"] = {**main.plan.flow["secrets"], **self.secrets}
        return flow

    def check(self) -> None:
        """Check all that the first file declares, and what it runs."""
        for definition in (self.first.flow, *self.first.flows.values()):
            self.part(definition)
        for part in list(self._parts.values()):
            part.check_handlers(lambda flow: self.part(flow).plan)
        self._unused()

    def _unused(self) -> None:
        """Warn of what the first file declares and nothing uses.

        Where there are errors, a use may be missing; and a library is there for others.
        """
        if self.files.diagnostics.errors or self.first.is_library:
            return
        file, parts = (
            self.first,
            [one for one in self._parts.values() if one.model.file is self.first],
        )
        own = {
            section: {name for part in parts for name in part.used(section)}
            for section in ("tools", "flows", "signals", "secrets")
        }
        own["flows"] |= {tool.flow for tool in file.model.tools.values() if tool.flow is not None}
        for section, names in own.items():
            _warn(file, (section,), section[:-1], getattr(file.model, section), names)
        for part in parts:
            loc = (*part.model.loc, "state")
            _warn(file, loc, "state", part.model.state, part.used("state"))

    def part(self, definition: Definition) -> Compiler:
        """Return a flow, compiled; one that is being compiled as far as it is known."""
        part = self._parts.get(definition)
        if part is None:
            part = self._parts[definition] = Compiler(definition, self)
            self._at_work.add(definition)
            part.compile()
            self._at_work.discard(definition)
        return part

    def outputs(self, definition: Definition) -> Schema:
        """Return the type of what a flow gives; of one that runs itself what it says of it."""
        part = self.part(definition)
        if definition in self._at_work:
            said = {name: one.json_schema or UNKNOWN for name, one in definition.outputs.items()}
            return closed(said)
        return closed(part.outputs)

    def effect(self, definition: Definition) -> Effect:
        """Return what a crash in a flow may repeat: `once` if one of its steps must not be."""
        if definition in self._at_work:
            return "pure"  # what calls it is part of it, and says it there
        steps = self.part(definition).plan.steps
        return "once" if any(one.effect == "once" for one in steps) else "idempotent"

    def find(self, file: File, name: str, loc: Loc) -> Definition | None:
        """Return the flow that a name means; None if that was reported.

        Args:
            file: The file in which it stands.
            name: `child`, `alias.child`, or the path of a file.
            loc: Where it stands.
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

    def secret(self, file: File, name: str) -> str:
        """Return by which name the compiled flow has a secret of a file."""
        if file is self.first:
            return name
        qualified = file.prefix + name
        model = file.model.secrets.get(name)
        if model is not None:
            self.secrets[qualified] = model.model_dump(exclude_none=True)
        return qualified


def _warn(file: File, loc: Loc, noun: str, declared: Iterable[str], names: set[str]) -> None:
    for name in declared:
        if name not in names and "*" not in names:
            message = f"the {noun} {name!r} is never used"
            file.report.at("W105", message, (*loc, name), "remove it", key=True)

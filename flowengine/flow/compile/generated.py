"""Flows that step kinds generate: what a kind is told of a file, and the flow it gives, loaded.

What a kind generates passes through the same models as a file. Its places are below the place of
what it was made from, where nothing stands; so whatever is wrong in it is reported there.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from flowengine import registry
from flowengine.errors import FlowEngineError
from flowengine.flow.compile.addresses import NO_HOST
from flowengine.flow.compile.callee import Callee
from flowengine.flow.compile.chosen_servers import Use, chosen_by_caller
from flowengine.flow.compile.declaration_scope import DeclarationScope, OtherFlows
from flowengine.flow.compile.environments import HOST, Environments
from flowengine.flow.compile.expressions import Expressions
from flowengine.flow.compile.offered_environments import (
    Ambiguous,
    Uses,
    taken,
    taken_by_brought,
)
from flowengine.flow.compile.tool_servers import check_offered
from flowengine.flow.loading.files import Definition, File, known_names
from flowengine.flow.loading.load import load_generated
from flowengine.flow.models import Loc, Tool
from flowengine.flow.models.kinds import tools_for_globs, tools_of
from flowengine.sdk.generated_flows import GLOB, Declared, DeclaredTool, ServerTools
from flowengine.sdk.literal_text import plain_text
from flowengine.sdk.near_words import did_you_mean
from flowengine.sdk.read_folders import (
    UnreadableFolder,
    find_folders,
    glob_root,
    read_folder,
)

if TYPE_CHECKING:
    from flowengine.flow.compile.tools import Tools
    from flowengine.kernel.graph.compiled import Plain


class Program(OtherFlows, Protocol):
    """What generating needs of what compiles all flows."""

    named: set[tuple[File, str, str]]
    """File, section and name of what something else than its own declaration names."""

    def tools_of(self, file: File) -> Tools:
        """Return the tools of a file as its own flow sees them, compiled for looking at."""


class FileDeclarations:
    """What a file declares, as `flowengine.sdk.generated_flows.Declarations` has it.

    Args:
        program: Finds other files.
        file: The file.
        use: Where what generates a flow is used, for what stands nowhere else: a file and a place.
    """

    def __init__(self, program: Program, file: File, use: tuple[File, Loc]) -> None:
        self.program = program
        self.file = file
        self.use = use

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileDeclarations) and other.file is self.file

    def __hash__(self) -> int:
        return hash(id(self.file))

    @property
    def defaults(self) -> Mapping[str, Plain]:
        """`defaults` of the file."""
        found: dict[str, Any] = self.file.model.defaults.model_dump(
            by_alias=True, exclude_unset=True
        )
        return found

    def refuse(self, code: str, message: str, loc: Loc, hint: str | None = None) -> None:
        """Report an error."""
        file, place = (self.file, loc) if loc else self.use
        file.report.at(code, message, place, hint)

    def find(self, section: str, name: str, loc: Loc) -> Declared | None:
        """Return what a name of a section means."""
        file, place = (self.file, loc) if loc else self.use
        owner = self.program.files.owner(self.file, section, name, place)
        if owner is None:
            return None
        home, inner = owner
        found = getattr(home.model, section).get(inner)
        if found is None:
            if not home.knows_of(section, inner):
                noun = section.removesuffix("s")
                known = list(known_names(self.file, section))
                hint = did_you_mean(name, known) or f"declare it under {section!r}"
                file.report.at("E401", f"there is no {noun} {name!r}", place, hint)
            return None
        if (file, place) != (home, (section, inner)):
            self.program.named.add((home, section, inner))
        content = found.model_dump(by_alias=True, exclude_unset=True)
        there = self if home is self.file else FileDeclarations(self.program, home, self.use)
        prefix = name.removesuffix(inner)
        return Declared(inner, content, (section, inner), there, prefix)

    def tools(
        self,
        pattern: str,
        loc: Loc,
        environments: Uses = MappingProxyType({}),
        words: Sequence[str] = (),
    ) -> list[DeclaredTool]:
        """Return the tools that a name or glob means."""
        is_glob = not GLOB.isdisjoint(pattern)
        server = self._server(pattern)
        if server is not None:
            return self._of_server(pattern, *server, loc)
        if not is_glob:
            found = self._tool(pattern, loc, environments, words)
            return [] if found is None else [found]
        kind = pattern.partition(".")[0]  # `*s` means no tool that the file does not name
        says_kind_only = pattern[len(kind) :][1:2] in GLOB
        brought = tools_for_globs(kind, all=says_kind_only) if kind in registry.kind_names() else []
        names = [*known_names(self.file, "tools"), *brought]
        fits = [name for name in names if fnmatchcase(name, pattern)]
        told = [tool for name in fits if (tool := self._tool(name, loc, environments))]
        if not fits:
            hint = did_you_mean(pattern, names) or "declare them under 'tools'"
            self.refuse("E401", f"no tool matches {pattern!r}", loc, hint)
        return told

    def _server(self, pattern: str) -> tuple[str, Tool] | None:
        """Return the server whose tools a pattern names; None: it names no server."""
        for name in known_names(self.file, "tools"):
            model = self._model(name) if f"{pattern}.".startswith(f"{name}.") else None
            if model is not None and model.server is not None:
                return name, model
        return None

    def _of_server(self, pattern: str, name: str, model: Tool, loc: Loc) -> list[DeclaredTool]:
        """Return what a pattern names of a server; that it cannot be called is reported."""
        server, tool = model.server, pattern.removeprefix(name).removeprefix(".")
        assert server is not None
        file, place = (self.file, loc) if loc else self.use
        named = not tool or GLOB.isdisjoint(tool)
        if named and not check_offered(file.report, server, tool, pattern, place):
            return []
        self.program.tools_of(self.file).used.add(name)
        content = model.model_dump(by_alias=True, exclude_unset=True)
        tools = ServerTools(name, tool, server.include, server.exclude)
        return [DeclaredTool(pattern, plain_text(model.description or ""), None, content, tools)]

    def _model(self, name: str) -> Tool | None:
        owner = self.program.files.owner(self.file, "tools", name, ())
        return None if owner is None else owner[0].model.tools.get(owner[1])

    def _tool(
        self, name: str, loc: Loc, offered: Uses, words: Sequence[str] = ()
    ) -> DeclaredTool | None:
        """Return a tool by its name.

        Args:
            loc: Where it is named.
            offered: Environments that it may work in.
            words: What may stand there in place of a tool.
        """
        model = self._model(name)
        kind, _, tool = name.partition(".")
        tools = self.program.tools_of(self.file)
        if model is None and tool in (brought := tools_of(kind)):
            told = brought[tool]
            with self._reporting_ambiguity(name, loc):
                works_in = taken_by_brought(tools.environments, told, offered)
                return DeclaredTool(name, told["description"], told["args"], {}, modifiers=works_in)
            return None
        callee = tools.find(name, loc or self.use[1], words)
        if callee is None or model is None:
            return None
        modifiers: dict[str, Any] = {}
        with self._reporting_ambiguity(name, loc):
            modifiers = taken(tools.environments, callee, model, offered)
        self._check_server(name, callee, model, modifiers, loc)
        args: dict[str, Any] = callee.args or {"type": "object"}
        if model.args is not None:
            args = plain_text(args)
        bound = {*(callee.bind or {}), *modifiers.get("environments", {})}
        properties = {k: v for k, v in args.get("properties", {}).items() if k not in bound}
        required = [one for one in args.get("required", ()) if one not in bound]
        seen: dict[str, Any] = {**args, "properties": properties, "required": required}
        if not required:
            del seen["required"]
        content = model.model_dump(by_alias=True, exclude_unset=True)
        given = next(iter(model.kinds.values()), None)
        says_where = isinstance(given, dict) and "in" in given
        on_host = callee.task.get("in") == HOST and not says_where and "in" not in modifiers
        about = plain_text(model.description) or callee.description
        return DeclaredTool(
            name,
            about,
            seen,
            content,
            by_default_on_host=on_host,
            has_unread_parameters=callee.args is None and "python" in model.kinds,
            modifiers=modifiers,
        )

    def _check_server(
        self, name: str, callee: Callee, model: Tool, modifiers: Mapping[str, Any], loc: Loc
    ) -> None:
        """Report that a tool sends requests to whatever server its caller, a model, says (E410)."""
        owner = self.program.files.owner(self.file, "tools", name, ())
        assert owner is not None
        tools = self.program.tools_of(self.file)
        use = Use(tools.environments, modifiers.get("environments", {}))
        chosen = chosen_by_caller(tools.of_file(owner[0]), callee, model, use)
        if chosen is None:
            return
        message = f"{name!r} sends requests to whatever server a model names"
        if callee.flow is not None:
            message += f": '{chosen}' in its flow decides"
        self.refuse("E410", message, loc, NO_HOST)

    @contextmanager
    def _reporting_ambiguity(self, tool: str, loc: Loc) -> Iterator[None]:
        """Report that several environments would do for a tool (E402)."""
        try:
            yield
        except Ambiguous as error:
            names = " and ".join(map(repr, error.names))
            message = f"{tool!r} works in one environment, and {names} would both do"
            if len(error.names) > 2:
                message = f"{tool!r} works in one environment, and any of {names} would do"
            hint = f"say which with the tool: 'in: {error.names[0]}' or 'environments'"
            self.refuse("E402", message, loc, hint)

    def text(self, path: str, loc: Loc) -> str:
        """Return the text of a file beside this one."""
        full = os.path.join(self.file.folder, path)
        try:
            with open(full, encoding="utf-8") as file:
                found = file.read()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text in UTF-8"
            self.refuse("E401", f"{path!r} cannot be read: {why}", loc, "give the path of a file")
            return ""
        self.program.read[full] = None
        return found

    def function(self, name: str, loc: Loc) -> dict[str, Plain]:
        """Return how a function of a module beside this file is found."""
        self.program.tools_of(self.file).function(name, loc)
        return {"name": name, "folder": self.file.folder}

    def folders(
        self, pattern: str, marked: str, largest: int, loc: Loc
    ) -> dict[str, dict[str, bytes]]:
        """Return the folders that a path or glob means, with their files."""
        read = self.program.read
        is_glob = not GLOB.isdisjoint(pattern)
        if is_glob:
            read[glob_root(self.file.folder, pattern)] = None
        found: dict[str, dict[str, bytes]] = {}
        for folder in find_folders(self.file.folder, pattern):
            shown = os.path.relpath(folder, self.file.folder)
            if not os.path.isfile(os.path.join(folder, marked)):
                read[folder] = None
                continue
            try:
                found[shown], sources = read_folder(folder, largest)
            except UnreadableFolder as error:
                self.refuse("E401", error.message, loc, error.hint)
                found[shown] = {}
            else:
                read.update(dict.fromkeys(sources))
        if not found:
            what = "no folder that matches" if is_glob else "no folder"
            message = f"there is {what} {pattern!r} with a file {marked!r}"
            self.refuse("E401", message, loc, "give the path of a folder, relative to this file")
        return {shown: files for shown, files in found.items() if files}


def looking_at(file: File, program: Program) -> tuple[DeclarationScope, Environments]:
    """Return the scope of a file's declarations for looking at them: nothing is compiled for good.

    Args:
        file: The file.
        program: The other files.
    """
    secrets = {name: name for name in file.model.secrets}
    scope = DeclarationScope(file, file.flow, Expressions(file.report, secrets), program)
    return scope, Environments(scope)


class Generated:
    """The flows that step kinds have generated, each once.

    Args:
        program: The other flows and files.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._asked: dict[tuple[File, str, str], Definition | None] = {}
        self._pending: set[tuple[File, str, str]] = set()
        self._known: dict[tuple[File, str], Definition] = {}

    def flow(self, kind: str, config: Any, file: File, loc: Loc) -> Definition | None:
        """Return the flow that a use of a kind runs; None if what is wrong was reported.

        Args:
            kind: The step kind, which generates flows.
            config: What stands behind its key, in long form.
            file: The file in which it stands.
            loc: Where.
        """
        key = (file, kind, repr(config))
        if key not in self._asked and key not in self._pending:
            self._pending.add(key)
            self._asked[key] = self._flow(kind, config, file, loc)
            self._pending.remove(key)
        return self._asked.get(key)

    @property
    def is_ready(self) -> bool:
        """Whether no flow is being generated right now."""
        return not self._pending

    def is_generating(self, kind: str, config: Any, file: File) -> bool:
        """Return whether the flow of a use of a kind is being generated: it leads to itself."""
        return (file, kind, repr(config)) in self._pending

    def _flow(self, kind: str, config: Any, file: File, loc: Loc) -> Definition | None:
        declarations = FileDeclarations(self.program, file, (file, loc))
        made = registry.kind_class(kind).generate(config, declarations)
        if made is None:
            return None
        home = made.home
        if not isinstance(home, FileDeclarations):
            raise FlowEngineError(f"step kind {kind!r}: the home of a flow is a file that it found")
        for number in range(1, len(self._known) + 2):
            name = made.id if number == 1 else f"{made.id}_{number}"
            known = self._known.get((home.file, name))
            if known is None:
                break
            if known.generated is not None and known.generated.body == made.body:
                return known
        place: Loc = (*(made.loc or loc), "(generated)")
        source = (home.file if made.loc else file).source
        body = load_generated(
            copy.deepcopy(dict(made.body)), source, place, self.program.files.diagnostics
        )
        if body is None:
            return None
        found = Definition(home.file, body, name)
        found.generated, found.by = made, kind
        self._known[home.file, name] = found
        return found

"""Flow files with their imports (docs/language.md: imports).

Each file is read once, even if several files name it. Its declarations belong to it: errors are
reported at its own lines, and its declarations see its own inputs, defaults and secrets.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from glob import glob
from typing import Any

from flowengine.errors import NotFound
from flowengine.flow.loading.inline_agents import with_entries
from flowengine.flow.loading.load import load_source
from flowengine.flow.models import FlowBody, FlowModel, GeneratedBody, Loc, ParallelStep
from flowengine.flow.source.diagnostics import DiagnosticReporter, Diagnostics, Origin, SourceLines
from flowengine.flow.source.yaml_source import Source, read
from flowengine.sdk.python.imported_modules import NO_FILES, find_module, may_read_files
from flowengine.sdk.steps.generated_flows import GeneratedFlow
from flowengine.sdk.texts.near_words import did_you_mean


class Definition:
    """One flow: that of a file, or an entry of its `flows`.

    Args:
        file: The file that contains it.
        body: Its own content.
    """

    def __init__(self, file: FlowFile, body: FlowModel | FlowBody, id: str) -> None:
        self.file = file
        self.id = id
        self.loc = body.loc
        model = file.model
        self.version, self.title = model.version, model.title
        self.signals, self.secrets, self.tools = model.signals, model.secrets, model.tools
        self.defaults, self.unread = model.defaults, model.unread
        self.outcome = None
        self.callees: Mapping[str, list[ParallelStep]] = {}
        self.counts_alone = isinstance(body, GeneratedBody)
        if isinstance(body, GeneratedBody):
            self.outcome, self.signals = body.outcome, {**model.signals, **body.signals}
            self.callees = body.callees
        self.inputs, self.outputs, self.state = body.inputs, body.outputs, body.state
        self.steps, self.on_error, self.finally_ = body.steps, body.on_error, body.finally_
        self.limits, self.budget = body.limits, body.budget
        self.left_out = model.left_out
        self.generated: GeneratedFlow | None = None
        """The flow as returned by the step kind that generated it."""
        self.by = ""
        """The name of that kind."""
        self.written: Any = None
        """Its content, if the compiler has written it itself."""

    @property
    def is_own(self) -> bool:
        """Whether it is the flow of its file, whose inputs the file's declarations see."""
        return not self.loc

    @property
    def data(self) -> Any:
        """Its content, in the file or as generated, as plain data."""
        if self.generated is not None:
            return self.generated.body
        if self.written is not None:
            return self.written
        data = self.file.source.data
        for key in self.loc:
            data = data[key]
        return data


class FlowFile:
    """A flow file that was read.

    Args:
        source: Its text.
        model: Its content.
        folder: The directory for relative paths and Python modules.
        report: Receives its errors.
        prefix: The imports by which the first file reaches it: `lib.`. Empty for the first file.
    """

    def __init__(
        self, source: Origin, model: FlowModel, folder: str, report: DiagnosticReporter, prefix: str
    ) -> None:
        self.source = source
        self.model = model
        self.folder = folder
        self.report = report
        self.prefix = prefix
        self.imports: dict[str, FlowFile | None] = {}
        """Alias → file, or None if it could not be read, which was reported."""
        self.flow = Definition(self, model, model.id)
        """Its own flow. For a library, one without steps."""
        self.flows = {name: Definition(self, body, name) for name, body in model.flows.items()}

    @property
    def name(self) -> str:
        """The name of the file in reports."""
        return self.source.position(()).file

    @property
    def is_library(self) -> bool:
        """Whether it has no steps."""
        return not self.model.steps and not self.knows_of("steps")

    def knows_of(self, section: str, name: str | None = None) -> bool:
        """Return whether a part of the file was left out because of an error."""
        loc: Loc = (section,) if name is None else (section, name)
        return self.model.left_out(loc) or (section,) in self.model.unread


class FlowFiles:
    """All files of one compilation.

    Args:
        diagnostics: Receives their errors.
    """

    def __init__(self, diagnostics: Diagnostics) -> None:
        self.diagnostics = diagnostics
        self.sources: dict[str, SourceLines] = {}
        """Every file that was read, by its name in reports."""
        self.paths: list[str] = []
        """Those on disk, in the order of reading."""
        self._known: dict[str, FlowFile | None] = {}
        self._loading: dict[str, str] = {}
        """Files whose imports are being read, with their names. Each imports the next."""

    def first(self, source: Origin, folder: str, path: str | None) -> FlowFile | None:
        """Return the compiled file with its imports, or None if nothing is left to check.

        Args:
            source: Its text.
            folder: The directory for relative paths.
            path: Its path on disk, if it is on disk.
        """
        if path is not None:
            self.paths.append(path)
        return self._load(source, folder, os.path.realpath(path) if path else "", "")

    def _load(self, source: Origin, folder: str, place: str, prefix: str) -> FlowFile | None:
        self.sources.update(source.files)
        source = with_entries(source)
        model = load_source(source, self.diagnostics)
        if model is None:
            self._known[place] = None
            return None
        file = FlowFile(source, model, folder, DiagnosticReporter(source, self.diagnostics), prefix)
        self._known[place] = file
        self._loading[place] = file.name
        for alias, path in model.imports.items():
            file.imports[alias] = self._import(file, alias, path)
        del self._loading[place]
        return file

    def _import(self, file: FlowFile, alias: str, path: str) -> FlowFile | None:
        loc = ("imports", alias)
        path_found = self._find(file, path, loc)
        if path_found is None:
            return None
        place = os.path.realpath(path_found)
        if place in self._loading:
            names = list(self._loading.values())
            chain = [*names[list(self._loading).index(place) :], self._loading[place]]
            message = f"the imports form a cycle: {' → '.join(chain)}"
            file.report.at(
                "E405", message, loc, "move the shared declarations into a separate file"
            )
            return None
        return self._get(path_found, place, f"{file.prefix}{alias}.", file, path, loc)

    def at(self, file: FlowFile, path: str, loc: Loc) -> FlowFile | None:
        """Return the file at a path that another one names, or None if it was reported.

        Args:
            file: The file that names it.
            path: As written there.
        """
        path_found = self._find(file, path, loc)
        if path_found is None:
            return None
        stem = os.path.splitext(os.path.basename(path))[0]
        prefix = f"{file.prefix}{stem}."
        return self._get(path_found, os.path.realpath(path_found), prefix, file, path, loc)

    def _get(
        self, full_path: str, place: str, prefix: str, file: FlowFile, path: str, loc: Loc
    ) -> FlowFile | None:
        if place not in self._known:
            source = self._read(full_path, file, path, loc)
            if source is None:
                return None
            self.paths.append(full_path)
            folder = os.path.dirname(os.path.abspath(full_path))
            taken = {one.prefix for one in self._known.values() if one is not None}
            numbers = (f"{prefix[:-1]}_{number}." for number in range(2, len(taken) + 3))
            unused = next(one for one in (prefix, *numbers) if one not in taken)
            self._load(source, folder, place, unused)
        return self._known[place]

    def _read(self, full_path: str, file: FlowFile, path: str, loc: Loc) -> Source | None:
        """Return a file that another one names, or None if it is not a flow file.

        The path may lead anywhere, for example to a private key. A file that does not declare
        itself a flow is therefore refused without quoting any of its text.
        """
        try:
            source = read(full_path)
        except NotFound as error:
            file.report.at("E401", error.message, loc, "give the path of a flow file")
            return None
        if source.text and not source.says("flowengine"):
            hint = "flow files and libraries contain 'flowengine: 1'"
            file.report.at("E401", f"{path!r} is not a flow file", loc, hint)
            return None
        return source

    def _find(self, file: FlowFile, path: str, loc: Loc) -> str | None:
        """Return the path of a file for reports, or None if it does not exist."""
        if not may_read_files():
            file.report.at("E401", NO_FILES, loc, "write its content into the flow")
            return None
        package, colon, inside = path.partition(":")
        # The literal word of the syntax. A directory of that name is a package to Python, too.
        said = "write its name before the colon: acme_flows:letters/lib.yaml"
        meant = said if package == "package" else ""
        if colon and "/" not in package:
            spec = find_module(package, file.folder)
            folders = list(spec.submodule_search_locations or ()) if spec is not None else []
            if not folders:
                hint = meant or "install it, or write the path of the file"
                file.report.at("E401", f"there is no package {package!r}", loc, hint)
                return None
            full_path = os.path.join(folders[0], inside)
        else:
            # Unlike that of a text, the name of a file leads to its directory.
            named = os.path.dirname(file.name)
            is_beside = os.path.realpath(named or ".") == os.path.realpath(file.folder)
            above = named if is_beside else file.folder
            full_path = os.path.normpath(os.path.join(above, path))
        if not os.path.isfile(full_path):
            folder, name = os.path.split(full_path)
            endings = ("*.yaml", "*.yml", "*.json")
            beside = [one for end in endings for one in glob(end, root_dir=folder or ".")]
            near = did_you_mean(name, beside)
            hint = meant or near or "paths are relative to the file that contains them"
            file.report.at("E401", f"there is no file {path!r}", loc, hint)
            return None
        return full_path

    def around(self, file: FlowFile) -> list[FlowFile]:
        """Return a file and those that import it, directly or indirectly, the first file first."""
        known = [one for one in self._known.values() if one is not None]
        owners = [one for one in known if file.prefix.startswith(one.prefix)]
        return sorted(owners, key=lambda one: len(one.prefix))

    def owner(
        self, file: FlowFile, section: str, name: str, loc: Loc
    ) -> tuple[FlowFile, str] | None:
        """Return the file that declares a name, and the name there.

        Args:
            file: The file that uses the name.
            section: `tools`, `flows`: the section of the declaration.
            name: `name` or `alias.name`.
            loc: Place of the use.

        Returns:
            File and name, which need not be declared there, or None if an error was reported.
        """
        alias, dot, inner = name.partition(".")
        if not dot or alias not in file.model.imports:
            if dot and file.knows_of("imports", alias):
                return None
            return file, name
        other = file.imports[alias]
        return None if other is None or other.knows_of(section, inner) else (other, inner)


def known_names(file: FlowFile, section: str) -> Iterator[str]:
    """Yield all names of a section that a file can use, including those of its imports."""
    yield from getattr(file.model, section)
    for alias, other in file.imports.items():
        if other is not None:
            own = [other.model.id] if section == "flows" and not other.is_library else []
            yield from (f"{alias}.{name}" for name in (*own, *getattr(other.model, section)))

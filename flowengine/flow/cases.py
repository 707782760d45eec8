"""Test case files: their search, and their reading with the place of every error."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from flowengine import registry
from flowengine.errors import FlowFileError, NotFound
from flowengine.flow.compile import Compiled, compile_file
from flowengine.flow.loading.load import read_file
from flowengine.flow.models import Loc, Part
from flowengine.flow.models.cases import Case, CaseFile, Decisions
from flowengine.flow.source.diagnostics import DiagnosticReporter, Diagnostics
from flowengine.flow.source.yaml_source import Source, read, read_text, says
from flowengine.kernel.graph import environment_uses
from flowengine.kernel.graph.specs import CompiledFlow
from flowengine.kernel.notation.addresses import steps_in
from flowengine.sdk.steps.step_kind import StepKind
from flowengine.sdk.texts.near_words import did_you_mean

File = TypeVar("File", bound=Part)

# Search of directories for flow files and for test case files.

SUFFIX = ".test.yaml"
"""The suffix of test case files."""


def files_below(folder: str, *endings: str) -> list[str]:
    """Return the files below a directory, sorted by name, without hidden directories.

    Args:
        folder: The directory.
        *endings: Suffixes of their names.
    """
    paths: list[str] = []
    for base, folders, files in os.walk(folder):
        folders[:] = [
            folder for folder in folders if not folder.startswith(".") and folder != "node_modules"
        ]
        paths += (
            os.path.normpath(os.path.join(base, file))
            for file in files
            if file.endswith(endings) and _is_to_be_read(os.path.join(base, file))
        )
    return sorted(paths)


def flow_files(paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the flow files that a list of files and directories stands for.

    Args:
        paths: Files, which are returned with any content, and directories, whose YAML files are
            returned if they contain `flowengine:`.

    Returns:
        Flow files without duplicates, and the other YAML files of the directories.

    Raises:
        NotFound: A directory has no flow file.
    """
    found: list[str] = []
    others: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            found.append(path)
            continue
        inside = [file for file in files_below(path, ".yaml", ".yml") if not file.endswith(SUFFIX)]
        flows = [file for file in inside if _says_so(file)]
        if not flows:
            raise NotFound(
                f"there is no flow file in {path}",
                hint="a flow file is YAML with 'flowengine: 1'. flowengine init writes one",
            )
        found += flows
        others += [file for file in inside if file not in flows]
    return list(dict.fromkeys(found)), list(dict.fromkeys(others))


def _is_to_be_read(path: str) -> bool:
    """Return whether a path is a file, or a link whose target its reader reports."""
    return os.path.isfile(path) or (os.path.islink(path) and not os.path.exists(path))


def _says_so(path: str) -> bool:
    """Return whether a file declares itself a flow. An unreadable one is reported by its reader."""
    try:
        with open(path, "rb") as file:
            return says(file.read().decode("utf-8", "replace"), "flowengine")
    except OSError:
        return True


# Reading of test case files, with the place of every error, including unknown names.


class Cases(NamedTuple):
    """A test case file, and the flow that it tests."""

    path: str
    """As the user wrote it."""
    source: Source
    model: CaseFile
    flow: Compiled
    flow_path: str


def load_cases(path: str) -> Cases:
    """Read a file of test cases and compile its flow.

    Returns:
        The cases.

    Raises:
        FlowFileError: The file, or that of the flow, has errors. The exception contains all of
            them.
        NotFound: The file does not exist.
    """
    source = read(path)
    diagnostics = Diagnostics()
    # a link may lead to any file, so its content is not quoted
    if source.text and not source.says("cases"):
        message = f"{path} is not a test case file: 'cases:' is missing"
        raise FlowFileError(message, [])
    report = DiagnosticReporter(source, diagnostics)
    model = read_file(CaseFile, source, report, "cases")
    if model is None:
        diagnostics.refuse(source.files)
    flow_path = _flow_path(path, model)
    if flow_path is None or not os.path.isfile(flow_path):
        named = model.flow or flow_path or "'flow'"
        hint = "give the path of the flow file, relative to this file"
        report.at("E401", f"there is no flow file {named}", ("flow",), hint)
        diagnostics.refuse(source.files)
    if not read(flow_path).says("flowengine"):
        message = f"{model.flow or flow_path!r} is not a flow file"
        report.at("E401", message, ("flow",), "a flow file contains 'flowengine: 1'")
        diagnostics.refuse(source.files)
    compiled = compile_file(flow_path)
    _Names(report, compiled.flow).check(model)
    if diagnostics.errors:
        diagnostics.refuse(source.files)
    return Cases(path, source, model, compiled, flow_path)


def parse_cases(text: str) -> CaseFile:
    """Return the model of a test case file from its text, without looking up names.

    Args:
        text: The content of the file. Errors in it raise `FlowFileError`.

    Returns:
        The model.
    """
    return parsed(CaseFile, text, "cases.test.yaml")


def parsed(kind: type[File], text: str, name: str) -> File:
    """Return the model of a file with cases from its text.

    Args:
        kind: The model of the file.
        text: The content of the file. Errors in it raise `FlowFileError`.
        name: Name of the file in messages.

    Returns:
        The model.
    """
    source = read_text(text, name)
    diagnostics = Diagnostics()
    model = read_file(kind, source, DiagnosticReporter(source, diagnostics), "cases")
    if model is None or diagnostics.errors:
        diagnostics.refuse(source.files)
    return model


def cases_beside(flow: str) -> str:
    """Return the path of the test case file of a flow file."""
    return f"{os.path.splitext(flow)[0]}{SUFFIX}"


def flow_beside(cases: str) -> str:
    """Return the path of the flow file of a test case file that does not name one."""
    return f"{cases.removesuffix(SUFFIX)}.yaml"


def _flow_path(path: str, model: CaseFile) -> str | None:
    """Return the path of the flow file, relative to the current directory."""
    if model.flow is not None:
        return os.path.normpath(os.path.join(os.path.dirname(path), model.flow))
    return flow_beside(path) if path.endswith(SUFFIX) else None


class _Names:
    """Checks the names in the cases against the flow.

    Args:
        report: Receives the unknown names.
    """

    def __init__(self, report: DiagnosticReporter, flow: CompiledFlow) -> None:
        self.report = report
        self.flow = flow
        self.steps = list(dict.fromkeys(step["id"] for step in flow["steps"]))
        self.agents = list(dict.fromkeys(s["id"] for s in flow["steps"] if _is_rehearsed(s)))
        """Steps that call models."""
        self.tools = list(dict.fromkeys(s["tool"] for s in flow["steps"] if "tool" in s))
        kinds = {"task": self.tools, "approval": self.tools}
        self.asking = [s["id"] for s in flow["steps"] if s.get("action") in kinds]
        budgets = [body.get("budget", {}) for body in (flow, *flow.get("flows", ()))]
        self.hidden = ["finally"]
        """Addresses that are not steps."""
        if any(budget.get("then") == "ask" for budget in budgets):
            self.hidden.append("budget")
        asked = [
            name
            for s in flow["steps"]
            for name in environment_uses.asking(environment_uses.of_step(s))
        ]
        asked += [s["tool"] for s in flow["steps"] if "approval" in s and "tool" in s]
        self.environments = list(dict.fromkeys(asked))

    def check(self, model: CaseFile) -> None:
        first: dict[str, Loc] = {}
        for case in model.cases:
            loc = case.loc
            if case.name in first:
                line = self.report.source.position(first[case.name]).line
                message = f"duplicate case name {case.name!r}"
                self.report.at("E105", message, (*loc, "name"), f"line {line} has it too")
            first.setdefault(case.name, loc)
            self._case(case, loc)

    def _case(self, case: Case, loc: Loc) -> None:
        declared = self.flow.get("inputs", {})
        self._known("input", case.inputs, declared, (*loc, "inputs"))
        for name in case.tools:
            if not _is_among(name, self.tools) and self._unknown_step(name):
                known = [*self.tools, *self.steps]
                self._one("tool or step", name, known, (*(*loc, "tools"), name))
        for name in case.agents:
            if steps_in(name)[-1] not in self.agents:
                self._one("agent", name, self.agents, (*loc, "agents", name))
        self._decisions(case.approvals, (*loc, "approvals"))
        bodies = (self.flow, *self.flow.get("flows", ()))
        of_agents = [
            n for body in bodies for n in body.get("signals", {}) if n.startswith("agent.")
        ]
        signals = [*self.flow.get("signals", {}), *dict.fromkeys(of_agents)]
        for sending in case.signals:
            self._one("signal", sending.name, signals, (*sending.loc, "name"), key=False)
        state = self.flow.get("state", {})
        for operating in case.operator:
            self._known("state", operating.set, state, (*operating.loc, "set"))
            for key in ("retry", "fork"):
                if (address := getattr(operating, key)) is not None:
                    self._address(address, (*operating.loc, key))
        expect = case.expect
        self._known("state", expect.state or {}, state, (*expect.loc, "state"))
        outputs = self.flow.get("outputs", {})
        self._known("output", expect.outputs or {}, outputs, (*expect.loc, "outputs"))
        for key in ("path", "waits"):
            for index, address in enumerate(getattr(expect, key) or ()):
                self._address(address, (*expect.loc, key, index))
        for address in expect.steps or ():
            self._address(address, (*expect.loc, "steps", address))

    def _decisions(self, decisions: Mapping[str, Decisions], loc: Loc) -> None:
        for name in decisions:
            if not _is_among(name, self.environments) and self._unknown_step(name):
                self._one("step", name, [*self.asking, *self.environments], (*loc, name))

    def _address(self, address: str, loc: Loc) -> None:
        if self._unknown_step(address):
            self._one("step", steps_in(address)[0], self.steps, loc, key=False)

    def _unknown_step(self, address: str) -> bool:
        """Return whether an address does not begin at a step of the flow."""
        first = steps_in(address)[0]
        return first not in self.steps and first not in self.hidden

    def _known(self, what: str, given: Iterable[str], known: Iterable[str], loc: Loc) -> None:
        for name in given:
            self._one(what, name, known, (*loc, name))

    def _one(
        self, what: str, name: str, known: Iterable[str], loc: Loc, *, key: bool = True
    ) -> None:
        names = list(known)
        if name not in names:
            few = ", ".join(names)
            listed = f"known are {few}" if few and len(few) < 80 else None
            hint = did_you_mean(name, names) or listed
            message = f"the flow has no {what} {name!r}"
            self.report.at("E401", message, loc, hint, key=key)


def _is_among(name: str, tools: Iterable[str]) -> bool:
    """Return whether a name is one of these. `server.*` matches any tool of a server."""
    return any(
        name == tool or (tool.endswith(".*") and name.startswith(tool[:-1])) for tool in tools
    )


def _is_rehearsed(step: Any) -> bool:
    """Return whether a case has replies for a step instead of outputs."""
    kind = step.get("kind", "")
    if not registry.has_kind(kind):
        return False
    return registry.kind_class(kind).rehearse is not StepKind.rehearse


def as_data(value: Any) -> Any:
    """Return a value of a case file as the flow sees it: `{$base64: TEXT}` is bytes."""
    if isinstance(value, dict):
        if list(value) == ["$base64"] and isinstance(value["$base64"], str):
            from base64 import b64decode

            return b64decode(value["$base64"])
        return {key: as_data(entry) for key, entry in value.items()}
    return [as_data(item) for item in value] if isinstance(value, list) else value

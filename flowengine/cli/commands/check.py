"""`flowengine check`: errors in flow files, what their codes mean, and the schema for editors."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from flowengine.agents.actions import TURN
from flowengine.agents.models.registry import SCRIPTED
from flowengine.cli.commands.init import as_text
from flowengine.cli.parsing.arguments import flow_named
from flowengine.cli.parsing.declared import arg, command, flag, one_of, section
from flowengine.cli.terminal.output import err, err_text, out, out_json, out_text, paint
from flowengine.engines.flows import LoadedFlow
from flowengine.errors import FlowFileError, NotFound, UsageError
from flowengine.flow.cases import flow_files
from flowengine.flow.compile import CheckResult, check_file
from flowengine.flow.compile.call_rules import compile_host_rules
from flowengine.flow.export.definition import expanded
from flowengine.flow.export.file_schema import case_schema, eval_schema, flow_schema, schema_for
from flowengine.flow.loading.files import FlowFiles
from flowengine.flow.loading.load import load_source
from flowengine.flow.source.diagnostics import Diagnostic, Diagnostics, render
from flowengine.flow.source.yaml_source import read
from flowengine.kernel.graph.specs import CompiledFlow
from flowengine.sdk.python.extras import models_missing
from flowengine.sdk.texts.near_words import did_you_mean
from flowengine.sdk.texts.visible_text import printable
from flowengine.settings_files import load_settings
from flowengine.store_folder import project_folder

SCHEMAS = {"flow": flow_schema, "test": case_schema, "eval": eval_schema}
"""Kind of a file → makes its schema."""


@command(
    "check flow files without running them, or explain an error code",
    """\
flowengine check expense.yaml
flowengine check --strict flows
flowengine check --print expense.yaml
flowengine check --explain E202
flowengine check --schema test > test-1.schema.json
flowengine check --schema flow expense.yaml > .flowengine/expense.schema.json""",
    arg(
        "files FILE",
        "flow files or directories of them, or the rules of the host in a rules.yaml",
        nargs="*",
    ),
    section("without --explain or --schema", flag("--strict", "treat warnings as errors")),
    one_of(
        flag("--print", "print the files with all short forms written out"),
        arg(
            "--explain CODE",
            "explain error codes such as E202 or W305: the cause, an example and the fix. "
            "Without one, all codes are listed",
            nargs="*",
        ),
        arg(
            "--schema",
            "print the JSON Schema of flow files, test cases or evaluations, for editors. With a "
            "flow FILE, its own steps, tools and signals are completions",
            choices=SCHEMAS,
        ),
    ),
)
def check_command(arguments: Namespace) -> int:
    """Check the files.

    Returns:
        The exit code: that of the first file that has errors.

    Raises:
        UsageError: No file is named, or one to which the option does not apply.
    """
    if arguments.explain is not None:
        return _explain(arguments)
    if arguments.schema is not None:
        out_text(as_text(_schema(arguments)))
        return 0
    if not arguments.files:
        raise UsageError("name the files to check", hint="see: flowengine check --help")
    codes = []
    found: list[Diagnostic] = []
    files, others = flow_files(arguments.files)
    if others and not arguments.quiet:
        err(f"not flow files, since they do not contain 'flowengine: 1': {', '.join(others)}")
    for path in files:
        code, diagnostics = _check(path, arguments)
        codes.append(code)
        found += diagnostics
    if arguments.json:
        out_json(
            {
                "errors": [finding.as_dict() for finding in found if not finding.is_warning],
                "warnings": [finding.as_dict() for finding in found if finding.is_warning],
            }
        )
    elif found and not arguments.quiet:
        codes_found = " ".join(sorted({finding.code for finding in found}))
        err(f"for details: flowengine check --explain {codes_found}")
    return next((code for code in codes if code), 0)


def _check(path: str, arguments: Namespace) -> tuple[int, list[Diagnostic]]:
    """Check one file, report its errors and warnings, and return them with the exit code."""
    flow, diagnostics, report = _checked(path)
    if report and not arguments.json:
        err_text(report)
    if any(not finding.is_warning for finding in diagnostics):
        return 3, diagnostics
    if arguments.json:
        return 3 if diagnostics and arguments.strict else 0, diagnostics
    if arguments.print and flow is not None:
        model = load_source(read(path), Diagnostics())
        assert model is not None
        out_text(expanded(model).rstrip("\n"))
    elif not arguments.quiet and not (diagnostics and arguments.strict):
        steps = "" if flow is None else LoadedFlow(flow, "").on_host
        out(printable(f"{path}: ok{steps and f', unsandboxed on this host: {steps}'}"))
        for why in [] if flow is None else _missing_here(flow):
            err(f"{paint('warning:', 'yellow')} {path}: {why}")
    return 3 if diagnostics and arguments.strict else 0, diagnostics


def _checked(path: str) -> CheckResult:
    """Check a flow, or the rules of the host, which have no compiled form."""
    try:
        if path.endswith("rules.yaml"):
            _, warnings, report = compile_host_rules(path)
            return CheckResult(None, warnings, report)
        named = flow_named(path)
        if isinstance(named, str):
            return check_file(named)
        flow, _, diagnostics, _ = named.compile()
    except FlowFileError as error:
        if not error.diagnostics:
            raise
        return CheckResult(None, error.diagnostics, error.message)
    return CheckResult(flow, diagnostics, render(diagnostics, {}))


def _missing_here(compiled: CompiledFlow) -> Iterator[str]:
    """Yield what a flow needs on this machine: members of its groups, and packages for models."""
    if named := dict.fromkeys(_assigned_groups(compiled)):
        yield from load_settings(project_folder()).without_members(named).values()
    agents: Any = [step["task"]["agent"] for step in compiled["steps"] if step.get("kind") == TURN]
    models = [entry for agent in agents for entry in agent.get("offers", {}).values()]
    names = {name for one in models for name in (one["model"], *one["fallbacks"]) if name}
    called = sorted(name for name in names if not name.startswith(f"{SCRIPTED}/"))
    if called and (why := models_missing()):
        yield f"{', '.join(called)}: {why}"


def _assigned_groups(compiled: CompiledFlow) -> Iterator[str]:
    """Yield the groups that a flow names as assignees, if they are not computed."""
    left: list[tuple[Any, bool]] = [(compiled, False)]
    while left:
        part, is_assignee = left.pop()
        if isinstance(part, dict):
            left += [(value, key == "assignees") for key, value in part.items()]
        elif isinstance(part, list):
            left += [(item, is_assignee) for item in part]
        elif is_assignee and isinstance(part, str) and part.startswith("group:"):
            yield part


def _explain(arguments: Namespace) -> int:
    """Print the explanations, or the list of all codes."""
    if arguments.files:
        raise UsageError("--explain takes codes, and no files", hint="check the files without it")
    pages = explanations()
    codes = [code.upper() for code in arguments.explain]
    for code in codes:
        if code not in pages:
            hint = did_you_mean(code, pages) or "list all codes: flowengine check --explain"
            raise NotFound(f"unknown error code {code!r}", hint=hint)
    if arguments.json:
        out_json({code: pages[code] for code in codes or pages})
    elif codes:
        out_text("\n".join(pages[code] for code in codes).rstrip("\n"))
    else:
        for page in pages.values():
            out(page.partition("\n")[0].removeprefix("# "))
    return 0


def explanations() -> dict[str, str]:
    """Return the page of each code, in Markdown, sorted by code."""
    folder = files("flowengine.flow") / "codes"
    pages = {
        page.name.removesuffix(".md"): page.read_text(encoding="utf-8") for page in folder.iterdir()
    }
    return dict(sorted(pages.items()))


def _schema(arguments: Namespace) -> dict[str, Any]:
    """Return a schema, that of flows with the names declared in a file, which may have errors.

    Raises:
        UsageError: The file cannot be read as a flow file, or the schema has no names of files.
    """
    if not arguments.files:
        return SCHEMAS[arguments.schema]()
    if arguments.schema != "flow" or len(arguments.files) > 1:
        raise UsageError("only --schema flow takes a FILE, and only one", hint="leave out the rest")
    path = arguments.files[0]
    folder = os.path.dirname(os.path.abspath(path))
    file = FlowFiles(Diagnostics()).first(read(path), folder, path)
    if file is None:
        raise UsageError(f"{path} is not a flow file", hint=f"flowengine check {path}")
    others = {alias: value.model for alias, value in file.imports.items() if value is not None}
    return schema_for(file.model, others)

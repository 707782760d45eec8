"""`flowengine check` and `explain`: errors in flow files, and what their codes mean."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from flowengine.agents.actions import TURN
from flowengine.agents.models.registry import SCRIPTED
from flowengine.cli.parsing.arguments import flow_named
from flowengine.cli.parsing.declared import arg, command, flag
from flowengine.cli.terminal.output import err, err_text, out, out_json, out_text, paint
from flowengine.engines.flows import LoadedFlow
from flowengine.errors import FlowFileError, NotFound
from flowengine.flow.cases import flow_files
from flowengine.flow.compile import CheckResult, check_file
from flowengine.flow.compile.call_rules import compile_host_rules
from flowengine.flow.export.definition import expanded
from flowengine.flow.loading.load import load_source
from flowengine.flow.source.diagnostics import Diagnostic, Diagnostics, render
from flowengine.flow.source.yaml_source import read
from flowengine.kernel.graph.specs import CompiledFlow
from flowengine.sdk.python.extras import models_missing
from flowengine.sdk.texts.near_words import did_you_mean
from flowengine.sdk.texts.visible_text import printable
from flowengine.settings_files import load_settings
from flowengine.store_folder import project_folder


@command(
    "check flow files without running them: names, types, edges, joins, expressions",
    """\
flowengine check expense.yaml
flowengine check --strict flows
flowengine check --print expense.yaml""",
    arg(
        "files FILE",
        "flow files or directories of them, or the rules of the host in a rules.yaml",
        nargs="+",
    ),
    flag("--strict", "treat warnings as errors"),
    flag("--print", "print the files with all short forms written out"),
)
def check_command(arguments: Namespace) -> int:
    """Check the files.

    Returns:
        The exit code: that of the first file that has errors.
    """
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
        err(f"for details: flowengine explain {codes_found}")
    return next((code for code in codes if code), 0)


def _check(path: str, arguments: Namespace) -> tuple[int, list[Diagnostic]]:
    """Check one file, report its errors and warnings, and return them with the exit code."""
    if path.endswith("rules.yaml"):
        return _check_rules(path, arguments)
    flow, diagnostics, report = _checked(path)
    if report and not arguments.json:
        err_text(report)
    if any(not finding.is_warning for finding in diagnostics):
        return 3, diagnostics
    if arguments.json:
        return 3 if diagnostics and arguments.strict else 0, diagnostics
    if arguments.print:
        model = load_source(read(path), Diagnostics())
        assert model is not None
        out_text(expanded(model).rstrip("\n"))
    elif not arguments.quiet and not (diagnostics and arguments.strict):
        out(f"{path}: ok{'' if flow is None else _host_steps(flow)}")
        for why in [] if flow is None else (*_empty_groups(flow), *_missing_for_models(flow)):
            err(f"{paint('warning:', 'yellow')} {path}: {why}")
    return 3 if diagnostics and arguments.strict else 0, diagnostics


def _checked(path: str) -> CheckResult:
    named = flow_named(path)
    if isinstance(named, str):
        return check_file(named)
    try:
        flow, _, diagnostics, _ = named.compile()
    except FlowFileError as error:
        return CheckResult(None, error.diagnostics, error.message)
    return CheckResult(flow, diagnostics, render(diagnostics, {}))


def _check_rules(path: str, arguments: Namespace) -> tuple[int, list[Diagnostic]]:
    """Check a file of rules of the host. See `_check`."""
    try:
        _, warnings, report = compile_host_rules(path)
    except FlowFileError as error:
        if not arguments.json:
            err_text(error.message)
        return 3, error.diagnostics
    if report and not arguments.json:
        err_text(report)
    is_refused = bool(warnings) and arguments.strict
    if not arguments.json and not arguments.quiet and not is_refused:
        out(f"{path}: ok")
    return 3 if is_refused else 0, warnings


def _missing_for_models(compiled: CompiledFlow) -> list[str]:
    """Return why the models that a flow names cannot be called on this machine."""
    agents: Any = [step["task"]["agent"] for step in compiled["steps"] if step.get("kind") == TURN]
    models = [entry for agent in agents for entry in agent.get("offers", {}).values()]
    named = {name for one in models for name in (one["model"], *one["fallbacks"]) if name}
    called = sorted(name for name in named if not name.startswith(f"{SCRIPTED}/"))
    why = models_missing() if called else ""
    return [f"{', '.join(called)}: {why}"] if why else []


def _empty_groups(compiled: CompiledFlow) -> list[str]:
    """Return why groups that approvals name as assignees have no members on this machine."""
    named = dict.fromkeys(_assigned_groups(compiled))
    return list(load_settings(project_folder()).without_members(named).values()) if named else []


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


def _host_steps(compiled: CompiledFlow) -> str:
    steps = LoadedFlow(compiled, "").on_host
    return printable(f", unsandboxed on this host: {steps}") if steps else ""


@command(
    "explain an error code of check: the cause, an example and the fix",
    """\
flowengine explain E202
flowengine explain""",
    arg("codes CODE", "codes such as E202 or W305. Without one, all codes are listed", nargs="*"),
)
def explain_command(arguments: Namespace) -> None:
    """Print the explanations, or the list of all codes."""
    pages = explanations()
    codes = [code.upper() for code in arguments.codes]
    for code in codes:
        if code not in pages:
            hint = did_you_mean(code, pages) or "list all codes: flowengine explain"
            raise NotFound(f"unknown error code {code!r}", hint=hint)
    if arguments.json:
        out_json({code: pages[code] for code in codes or pages})
    elif codes:
        out_text("\n".join(pages[code] for code in codes).rstrip("\n"))
    else:
        for page in pages.values():
            out(page.partition("\n")[0].removeprefix("# "))


def explanations() -> dict[str, str]:
    """Return the page of each code, in Markdown, sorted by code."""
    folder = files("flowengine.flow") / "codes"
    pages = {
        page.name.removesuffix(".md"): page.read_text(encoding="utf-8") for page in folder.iterdir()
    }
    return dict(sorted(pages.items()))

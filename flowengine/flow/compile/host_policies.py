"""The rules of a host, read from a separate file and evaluated right before a call.

They have the form of `policies` in a flow file but belong to no flow: their conditions see `args`
and `execution`. They are not compiled into flows, so a changed rule takes effect at once, including
for executions that have begun.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, NoReturn

from flowengine.errors import FlowFileError
from flowengine.flow.compile.expressions import Expressions
from flowengine.flow.compile.policies import is_kind_known
from flowengine.flow.compile.types import CALLS, EXECUTION, UNKNOWN
from flowengine.flow.compile.views import VisibleNames
from flowengine.flow.loading.long_form import Expander
from flowengine.flow.loading.validation import FileValidator, locate
from flowengine.flow.models.policy import Policy, PolicyFile
from flowengine.flow.models.types import shown
from flowengine.flow.source.diagnostics import Diagnostic, Diagnostics, render
from flowengine.flow.source.faults import Faults
from flowengine.flow.source.report import DiagnosticReporter
from flowengine.flow.source.yaml_source import Source, read
from flowengine.kernel.graph.compiled import Plain

FLOWS = frozenset({"flow", "agent"})
"""Kinds that only make further calls. The rules are applied to each of these calls."""

PROJECT = ".flowengine"
"""The directory of a project, whose rules can only restrict."""


class HostPolicies(NamedTuple):
    """The rules of one file."""

    compiled: dict[str, Plain]
    """`rules`: for each its verdict, agent, effect, environment, and the number of its condition.
    `expressions`: the conditions."""
    warnings: list[Diagnostic]
    report: str
    """The warnings, as a readable report."""


def compile_host_policies(path: str) -> HostPolicies:
    """Compile the rules of a host.

    Args:
        path: The file.

    Returns:
        The rules.

    Raises:
        FlowFileError: The file has errors. The exception contains all of them.
        NotFound: The file cannot be read.
    """
    source = read(path)
    diagnostics = Diagnostics()
    if not source.says("policies"):  # a link may lead to any file, so its content is not quoted
        message = f"{path} is not a policy file: 'policies:' is missing"
        raise FlowFileError(message, [])
    policies = _policies(source, diagnostics)
    report = DiagnosticReporter(source, diagnostics)
    expressions = Expressions(report, {})
    view = VisibleNames({"args": UNKNOWN, "calls": CALLS, "execution": EXECUTION})
    conditions = {}
    in_project = Path(path).absolute().parent.name == PROJECT
    for index, policy in enumerate(policies):
        if in_project and policy.verdict[0] == "allow":
            message = "a project's rules only restrict: this 'allow' answers no question"
            hint = "write it into ~/.config/flowengine/policies.yaml"
            report.at("W418", message, (*policy.loc, "allow"), hint, key=True)
        kind, colon, _ = policy.verdict[1].partition(":")
        if colon and kind in FLOWS:
            message = f"a call of kind {kind!r} only makes further calls"
            hint = "write rules for the tools that it calls"
            report.at("E401", message, (*policy.loc, policy.verdict[0]), hint)
        elif is_kind_known(report, policy) and policy.when is not None:
            loc = (*policy.loc, "when")
            conditions[index] = expressions.condition(policy.when, loc, view)
    if diagnostics.errors:
        _refuse(source, diagnostics)
    rules = [
        [[*policy.verdict], policy.agent, policy.effect, policy.environment, conditions.get(index)]
        for index, policy in enumerate(policies)
    ]
    compiled: dict[str, Plain] = {"rules": rules, "expressions": expressions.records}
    problems = list(diagnostics)
    return HostPolicies(compiled, problems, render(problems, source.files))


def _policies(source: Source, diagnostics: Diagnostics) -> list[Policy]:
    """Return the rules of a file.

    Raises:
        FlowFileError: The file cannot be read to its end, or has another form.
    """
    faults = Faults(source, diagnostics)
    if source.root is None:
        _refuse(source, diagnostics)
    if not isinstance(source.data, dict):
        message = f"{PolicyFile.NOUN} is a mapping, this is {shown(source.data)}"
        faults.add("E103", message, (), "start with 'policies:'")
        _refuse(source, diagnostics)
    expander = Expander(faults)
    expanded = expander.part(PolicyFile, dict(source.data), ())
    model = FileValidator(expander, PolicyFile).validate(expanded)
    if model is None or diagnostics.errors:
        _refuse(source, diagnostics)
    locate(model, ())
    return model.policies


def _refuse(source: Source, diagnostics: Diagnostics) -> NoReturn:
    problems = list(diagnostics)
    raise FlowFileError(render(problems, source.files), problems)

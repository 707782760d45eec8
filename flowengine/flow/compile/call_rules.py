"""The rules that apply to a call (docs/language/approvals.md: Rules).

Matching globs, the agent, the effect and the environment of a call are known at compile time. Only
the condition of a rule over the arguments remains, which the kernel evaluates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, cast

from flowengine import registry
from flowengine.errors import FlowFileError
from flowengine.flow.compile.expressions import Expressions
from flowengine.flow.compile.scopes import DeclarationScope
from flowengine.flow.compile.types import CALLS, EXECUTION, UNKNOWN, VisibleNames
from flowengine.flow.loading.files import FlowFile, known_names
from flowengine.flow.loading.load import read_file
from flowengine.flow.models.declarations import Rule, RuleFile
from flowengine.flow.models.kinds import brought_tools
from flowengine.flow.source.diagnostics import Diagnostic, DiagnosticReporter, Diagnostics, render
from flowengine.flow.source.yaml_source import read
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.rules import Called, in_order
from flowengine.kernel.graph.specs import CallsSpec, RuleSpec
from flowengine.sdk.steps.generated_flows import GLOB
from flowengine.sdk.texts.near_words import did_you_mean

_PATH = re.compile(r"\w+(\.\w+)*:\w+(\.\w+)*")
"""The path of a Python function, `package.module:function`."""


class CallRules:
    """The rules for the calls of a flow: those of its file, and of the files that use it.

    Args:
        scope: The names that declarations of the flow's file see.
    """

    def __init__(self, scope: DeclarationScope) -> None:
        self.scope = scope
        self._conditions: dict[tuple[FlowFile, int], int] = {}
        self._conditions_within: dict[tuple[FlowFile, int], int] = {}

    def of_call(self, call: Called) -> list[list[RuleSpec]]:
        """Return the rules that may apply to a call, one list per file. The stricter one counts.

        Args:
            call: The call.
        """
        own = self.scope.file
        of_files = []
        for file in self.scope.others.files.around(own):
            before = own.prefix.removeprefix(file.prefix)
            if rules := list(self._fitting(file, call, before)):
                of_files.append(in_order(rules))
        return of_files

    def within(self) -> list[list[RuleSpec]]:
        """Return all rules of the enclosing files, for the calls of agents that a step starts.

        These calls are not known before they are made.
        """
        return [
            in_order([self._within(file, index) for index in range(len(file.model.rules))])
            for file in self.scope.others.files.around(self.scope.file)
            if file.model.rules
        ]

    def _within(self, file: FlowFile, index: int) -> RuleSpec:
        declared = file.model.rules[index]
        rule = self._named(file, index)
        calls: Any = {
            "glob": declared.verdict[1],
            "agent": declared.agent,
            "effect": declared.effect,
            "environment": declared.in_,
        }
        known = {key: one for key, one in calls.items() if one is not None}
        rule["calls"] = cast("CallsSpec", known)
        if declared.when is not None:
            # The inputs are read where the rule is evaluated, so no enclosing flow has to pass them
            # on.
            used = self.scope.of_file(file).expressions.used
            before, used["inputs"] = used["inputs"], set()
            rule["when"] = self._condition(file, index, self._conditions_within)
            used["inputs"] = before
        return rule

    def _fitting(self, file: FlowFile, call: Called, before: str) -> Iterator[RuleSpec]:
        """Yield the rules of a file that may apply.

        Args:
            file: The file.
            call: The call.
            before: The prefix of the tool's name in this file.
        """
        for index, declared in enumerate(file.model.rules):
            if not call.is_of(declared, before):
                continue
            rule = self._named(file, index)
            if call.any_of_server:
                glob = declared.verdict[1]
                rule["tools"] = {"glob": glob, "before": [before, f"{call.kind}:{before}"]}
            if declared.when is not None:
                rule["when"] = self._condition(file, index, self._conditions)
            yield rule

    def _named(self, file: FlowFile, index: int) -> RuleSpec:
        """Return the verdict of a rule, and its name for users."""
        word, glob = file.model.rules[index].verdict
        where = "" if file is self.scope.others.first else f"{file.name} "
        return {"do": word, "rule": f"{where}rules[{index}] ({word}: {glob})"}  # type: ignore[typeddict-item]

    def _condition(self, file: FlowFile, index: int, known: dict[tuple[FlowFile, int], int]) -> int:
        """Return the number of the condition of a rule, compiled once for all calls of a flow.

        Args:
            file: The file of the rule.
            index: Index of the rule.
            known: Compiled conditions, to which this one is added.
        """
        if (file, index) not in known:
            rule = file.model.rules[index]
            assert rule.when is not None
            scope = self.scope.of_file(file)
            view = scope.view.having({"args": UNKNOWN, "calls": CALLS})
            if file is not scope.others.first:
                # it would depend on the caller whose inputs these are
                view.roots.pop("inputs", None)
            number = scope.expressions.condition(rule.when, (*rule.loc, "when"), view)
            known[file, index] = number
        return known[file, index]

    def check(self) -> None:
        """Report rules of the file with an invalid condition, or with impossible tools."""
        file = self.scope.file
        _warn_of_covered(file.report, file.model.rules)
        for index, rule in enumerate(file.model.rules):
            if rule.when is not None:
                self._condition(file, index, self._conditions)
            word, glob = rule.verdict
            kind, colon, name = glob.partition(":")
            loc = (*rule.loc, word)
            if not word or not is_kind_known(file.report, rule):
                continue  # it was reported
            tool = name if colon and kind in registry.kind_names() else glob
            self._check_agent(file, rule)
            if not GLOB.isdisjoint(glob) or ":" in tool:
                continue  # several, or the path of a function, which a step may call without a tool
            known = [*known_names(file, "tools"), *brought_tools(), *_names_for_agents(file)]
            # The tools of servers are unknown.
            if not any(tool == one or tool.startswith(f"{one}.") for one in known):
                hint = did_you_mean(glob, known) or "a glob such as 'github.*' fits several"
                file.report.at("E401", f"there is no tool {glob!r}", loc, hint)

    def _check_agent(self, file: FlowFile, rule: Rule) -> None:
        """Report a rule that names an agent by its title, a label for users, not by its name."""
        agents = file.model.agents
        if rule.agent is None or rule.agent in agents:
            return
        for name, agent in agents.items():
            if agent.title == rule.agent:
                message = f"there is no agent {rule.agent!r}: that is the title of {name!r}"
                file.report.at("E401", message, (*rule.loc, "agent"), f"write {name!r}")
                return


def _names_for_agents(file: FlowFile, prefix: str = "") -> Iterator[str]:
    """Yield the names that tools have only for agents (`as`), including those of imported files."""
    for agent in file.model.agents.values():
        yield from (f"{prefix}{use.as_}" for use in agent.tools if use.as_ is not None)
    for alias, other in file.imports.items():
        if other is not None:
            yield from _names_for_agents(other, f"{prefix}{alias}.")


def is_kind_known(report: DiagnosticReporter, rule: Rule) -> bool:
    """Return whether the kind of tools that a rule names exists, and report it otherwise."""
    word, glob = rule.verdict
    kind, colon, _ = glob.partition(":")
    if not colon or not GLOB.isdisjoint(kind) or kind in registry.kind_names():
        return True
    hint = did_you_mean(kind, registry.kind_names())
    if hint is None and _PATH.fullmatch(glob):
        return True
    report.at("E401", f"there is no kind of tool {kind!r}", (*rule.loc, word), hint)
    return False


def _warn_of_covered(report: DiagnosticReporter, rules: Sequence[Rule]) -> None:
    """Warn of rules that allow what another rule of the file always denies (W418)."""
    denying = [rule for rule in rules if rule.verdict[0] == "deny" and rule.when is None]
    for allowing in rules:
        word, glob = allowing.verdict
        if word != "allow":
            continue
        covering = next((rule for rule in denying if _covers(rule, allowing)), None)
        if covering is not None:
            message = (
                f"'deny: {covering.verdict[1]}' covers {glob!r}, so this 'allow' has no effect"
            )
            hint = "a matching 'deny' wins in any order. Narrow it, or leave this rule out"
            report.at("W418", message, (*allowing.loc, word), hint, key=True)


def _covers(rule: Rule, other: Rule) -> bool:
    """Return whether a rule matches each call that another one matches."""
    pairs = (
        (rule.agent, other.agent),
        (rule.effect, other.effect),
        (rule.in_, other.in_),
    )
    glob, covered = rule.verdict[1], other.verdict[1]
    is_wider = not {"?", "["} & {*glob} and fnmatchcase(covered, glob)
    return all(own in (None, theirs) for own, theirs in pairs) and (is_wider or glob == covered)


# The rules of a host, read from a separate file and evaluated right before a call.
#
# They have the form of `rules` in a flow file but belong to no flow: their conditions see
# `args` and `execution`. They are not compiled into flows, so a changed rule takes effect at once,
# including for executions that have begun.

FLOWS = frozenset({"flow", "agent"})
"""Kinds that only make further calls. The rules are applied to each of these calls."""

PROJECT = ".flowengine"
"""The directory of a project, whose rules can only restrict."""


class CompiledRules(NamedTuple):
    """The rules of one file."""

    compiled: dict[str, Plain]
    """`rules`: for each its verdict, agent, effect, environment, and the number of its condition.
    `expressions`: the conditions."""
    warnings: list[Diagnostic]
    report: str
    """The warnings, as a readable report."""


def compile_host_rules(path: str) -> CompiledRules:
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
    if not source.says("rules"):  # a link may lead to any file, so its content is not quoted
        message = f"{path} is not a rule file: 'rules:' is missing"
        raise FlowFileError(message, [])
    report = DiagnosticReporter(source, diagnostics)
    model = read_file(RuleFile, source, report, "rules")
    if model is None or diagnostics.errors:
        diagnostics.refuse(source.files)
    declared = model.rules
    expressions = Expressions(report, {})
    view = VisibleNames({"args": UNKNOWN, "calls": CALLS, "execution": EXECUTION})
    conditions = {}
    in_project = Path(path).absolute().parent.name == PROJECT
    _warn_of_covered(report, declared)
    for index, rule in enumerate(declared):
        if in_project and rule.verdict[0] == "allow":
            message = "a project's rules only restrict: this 'allow' answers no question"
            hint = "write it into ~/.config/flowengine/rules.yaml"
            report.at("W418", message, (*rule.loc, "allow"), hint, key=True)
        kind, colon, _ = rule.verdict[1].partition(":")
        if colon and kind in FLOWS:
            message = f"a call of kind {kind!r} only makes further calls"
            hint = "write rules for the tools that it calls"
            report.at("E401", message, (*rule.loc, rule.verdict[0]), hint)
        elif is_kind_known(report, rule) and rule.when is not None:
            loc = (*rule.loc, "when")
            conditions[index] = expressions.condition(rule.when, loc, view)
    if diagnostics.errors:
        diagnostics.refuse(source.files)
    rules = [
        [[*rule.verdict], rule.agent, rule.effect, rule.in_, conditions.get(index)]
        for index, rule in enumerate(declared)
    ]
    compiled: dict[str, Plain] = {"rules": rules, "expressions": expressions.records}
    problems = list(diagnostics)
    return CompiledRules(compiled, problems, render(problems, source.files))

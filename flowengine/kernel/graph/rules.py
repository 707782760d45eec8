"""Rules about calls, and which of them applies.

In a list of rules, those that deny come first, and the first matching rule applies. A rule that
cannot be evaluated requires an approval, because it could be one that denies. With several lists,
the strictest result applies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple, Protocol

from flowengine.kernel.graph.compiled import EvaluationError
from flowengine.kernel.graph.specs import RuleSpec, ToolsSpec

STRICTNESS = ("allow", "ask", "deny")
"""From the mildest to the strictest."""


class Verdict(NamedTuple):
    """The result of the rules for a call."""

    do: str
    """`allow`, `ask` or `deny`."""
    rule: str
    """The rule that applies."""


class About(Protocol):
    """The calls that a rule applies to. None means any."""

    @property
    def verdict(self) -> tuple[str, str]:
        """`allow`, `ask` or `deny`, and the glob of the rule's tools."""

    @property
    def agent(self) -> str | None:
        """A glob of the agents."""

    @property
    def effect(self) -> str | None:
        """The effect."""

    @property
    def in_(self) -> str | None:
        """A glob that one of the call's environments must match."""


class Calls(NamedTuple):
    """The calls that a rule applies to."""

    verdict: tuple[str, str]
    agent: str | None = None
    effect: str | None = None
    in_: str | None = None


class Called(NamedTuple):
    """The properties of a call that rules read, except its arguments."""

    tool: str
    """The name in the step. `server.*` if it may call any tool of a server."""
    kind: str
    effect: str
    environments: Iterable[str]
    agent: str = ""
    """The agent that makes the call. Empty: the flow."""
    names: Sequence[str] = ()
    """Further names of the tool that flows cannot choose."""
    declared: str = ""
    """The name in the tool's declaration. Empty: the name in the step."""

    @property
    def any_of_server(self) -> bool:
        """Whether the tool of a server is known only when the call is made."""
        return self.tool.endswith(".*")

    def is_of(self, rule: About, before: str = "") -> bool:
        """Return whether a rule applies to this call, apart from its condition.

        Args:
            rule: The rule.
            before: Prefix of the import through which the rule's file uses the call's file, such as
                `lib.`.
        """
        glob, tool, agent = rule.verdict[1], f"{before}{self.tool}", f"{before}{self.agent}"
        fits = _may_fit if self.any_of_server else fnmatchcase
        names = [tool, *self.names, *([f"{before}{self.declared}"] if self.declared else ())]
        if not any(fits(name, glob) or fits(f"{self.kind}:{name}", glob) for name in names):
            return False
        if rule.agent is not None and not (self.agent and fnmatchcase(agent, rule.agent)):
            return False
        if rule.effect is not None and rule.effect != self.effect:
            return False
        wanted = rule.in_
        return wanted is None or any(fnmatchcase(name, wanted) for name in self.environments)


def in_order(rules: Iterable[RuleSpec]) -> list[RuleSpec]:
    """Return the rules of a file in the order of evaluation, those that deny first."""
    return sorted(rules, key=lambda rule: rule["do"] != "deny")


def strictest(
    lists: Iterable[Sequence[RuleSpec]], holds: Callable[[int], bool], tool: str = ""
) -> Verdict | None:
    """Return the result of the rules for a call, or None if no rule matches.

    Args:
        lists: Rules that match the call apart from their conditions. In each list those that deny
            come first.
        holds: Evaluates a condition.
        tool: The name of the tool, for rules about some tools of a server.
    """
    verdicts = [
        verdict
        for verdict in (_first(rules, holds, tool) for rules in lists)
        if verdict is not None
    ]
    return max(verdicts, key=lambda verdict: STRICTNESS.index(verdict.do), default=None)


def _first(rules: Sequence[RuleSpec], holds: Callable[[int], bool], tool: str) -> Verdict | None:
    doubt: Verdict | None = None
    for rule in rules:
        if "tools" in rule and not _is_of(rule["tools"], tool):
            continue
        if doubt is not None and rule["do"] != "deny":
            return doubt
        try:
            fits = "when" not in rule or holds(rule["when"])
        except EvaluationError:
            doubt = doubt or Verdict("ask", f"{rule['rule']}, which cannot be evaluated")
            continue
        if fits:
            return Verdict(rule["do"], rule["rule"])
    return doubt


def _is_of(tools: ToolsSpec, tool: str) -> bool:
    """Return whether a rule applies to a tool of a server whose name is known only now."""
    names = [f"{before}{tool}" for before in tools["before"]]
    return any(fnmatchcase(name, tools["glob"]) for name in names)


def _may_fit(server: str, glob: str) -> bool:
    """Return whether a glob can match the name of a tool of a server, `server.*`."""
    start, literal = server.removesuffix("*"), re.split(r"[*?\[]", glob)[0]
    return start.startswith(literal) or literal.startswith(start)

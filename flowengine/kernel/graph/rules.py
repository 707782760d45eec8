"""Rules about calls: which one counts.

Of a list of rules those that deny come first, then the first that fits counts. A rule that cannot
be evaluated asks: it may have been there to deny. Of several lists the strictest answer counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, Protocol

from flowengine.kernel.graph.compiled import EvaluationError

if TYPE_CHECKING:
    from flowengine.kernel.graph.specs import RuleSpec, ToolsSpec

STRICTNESS = ("allow", "ask", "deny")
"""From the mildest answer to the strictest."""


class Verdict(NamedTuple):
    """What rules say about a call."""

    do: str
    """`allow`, `ask` or `deny`."""
    rule: str
    """Which rule says so."""


class About(Protocol):
    """Which calls a rule is about; of what is None, it is about any."""

    @property
    def verdict(self) -> tuple[str, str]:
        """What it says, and the glob of the tools that it is about."""

    @property
    def agent(self) -> str | None:
        """A glob of the agents."""

    @property
    def effect(self) -> str | None:
        """The effect."""

    @property
    def environment(self) -> str | None:
        """A glob of environments, of which the call gets one."""


class Calls(NamedTuple):
    """Which calls a rule is about."""

    verdict: tuple[str, str]
    agent: str | None = None
    effect: str | None = None
    environment: str | None = None


class Called(NamedTuple):
    """A call, as far as rules look at it but for its arguments."""

    tool: str
    """As the step names it; `server.*` if it may call any tool of a server."""
    kind: str
    effect: str
    environments: Iterable[str]
    agent: str = ""
    """In whose name it is made; empty: that of the flow."""
    names: Sequence[str] = ()
    """Further names of what is called, which no flow chooses."""
    declared: str = ""
    """As its file declares the tool; empty: as the step names it."""

    @property
    def any_of_server(self) -> bool:
        """Whether it is known only when it is made which tool of a server is called."""
        return self.tool.endswith(".*")

    def is_of(self, rule: About, before: str = "") -> bool:
        """Return whether a rule is about this call, but for its condition.

        Args:
            rule: The rule.
            before: By which import the file of the rule has that of the call: `lib.`.
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
        wanted = rule.environment
        return wanted is None or any(fnmatchcase(name, wanted) for name in self.environments)


def in_order(rules: Iterable[RuleSpec]) -> list[RuleSpec]:
    """Return the rules of a file in the order in which they are looked at: who denies is first."""
    return sorted(rules, key=lambda rule: rule["do"] != "deny")


def strictest(
    lists: Iterable[Sequence[RuleSpec]], holds: Callable[[int], bool], tool: str = ""
) -> Verdict | None:
    """Return what the rules say about a call; None: none fits.

    Args:
        lists: Rules that fit the call but for their conditions; in each the ones that deny first.
        holds: Evaluates a condition.
        tool: The name of what is called, for rules that are about some tools of a server.
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
    """Return whether a rule is about a tool of a server, whose name is known only now."""
    names = [f"{before}{tool}" for before in tools["before"]]
    return any(fnmatchcase(name, tools["glob"]) for name in names)


def _may_fit(server: str, glob: str) -> bool:
    """Return whether a glob may fit the name of a tool of a server, `server.*`."""
    start, literal = server.removesuffix("*"), re.split(r"[*?\[]", glob)[0]
    return start.startswith(literal) or literal.startswith(start)

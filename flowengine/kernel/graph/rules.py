"""Rules about calls: which one counts.

Of a list of rules those that deny come first, then the first that fits counts. A rule that cannot
be evaluated asks: it may have been there to deny. Of several lists the strictest answer counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

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


def strictest(
    lists: Iterable[Sequence[RuleSpec]], holds: Callable[[int], bool], tool: str = ""
) -> Verdict | None:
    """Return what the rules say about a call; None: none fits.

    Args:
        lists: Rules that fit the call but for their conditions; in each the ones that deny first.
        holds: Evaluates a condition.
        tool: The name of what is called, for rules that are about some tools of a server.
    """
    said = [one for one in (_first(rules, holds, tool) for rules in lists) if one is not None]
    return max(said, key=lambda one: STRICTNESS.index(one.do), default=None)


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

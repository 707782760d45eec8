"""The rules of one policy file, compiled for evaluation on calls.

They are plain data, so that a store can keep them. The compiler takes longer to load than most
commands take to run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.flow.expressions import CelEvaluator
from flowengine.kernel.graph.rules import Called, Calls, Verdict, in_order, strictest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.graph.specs import RuleSpec


class HostRules:
    """The rules of one file.

    Args:
        name: How messages name the file.
        compiled: As `flowengine.flow.compile.host_policies` returns them.
    """

    def __init__(self, name: str, compiled: Any) -> None:
        self._name = name
        self._rules: list[tuple[Calls, int | None]] = [
            (Calls((str(word), str(glob)), *more), when)
            for (word, glob), *more, when in compiled["rules"]
        ]
        """The calls that each rule matches, and the number of its condition."""
        self._evaluator = CelEvaluator(compiled["expressions"], name)

    def verdict(self, call: Called, names: Mapping[str, Plain]) -> Verdict | None:
        """Return the verdict of the rules on a call. None: no rule matches.

        Args:
            call: The call.
            names: The variables of conditions: `args`, without secrets, `calls` and `execution`.
        """
        return strictest(
            [in_order(self._fitting(call))],
            lambda number: bool(self._evaluator.evaluate(number, names)),
        )

    def _fitting(self, call: Called) -> list[RuleSpec]:
        rules: list[RuleSpec] = []
        for index, (calls, when) in enumerate(self._rules):
            if call.is_of(calls):
                word, glob = calls.verdict
                rule_name = f"{self._name}: policies[{index}] ({word}: {glob})"
                rule: RuleSpec = {"do": word, "rule": rule_name}  # type: ignore[typeddict-item]
                if when is not None:
                    rule["when"] = when
                rules.append(rule)
        return rules

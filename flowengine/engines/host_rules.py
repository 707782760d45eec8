"""The rules of one policy file, compiled, as they are asked about calls.

They are plain data, so that a store can keep them: what compiles them takes longer to load than
most commands take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.flow.expressions import CelEvaluator
from flowengine.kernel.graph.rules import Called, Verdict, in_order, strictest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.graph.specs import RuleSpec


class _Rule(NamedTuple):
    verdict: tuple[str, str]
    agent: str | None
    effect: str | None
    environment: str | None
    when: int | None
    """Number of its condition."""


class HostRules:
    """The rules of one file.

    Args:
        name: How messages name the file.
        compiled: As `flowengine.flow.compile.host_policies` returns them.
    """

    def __init__(self, name: str, compiled: Any) -> None:
        self._name = name
        self._rules = [
            _Rule((str(word), str(glob)), *more) for (word, glob), *more in compiled["rules"]
        ]
        self._evaluator = CelEvaluator(compiled["expressions"], name)

    def verdict(self, call: Called, names: Mapping[str, Plain]) -> Verdict | None:
        """Return what the rules say about a call; None: none fits.

        Args:
            call: The call.
            names: What conditions see: `args`, without secrets, `calls` and `execution`.
        """
        return strictest(
            [in_order(self._fitting(call))],
            lambda number: bool(self._evaluator.evaluate(number, names)),
        )

    def _fitting(self, call: Called) -> list[RuleSpec]:
        found: list[RuleSpec] = []
        for index, one in enumerate(self._rules):
            if call.is_of(one):
                word, glob = one.verdict
                told = f"{self._name}: policies[{index}] ({word}: {glob})"
                rule: RuleSpec = {"do": word, "rule": told}  # type: ignore[typeddict-item]
                if one.when is not None:
                    rule["when"] = one.when
                found.append(rule)
        return found

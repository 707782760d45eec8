"""The names that an expression sees at its place (docs/language.md: Expressions)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from flowengine.flow.compile.nullability import NONE, Doubts, under
from flowengine.flow.compile.types import Schema
from flowengine.flow.expressions import DeclaredNames, Note

_STEP = re.compile(r"\bsteps\s*\.\s*([A-Za-z_][A-Za-z0-9_]*)")

ELSEWHERE = {
    "item": "it is the item of a 'map'. on_error and next of the mapped step are outside of it",
    "index": "it is the index of an item of a 'map'",
    "key": "it is the key of an item of a 'map'",
    "round": "it is the round of a 'loop'",
    "join": "it is available in steps with several incoming edges, or with a 'join'",
    "signal": "it is available in 'match', in a step with a 'trigger' and in those after it",
    "result": "it is available in the step's own 'output'. For another step, use steps.x.output",
    "output": "it is available in the step's own set, emit, next, loop and compensate. For another "
    "step, use steps.x.output",
    "outcome": "it is available in the step's own set, emit, next and loop. For another step, use "
    "steps.x.outcome",
    "error": "it is available in on_error, retry.when, compensate and finally. For another step, "
    "use steps.x.error",
    "args": "it is available in the declaration of a tool",
    "idempotency_key": "it is available in the configuration of http, shell, run and "
    "other kinds of steps and tools. A Python function takes a "
    "StepContext, which has it",
    "steps": "steps are visible to steps and outputs",
    "state": "state is visible to steps and outputs",
}
"""Roots that exist, and the places where they are available."""
NO_SECRETS = Note(
    "E403",
    "a secret cannot be used here",
    "secrets may be used, alone or in a text, in run.env, tools.*.bind, shell.env, and url, "
    "headers, query and auth of http",
)


class StepFacts(NamedTuple):
    """The known facts about a step at a place."""

    schema: Schema
    hidden: Note | None = None
    """Why it cannot be used."""
    uncertain: Doubts = NONE
    """Why its output, or a part of it, may be null."""


class VisibleNames:
    """The names visible at one place.

    Args:
        roots: Root name → schema.
        step: The step that contains the expression, or -1.
        look: Returns the known facts about a step by its id, or None for an unknown id.
        steps: Ids of all steps of the flow, for suggestions. None if no steps are visible.
    """

    def __init__(
        self,
        roots: dict[str, Schema],
        step: int = -1,
        look: Callable[[str], StepFacts | None] | None = None,
        steps: Callable[[], Iterable[str]] | None = None,
        hidden: dict[str, Note] | None = None,
        uncertain: dict[str, Note] | None = None,
    ) -> None:
        self.roots = roots
        self.step = step
        self.look = look
        self._steps = steps
        self.hidden = hidden or {}
        self.uncertain = uncertain or {}

    def having(
        self,
        roots: dict[str, Schema],
        hidden: dict[str, Note] | None = None,
        uncertain: dict[str, Note] | None = None,
    ) -> VisibleNames:
        """Return the view with more roots."""
        more = {**self.hidden, **(hidden or {})}
        kept = {path: note for path, note in self.uncertain.items() if path not in roots}
        doubts = {**kept, **(uncertain or {})}
        return VisibleNames(
            {**self.roots, **roots}, self.step, self.look, self._steps, more, doubts
        )

    def looking(self, look: Callable[[str], StepFacts | None]) -> VisibleNames:
        """Return the view with another view of the steps."""
        return VisibleNames(self.roots, self.step, look, self._steps, self.hidden, self.uncertain)

    def all_steps(self) -> Iterable[str]:
        """Return the ids of all steps."""
        return () if self._steps is None else self._steps()

    def names(self, source: str) -> DeclaredNames:
        """Return the names for the check of an expression, including the steps that it names.

        Args:
            source: The expression.

        Returns:
            The names.
        """
        roots = dict(self.roots)
        hidden = dict(self.hidden)
        uncertain = dict(self.uncertain)
        if self.look is not None:
            roots["steps"] = self._seen(source, hidden, uncertain)
        for root, where in ELSEWHERE.items():
            if root not in roots and root in source:
                hidden.setdefault(root, Note("E301", f"'{root}' is not visible here", where))
        if "secrets" in source:
            hidden["secrets"] = NO_SECRETS
        schema = {"type": "object", "properties": roots, "additionalProperties": False}
        return DeclaredNames(schema, hidden, uncertain)

    def _seen(self, source: str, hidden: dict[str, Note], uncertain: dict[str, Note]) -> Schema:
        """Return the schema of `steps`: of the named ones, or of all if one is unknown."""
        assert self.look is not None
        named = dict.fromkeys(_STEP.findall(source))
        by_name = {name: self.look(name) for name in named}
        if None in by_name.values() or ("steps" in source and not by_name):
            by_name = {name: self.look(name) for name in self.all_steps()}
        properties = {}
        for name, seen in by_name.items():
            if seen is None:
                continue
            if seen.hidden is not None:
                hidden[f"steps.{name}"] = seen.hidden
                continue
            properties[name] = seen.schema
            uncertain.update(under(f"steps.{name}.output", seen.uncertain))
        return {"type": "object", "properties": properties, "additionalProperties": False}

"""Loops whose body does not change their condition (W409)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from flowengine.flow.check.findings import Finding
from flowengine.flow.compile.plan import Plan
from flowengine.flow.compile.step_info import Info

_CHANGING = re.compile(r"\b(output|outcome|round|now|item|join|error)\b")
_STEP = re.compile(r"\bsteps\s*\.\s*([a-z][a-z0-9_]*)")
_STATE = re.compile(r"\bstate\s*\.\s*([a-z][a-z0-9_]*)")


def check_loops(plan: Plan) -> Iterator[Finding]:
    """Yield the loops that end after the first round or never.

    Args:
        plan: The steps.

    Yields:
        A warning for each.
    """
    written = {key for info in plan.steps for key in _writes(info)}
    for info in plan.steps:
        loop = info.model.loop
        if loop is None or not (loop.until or loop.while_):
            continue
        word = "until" if loop.until is not None else "while"
        condition = (loop.until if loop.until is not None else loop.while_) or ""
        inside = {step.id for step in plan.within(info)}
        changes = (
            _CHANGING.search(condition)
            or inside & set(_STEP.findall(condition))
            or written & set(_STATE.findall(condition))
        )
        if not changes:
            message = f"nothing in the loop of {info.id!r} changes its condition"
            hint = "name 'output', a step inside, or a state key that a step sets"
            yield Finding("W409", info.number, message, hint, ("loop", word))


def _writes(info: Info) -> Iterator[str]:
    yield from info.model.set
    if isinstance(info.model.on_error, list):
        for handler in info.model.on_error:
            yield from handler.set

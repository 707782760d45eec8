"""Durations that exceed the maximum duration of the flow (E211)."""

from __future__ import annotations

from collections.abc import Iterator

from flowengine.flow.compile.plan import Plan
from flowengine.flow.models import Approval, Loc, Wait
from flowengine.kernel.notation.times import parse_duration


def too_long(plan: Plan) -> Iterator[tuple[Loc, str]]:
    """Yield the written durations that exceed `limits.duration`.

    Args:
        plan: The steps.

    Yields:
        Place and duration.
    """
    limit = plan.model.limits.duration
    if limit == "none":
        return
    most = parse_duration(limit)
    for loc, text in _written(plan):
        try:
            if parse_duration(text) > most:
                yield loc, text
        except ValueError:
            continue  # an expression


def _written(plan: Plan) -> Iterator[tuple[Loc, str]]:
    for info in plan.steps:
        if info.model.deadline is not None:
            yield (*info.loc, "deadline"), info.model.deadline
        given = info.given
        if isinstance(given, Approval) and given.expires is not None:
            yield (*given.loc, "expires"), given.expires
        if isinstance(given, Wait):
            if info.model.timeout is not None:
                yield (*info.loc, "timeout"), info.model.timeout
            for trigger in (given, *(given.first or ()), *(given.all or ())):
                if trigger.for_ is not None:
                    yield (*trigger.loc, "for"), trigger.for_
